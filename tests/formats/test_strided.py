"""Strided tensors come out row-major: the bytes are those of numpy's own copy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from anamnesis.base.errors import ParseError
from anamnesis.sources import strided as module
from anamnesis.sources.memory import BufferSource
from anamnesis.sources.strided import StridedSource, Strips, column_major, strided

LAYOUTS: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "column-major": ((7, 11), (1, 7)),
    "column-major of 3": ((5, 6, 7), (1, 5, 30)),
    "permuted": ((5, 6, 7), (1, 35, 5)),
    "a slice of columns": ((9, 4), (10, 1)),
    "every third": ((40,), (3,)),
    "of one row, every third": ((1, 40), (500, 3)),
    "broadcast rows": ((6, 8), (0, 1)),
    "broadcast columns": ((6, 8), (1, 0)),
    "all the same": ((6, 8), (0, 0)),
    "windows that overlap": ((9, 4), (1, 1)),
    "far apart": ((3, 4), (20_000, 5_000)),
    "far apart, transposed": ((4, 3), (5_000, 20_000)),
    "large, column-major": ((600, 700), (1, 600)),
    "large, transposed and sliced": ((300, 500), (2, 700)),
}


def _oracle(storage: np.ndarray[Any, Any], shape: Any, strides: Any) -> bytes:
    steps = [s * storage.itemsize for s in strides]
    return as_strided(storage, shape, steps).tobytes()


@pytest.fixture(params=["few", "many"])
def _strips(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with the sizes of real work, and with ones so small that all is cut."""
    if request.param == "many":
        monkeypatch.setattr(module, "_STRIP_BYTES", 1000)
        monkeypatch.setattr(module, "_KEPT_BYTES", 2000)
        monkeypatch.setattr(module, "_READ_BYTES", 300)
        monkeypatch.setattr(module, "GAP_BYTES", 50)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("_strips")
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "c16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_are_those_of_numpys_copy(layout: str, dtype: str) -> None:
    shape, strides = LAYOUTS[layout]
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    raw = random.Random(1).randbytes((last + 1 + 3) * np.dtype(dtype).itemsize)
    storage = np.frombuffer(raw, dtype)
    want = _oracle(storage[3:], shape, strides)
    source, at = strided(
        BufferSource(raw), 3 * storage.itemsize, shape, strides, storage.itemsize, Strips()
    )
    assert isinstance(source, StridedSource)
    assert at == 0
    assert source.size == len(want)
    assert source.read(0, source.size) == want
    rng = random.Random(2)
    for _ in range(20):
        begin = rng.randrange(len(want))
        n = rng.randrange(min(5000, len(want) - begin) + 1)
        assert source.read(begin, n) == want[begin : begin + n]


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((), ()),
        ((5,), (1,)),
        ((3, 4), (4, 1)),
        ((1, 7), (900, 1)),
        ((3, 0), (1, 3)),
        ((1, 1), (9, 9)),
    ],
)
def test_what_is_row_major_is_read_in_place(shape: Any, strides: Any) -> None:
    inner = BufferSource(bytes(100))
    assert strided(inner, 4, shape, strides, 4, Strips()) == (inner, 4)


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (5, 5), (1, 6)),
        (4, (5, 5), (1, 5)),
        (0, (2,), (-1,)),
        (0, (26,), (1,)),
        (101, (0,), (1,)),
    ],
)
def test_elements_outside_the_storage_are_refused(offset: int, shape: Any, strides: Any) -> None:
    with pytest.raises(ParseError, match="leaves its storage"):
        strided(BufferSource(bytes(100)), offset, shape, strides, 4, Strips())


def test_column_major_strides() -> None:
    for shape in [(), (3,), (2, 3, 4), (5, 0, 2)]:
        array = np.zeros(shape, "u1", order="F")
        if array.size:
            assert column_major(shape) == array.strides


def test_reading_a_matrix_by_bands_takes_bounded_memory_and_few_passes() -> None:
    import tracemalloc

    class Counting(BufferSource):
        n_read = 0

        def read_into(self, offset: int, view: memoryview) -> None:
            self.n_read += len(view)
            super().read_into(offset, view)

    matrix = np.random.default_rng(1).integers(0, 2**32, (4096, 5000), "u4")
    inner = Counting(np.asfortranarray(matrix).T.reshape(-1).view("u1"))
    source, _ = strided(inner, 0, matrix.shape, column_major(matrix.shape), 4, Strips())
    want = matrix.reshape(-1).view("u1").data
    band = memoryview(bytearray(1 << 20))
    tracemalloc.start()
    try:
        for at in range(0, source.size, len(band)):
            n = min(len(band), source.size - at)
            source.read_into(at, band[:n])
            assert band[:n] == want[at : at + n]
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert inner.n_read <= 1.01 * source.size


@pytest.mark.parametrize(
    ("shape", "strides", "n_reads"),
    [
        ((40,), (3,), 1),
        ((600, 700), (1, 600), 1 + 600 * 700 // 8192),
        ((6, 8), (0, 1), 1),
        ((4096,), (8300,), 4096),  # each by itself
        ((4096,), (8000,), 1 + 4095 * 8000 // 8192),  # with what lies between
        ((3, 4), (200_000, 50_000), 12),
        ((3, 100), (200_000, 300), 3 * (1 + 99 * 300 // 8192)),
        ((3, 2, 4), (1, 50_000, 200_000), 8),
    ],
)
def test_how_many_reads_a_tensor_takes(shape: Any, strides: Any, n_reads: int) -> None:
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    source, _ = strided(BufferSource(bytes(last + 1)), 0, shape, strides, 1, Strips())
    assert isinstance(source, StridedSource)
    assert source.n_reads() == n_reads
