"""Weights whose rows are too long for a thread's memory: in tiles, and the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes import fp8
from anamnesis.schemes.core import blockwise
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.families.fp8.layouts import encoding as fp8_encoding
from anamnesis.schemes.families.integers.layouts.compressed_tensors import (
    int_quantized,
    pack_quantized,
)
from helpers.handmade import Entry, write_safetensors

CT = "compressed-tensors"
TILED = (
    fp8_encoding(),
    fp8_encoding("block", CT),
    fp8_encoding("block", CT, block_size=(32, 72)),
    fp8_encoding(powers_of_two=True),
    fp8_encoding(format="E5M2", block_size=(3, 64)),
    pack_quantized(),
    pack_quantized(32, is_symmetric=False),
    pack_quantized(8),
)
NAME = "layers.0.q.weight"
SHAPES = [(128, 136), (256, 384), (130, 200), (33, 2050)]


def plain(shape: tuple[int, int], dtype: str) -> dict[str, Entry]:
    rng = np.random.default_rng(shape[1])
    kind: Any = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F16": np.float16}[dtype]
    values = rng.normal(size=shape) * np.exp2(rng.integers(-9, 5, (1, shape[1])))
    return {NAME: (dtype, shape, values.astype(kind).tobytes())}


def quantised(shape: tuple[int, int]) -> dict[str, Entry]:
    """INT8 of bitsandbytes, which is decoded in tiles of its own."""
    rng = np.random.default_rng(shape[0])
    scb = rng.uniform(1, 9, shape[0]).astype(np.float32)
    return {
        NAME: ("I8", shape, rng.bytes(shape[0] * shape[1])),
        NAME.replace("weight", "SCB"): ("F32", (shape[0],), scb.tobytes()),
    }


def forgotten(source: Path, encoding: Encoding, threads: int) -> tuple[bytes, Any]:
    out = source.with_name("out.safetensors")
    is_told = "x" not in encoding.id and "e5m2" not in encoding.id  # by names and shapes alone
    with an.parse(source) as model:
        report = model.forget(out, encoding, force=True, threads=threads, verify=is_told)
    assert report.loss is not None
    return out.read_bytes(), report.loss.total


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("encoding", TILED, ids=lambda e: e.id)
def test_tiles_give_the_same_bytes(
    encoding: Encoding, shape: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entries in (*(plain(shape, dtype) for dtype in ("F32", "BF16", "F16")), quantised(shape)):
        source = write_safetensors(tmp_path / "in.safetensors", entries)
        dtype = DTYPES[entries[NAME][0]] if entries[NAME][0] != "I8" else DTYPES["BF16"]
        if encoding.refuses(NAME, shape, dtype):
            return
        with monkeypatch.context() as patch:
            patch.setattr(blockwise, "_LARGEST_BAND", 1 << 40)
            want, loss = forgotten(source, encoding, 1)
            assert encoding.encoder.tiles(shape) is None
        for tile, threads in ((1 << 11, 1), (1 << 15, 3)):
            with monkeypatch.context() as patch:
                patch.setattr(blockwise, "_LARGEST_BAND", 0)
                patch.setattr(blockwise, "_TILE", tile)
                bands = encoding.encoder.tiles(shape)
                if bands is not None:
                    assert len(bands) == len(list(bands))
                    covered = [n for band in bands for n in band]
                    assert covered == [0, *sorted(covered[1:-1]), shape[0] * shape[1]]
                    assert tile > 2048 or len(bands) > 1
                found, lost = forgotten(source, encoding, threads)
                is_same = found == want  # pytest takes long to tell how they differ
                assert is_same
                assert (lost.n, lost.largest) == (loss.n, loss.largest)
                assert lost.mean == pytest.approx(loss.mean)


@pytest.mark.slow
def test_a_row_of_blocks_that_is_too_long(tmp_path: Path) -> None:
    shape = (256, 60_032)
    entries = plain(shape, "F32")
    source = write_safetensors(tmp_path / "in.safetensors", entries)
    with an.parse(source) as model:
        made = model.plan("fp8-block", threads=1).files[0].weights[0]
        assert len(made.bands()) == 2 * 10
        report = model.forget(tmp_path / "out.safetensors", "fp8-block", threads=2)
    values = np.frombuffer(entries[NAME][2], np.float32).reshape(shape)
    codes, scales = fp8.quantize(values, "block")
    with an.parse(tmp_path / "out.safetensors") as written:
        is_same = written.stored[NAME].read() == codes.tobytes()
        assert is_same
        assert written.stored[f"{NAME}_scale_inv"].read() == scales.tobytes()
    assert report.loss is not None
    with an.parse(source) as model:
        assert model.forget(tmp_path / "again", "fp8-block", threads=3).loss == report.loss


def test_infinities_are_named(tmp_path: Path) -> None:
    values = np.zeros((128, 60_032), np.float32)
    values[127, 60_000] = np.inf
    entries: dict[str, Entry] = {NAME: ("F32", values.shape, values.tobytes())}
    source = write_safetensors(tmp_path / "in.safetensors", entries)
    with an.parse(source) as model, pytest.raises(an.UnsupportedError, match=f"{NAME}: an inf"):
        model.forget(tmp_path / "out", "fp8-block")


def test_what_shares_a_scale_and_is_too_much() -> None:
    """A band of it has to fit a thread's memory."""
    for encoding in (int_quantized(), fp8_encoding("channel", CT), pack_quantized(None)):
        assert encoding.refuses(NAME, (2, 1 << 21), DTYPES["F32"]) is None
        why = encoding.refuses(NAME, (2, 1 << 23), DTYPES["F32"])
        assert why == "8,388,608 values of a row depend on each other"
    for encoding in (
        fp8_encoding(),
        fp8_encoding("tensor"),
        pack_quantized(),
        pack_quantized(32, is_symmetric=False),
    ):
        assert encoding.refuses(NAME, (128, 1 << 23), DTYPES["F32"]) is None
