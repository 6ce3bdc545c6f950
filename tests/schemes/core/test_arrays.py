"""Arrays are decoded where they lie, in as many parts as there are threads."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes import awq, bnb, fp8, ggml, gptq
from anamnesis.schemes.core.arrays import usual_threads
from anamnesis.schemes.core.weight import Scratch
from anamnesis.sources.memory import BufferSource
from anamnesis.sources.open import open_source
from helpers.handmade import WriteModel

Decode = Callable[..., NDArray[Any]]

ROWS, COLS = 2048, 4096  # of BF16 16 MiB, which go past the caches


def decoders() -> dict[str, Decode]:
    """Functions of one weight each, but for `out` and `threads`."""
    rng = np.random.default_rng(0)

    def words(rows: int, cols: int) -> NDArray[np.int32]:
        return rng.integers(-(2**31), 2**31, (rows, cols)).astype(np.int32)

    qzeros, scales = words(32, ROWS // 8), rng.random((32, ROWS)).astype(np.float16)
    by_cols, by_rows = words(COLS // 8, ROWS), words(COLS, ROWS // 8)
    g_idx = (rng.permutation(COLS) // 128).astype(np.int32)
    bytes_ = rng.integers(0, 120, (ROWS, COLS), np.uint8)
    codes = bytes_.view(ml_dtypes.float8_e4m3fn)
    grid = rng.random((ROWS // 128, COLS // 128)).astype(np.float32)
    nibbles = bytes_[: ROWS // 2].reshape(-1)
    absmax = rng.random(ROWS * COLS // 64).astype(np.float32)
    codebook = np.linspace(-1, 1, 16, dtype=np.float32)
    shape = (ROWS, COLS)
    blocks = np.concatenate([bytes_, bytes_[:, : COLS // 16]], axis=1)
    return {
        "gptq": lambda **how: gptq.dequantize(by_cols, qzeros, scales, group_size=128, **how),
        "act-order": lambda **how: gptq.dequantize(by_cols, qzeros, scales, g_idx, **how),
        "awq": lambda **how: awq.dequantize(by_rows, qzeros, scales, group_size=128, **how),
        "fp8": lambda **how: fp8.dequantize(codes, grid, **how),
        "nf4": lambda **how: bnb.dequantize_4bit(nibbles, absmax, codebook, shape=shape, **how),
        "int8": lambda **how: bnb.dequantize_int8(bytes_.view(np.int8), absmax[:ROWS], **how),
        "Q8_0": lambda **how: ggml.dequantize(blocks, "Q8_0", **how),
    }


DECODERS = decoders()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_parts_make_the_whole(name: str, dtype: str) -> None:
    decode = DECODERS[name]
    whole = decode(dtype=dtype)
    assert whole.shape == (ROWS, COLS)
    assert whole.ctypes.data % 64 == 0
    assert whole.flags.c_contiguous
    assert whole.flags.writeable
    for threads in (2, 3):
        assert decode(dtype=dtype, threads=threads).tobytes() == whole.tobytes()
    room = np.empty(whole.nbytes + 64, np.uint8)[-whole.nbytes :]  # as numpy aligns it, or worse
    out = room.view(whole.dtype).reshape(whole.shape)
    assert decode(dtype=dtype, out=out) is out
    assert out.tobytes() == whole.tobytes()


@pytest.mark.parametrize("name", DECODERS)
def test_nothing_is_copied(name: str) -> None:
    """Neither codes nor results; what is checked before it is used, g_idx, is."""
    out = np.empty((ROWS, COLS), ml_dtypes.bfloat16)
    DECODERS[name](out=out)
    tracemalloc.start()
    try:
        DECODERS[name](out=out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20  # of codes there are 4 MiB or more


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_checked_is_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread may change meanwhile, after the check: of all parts, g_idx."""
    copied = []
    copy = Scratch.copy

    def noting(
        self: Scratch, slot: int, tensor: StoredTensor, offset: int, n_bytes: int
    ) -> memoryview:
        copied.append(tensor.name)
        return copy(self, slot, tensor, offset, n_bytes)

    monkeypatch.setattr(Scratch, "copy", noting)
    DECODERS[name]()
    assert set(copied) == ({"g_idx"} if name == "act-order" else set())


def test_threads_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each megabyte, up to the CPUs; one for what is inflated or swapped on its way."""
    monkeypatch.setattr("anamnesis.schemes.core.arrays.default_threads", lambda: 4)
    large, small = np.arange(1 << 20, dtype=np.float32), np.arange(1 << 18, dtype=np.float32)
    np.savez(tmp_path / "stored.npz", large=large, small=small, swapped=large.astype(">f4"))
    np.savez_compressed(tmp_path / "deflated.npz", large=large)
    for path, threads in (
        (tmp_path / "stored.npz", {"large": 4, "small": 1, "swapped": 1}),
        (tmp_path / "deflated.npz", {"large": 1}),
    ):
        with an.parse(path) as model:
            assert {
                name: usual_threads(tensor._weight, tensor._weight.n_elements * 4)
                for name, tensor in model.items()
            } == threads
            for tensor in model.values():
                whole = tensor.numpy()
                for n in (1, 3):
                    assert tensor.numpy(threads=n).tobytes() == whole.tobytes()
                assert np.array_equal(whole, np.arange(whole.size))


def test_fewer_threads_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    decode = DECODERS["fp8"]
    whole = decode()
    monkeypatch.setattr(threading.Thread, "start", start)
    assert decode(threads=3).tobytes() == whole.tobytes()


def test_large_bytes_of_packed_values(write_model: WriteModel) -> None:
    data = np.random.default_rng(0).bytes(40 << 20)
    path = write_model({"w": ("F4", [len(data) * 2], data)})
    with an.parse(path) as model:
        for threads in (None, 1, 3):
            assert model["w"].numpy(threads=threads).tobytes() == data


def test_a_mapped_file_is_decoded_in_bands(write_model: WriteModel) -> None:
    n = 32 << 20
    path = write_model({"w": ("F8_E4M3", [n], bytes(n)), "w_scale": ("F32", [1], bytes(4))})
    with an.parse(path, mmap=True) as model:
        out = n * 2
        tracemalloc.start()
        try:
            assert not model["w"].numpy("bf16", threads=1).any()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < out + (4 << 20)


def test_what_a_source_holds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    held = BufferSource(b"0123456789").held(2, 8)
    assert held is not None
    assert bytes(held) == b"23456789"
    assert BufferSource(b"0123456789").held(2, 9) is None
    for mmap in (False, True):  # a mapping could not be closed while a part of it is held
        with open_source(path, mmap=mmap) as source:
            assert source.held(2, 8) is None
