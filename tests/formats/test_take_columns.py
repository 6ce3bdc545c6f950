"""Some columns in any order, in C, beside numpy's own indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anamnesis import _io


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 64), (7, 1000), (0, 3)])
@pytest.mark.parametrize("n", [None, 1, 2, 70])  # columns of the result
def test_beside_numpy(
    shape: tuple[int, int], n: int | None, dtype: Any, rng: np.random.Generator
) -> None:
    values = rng.integers(0, 1 << 16, shape).astype(dtype)
    order = rng.integers(0, shape[1], n or shape[1]).astype("<u4")  # any columns, also twice
    want = values[:, order].tobytes()
    raw = bytearray(len(want) + 1)
    into = memoryview(raw)[1:]
    _io.take_columns(values.tobytes(), shape[1], values.itemsize, order.tobytes(), into)
    assert raw[1:] == want


@pytest.mark.parametrize(
    ("src", "cols", "item", "order", "dst", "why"),
    [
        (8, 2, 2, [0, 2], 8, "a column that there is not"),
        (8, 2, 2, [0, -1], 8, "a column that there is not"),
        (8, 2, 2, [2], 4, "a column that there is not"),
        (0, 0, 2, [0], 4, "a column that there is not"),
        (8, 2, 3, [0, 1], 8, "dst must be whole rows"),
        (6, 2, 2, [0, 1], 6, "dst must be whole rows"),
        (8, 2, 2, [], 8, "dst must be whole rows"),
        (6, 2, 2, [0, 1], 8, "src must be as many rows"),
        (7, 2, 2, [0, 1], 8, "src must be as many rows"),
        (8, 3, 2, [0, 1], 8, "src must be as many rows"),
        (8, 0, 2, [0, 1], 8, "src must be as many rows"),
        (8, (1 << 63) + 2, 2, [0, 1], 8, "src must be as many rows"),
        (8, 2, 2, [0, 1], 0, "src must be as many rows"),
    ],
)
def test_what_does_not_go_together(
    src: int, cols: int, item: int, order: list[int], dst: int, why: str
) -> None:
    out = bytearray(b"x" * dst)
    with pytest.raises(ValueError, match=why):
        _io.take_columns(bytes(src), cols, item, np.array(order, "<i4").tobytes(), out)
    assert out == b"x" * dst
