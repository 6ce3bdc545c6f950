"""Bands tile a weight in order, none crosses an edge, and they are counted without being made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anamnesis as an
from anamnesis import _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.core.bands import Band, Bands, cut, cut_into
from anamnesis.schemes.core.weight import Scratch, decode_run
from helpers.handmade import Entry, write_safetensors

SIZES = st.integers(0, 40)
COUNTS = st.integers(1, 50)


def check(bands: Bands, batch: int, rows: int, cols: int) -> None:
    found = list(bands)
    assert len(bands) == len(found)
    assert [band for run in bands.runs() for band in run] == found
    ends = [0, *(band.stop for band in found)]
    assert [band.start for band in found] == ends[:-1]
    assert ends[-1] == batch * rows * cols
    for band in found:
        assert band.start < band.stop
        first, col = divmod(band.start, cols)
        last = (band.stop - 1) // cols
        assert first // rows == last // rows  # of one matrix
        if first != last:
            assert col == 0
            assert band.stop % cols == 0


@given(SIZES, SIZES, COUNTS, st.integers(1, 8), st.integers(0, 4))
def test_cut(rows: int, cols: int, n_elements: int, step: int, batch: int) -> None:
    bands = cut(rows, cols, n_elements, step=step, batch=batch)
    check(bands, batch if rows * cols else 0, rows, cols)
    for band in bands:
        assert band.stop - band.start <= max(n_elements, step)
        assert band.start % cols % step == 0 or cols <= n_elements


@given(SIZES, SIZES, COUNTS, COUNTS)
def test_stripes(rows: int, cols: int, band_rows: int, stripe: int) -> None:
    bands = Bands(rows, cols, band_rows, max(cols, 1), stripe=stripe)
    check(bands, 1 if rows * cols else 0, rows, cols)
    for run in bands.runs():
        first, last = run[0].start // cols, (run[-1].stop - 1) // cols
        assert first % stripe == 0
        assert first // stripe == last // stripe


STRIPED = st.builds(
    lambda rows, cols, band_rows, stripe: Bands(rows, cols, band_rows, cols, stripe=stripe),
    st.integers(1, 40),
    st.integers(1, 40),
    COUNTS,
    st.integers(0, 20),
)
CUT = st.builds(
    lambda rows, cols, n, step, batch: cut(rows, cols, n, step=step, batch=batch),
    st.integers(1, 40),
    st.integers(1, 40),
    COUNTS,
    st.integers(1, 8),
    st.integers(1, 4),
)


@given(STRIPED | CUT, st.data())
def test_bands_that_touch_a_run(bands: Bands, data: st.DataObject) -> None:
    n = bands.rows * bands.cols * bands.batch
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))
    touching = [band for band in bands if band.start < stop and band.stop > start]
    assert list(bands.touching(start, stop)) == touching


@given(STRIPED | CUT, st.integers(1, 200), st.integers(1, 100))
def test_bands_that_are_multiples(bands: Bands, grain: int, n_elements: int) -> None:
    if bands.are_multiples_of(grain):
        assert all(band.start % grain == 0 for band in bands)
    coarser = bands.multiples_of(grain, n_elements)
    found = list(coarser)
    assert len(coarser) == len(found)
    assert all(band.start % grain == 0 for band in found)
    ends = [0, *(band.stop for band in found)]
    assert [band.start for band in found] == ends[:-1]
    assert ends[-1] == bands.rows * bands.cols * bands.batch
    if bands.are_multiples_of(grain):
        assert coarser == bands


@pytest.mark.parametrize("band_bytes", [4096, 1 << 20])
def test_any_run_of_a_weight_decodes_as_in_the_whole(band_bytes: int, tmp_path: Path) -> None:
    """Of every scheme: what `decode_run` gives, wherever it begins and ends."""
    rng = np.random.default_rng(4)
    state = {
        "quant_type": "nf4",
        "blocksize": 64,
        "dtype": "bfloat16",
        "shape": [37, 30],
    }
    state_raw = json.dumps(state).encode()
    codes = rng.integers(0, 0x7F, 200 * 300, np.uint8).tobytes()
    tensors: dict[str, Entry] = {
        "plain.weight": ("BF16", (50, 70), rng.bytes(7000)),
        "fp8.weight": ("F8_E4M3", (200, 300), codes),
        "fp8.weight_scale": ("F32", (2, 3), rng.random(6, np.float32).tobytes()),
        "stack.weight": ("F8_E4M3", (3, 50, 70), codes[: 3 * 50 * 70]),
        "stack.weight_scale": ("F32", (3, 1, 1), rng.random(3, np.float32).tobytes()),
        "four.weight": ("U8", (555, 1), rng.bytes(555)),
        "four.weight.absmax": ("F32", (18,), rng.random(18, np.float32).tobytes()),
        "four.weight.quant_map": ("F32", (16,), _core.BNB_CODEBOOKS["NF4"]),
        "four.weight.quant_state.bitsandbytes__nf4": ("U8", (len(state_raw),), state_raw),
        "packed.qweight": ("I32", (16, 96), rng.bytes(16 * 96 * 4)),
        "packed.qzeros": ("I32", (1, 12), rng.bytes(48)),
        "packed.scales": ("F16", (1, 96), rng.random(96, np.float32).astype("f2").tobytes()),
    }
    source = write_safetensors(tmp_path / "a.safetensors", tensors)
    with cut_into(band_bytes), an.parse(source, block_size=(128, 128)) as model:
        assert not model.problems
        assert len(model) == 5
        for name in model:
            weight = model[name]._weight
            whole = model[name].numpy("f32").tobytes()
            n = weight.n_elements
            runs = [(0, n), (0, 1), (n - 1, n), *np.sort(rng.integers(0, n, (40, 2)), axis=1)]
            for start, stop in runs:
                band = Band(int(start), int(max(stop, start + 1)))
                out = bytearray(4 * (band.stop - band.start))
                scratch = Scratch()
                decode_run(weight, band, DTYPES["F32"], scratch, memoryview(out))
                assert bytes(out) == whole[4 * band.start : 4 * band.stop], (name, band)
