"""GPTQ and AWQ are read a stripe at a time, which one thread decodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.core.bands import cut_into
from anamnesis.sources.file import FileSource
from helpers.handmade import write_safetensors

ROWS, COLS, GROUP = 416, 512, 64
BAND = 16 << 10  # twice that are 32 rows of BF16
KINDS = ("gptq", "awq")


def write(folder: Path, kind: str) -> Path:
    rng = np.random.default_rng(0)

    def words(*shape: int) -> tuple[str, list[int], bytes]:
        return "I32", list(shape), rng.bytes(4 * shape[0] * shape[1])

    codes = (COLS, ROWS // 8) if kind == "awq" else (COLS // 8, ROWS)
    scales = rng.uniform(1e-3, 1e-2, (COLS // GROUP, ROWS)).astype(np.float16)
    tensors = {
        "a.qweight": words(*codes),
        "a.qzeros": words(COLS // GROUP, ROWS // 8),
        "a.scales": ("F16", list(scales.shape), scales.tobytes()),
    }
    return write_safetensors(folder / f"{kind}.safetensors", tensors)


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path, request.param)


@pytest.fixture(autouse=True)
def small_stripes() -> Iterator[None]:
    """Of 160 rows at most, so that there are three of 160, 160 and 96."""
    with cut_into(BAND, stripe=170 * (COLS // 2 + COLS // GROUP * 5 // 2)):
        yield


def test_runs_are_stripes(path: Path) -> None:
    with an.parse(path) as model:
        weight = model["a.weight"]._weight
        runs = list(weight.bands(DTYPES["BF16"], BAND).runs())
        assert [bands[0].start // COLS for bands in runs] == [0, 160, 320]
        bands = [band for bands in runs for band in bands]
        assert bands == list(weight.bands(DTYPES["BF16"], BAND))
        assert [band.start for band in bands] == [row * COLS for row in range(0, ROWS, 32)]
        assert [band.stop for band in bands[:-1]] == [band.start for band in bands[1:]]
        assert bands[-1].stop == ROWS * COLS


def test_nothing_is_read_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[int] = Counter()
    rows_of = FileSource._read_rows

    def noting(self: FileSource, offset: int, stride: int, row_bytes: int, view: Any) -> None:
        for at in range(offset, offset + len(view) // row_bytes * stride, stride):
            read.update(range(at, at + row_bytes))
        rows_of(self, offset, stride, row_bytes, view)

    monkeypatch.setattr(FileSource, "_read_rows", noting)
    with an.parse(path) as model:
        parts = model["a.weight"]._weight.parts
        model.remember(path.with_name("out.safetensors"), threads=2)
    wanted = {at for part in parts for at in range(part.offset, part.offset + part.n_bytes)}
    assert set(read) == wanted
    assert set(read.values()) == {1}


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_stripes_make_the_whole(path: Path, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with an.parse(path.read_bytes()) as model:  # held in memory: not cut at all
        whole = model["a.weight"].numpy(dtype, threads=1).tobytes()
    with an.parse(path) as model:
        for threads in (1, 3):
            assert model["a.weight"].numpy(dtype, threads=threads).tobytes() == whole
            assert model.remember_to_bytes(dtype, threads=threads).endswith(whole)


def test_threads_share_what_lies_in_memory(path: Path) -> None:
    with an.parse(path.read_bytes()) as model:
        weight = model["a.weight"]._weight
        half = ROWS * COLS // 2 * 2
        runs = list(weight.bands(DTYPES["BF16"], half).runs())
        assert [len(bands) for bands in runs] == [1] * len(runs)
        assert 2 <= len(runs) <= 3
