"""Columns in another order, in C, beside numpy's own indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anamnesis import _io


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 64), (7, 1000), (0, 3)])
def test_beside_numpy(shape: tuple[int, int], dtype: Any, rng: np.random.Generator) -> None:
    values = rng.integers(0, 1 << 16, shape).astype(dtype)
    order = rng.integers(0, shape[1], shape[1]).astype("<u4")  # any columns, also twice
    raw = bytearray(values.nbytes + 1)
    _io.take_columns(values.tobytes(), values.itemsize, order.tobytes(), memoryview(raw)[1:])
    assert raw[1:] == values[:, order].tobytes()


@pytest.mark.parametrize(
    ("src", "item", "order", "dst", "why"),
    [
        (bytes(8), 2, [0, 2], 8, "a column that there is not"),
        (bytes(8), 2, [0, -1], 8, "a column that there is not"),
        (bytes(8), 3, [0, 1], 8, "do not go together"),
        (bytes(6), 2, [0, 1], 8, "do not go together"),
        (bytes(6), 2, [0, 1], 6, "whole rows"),
        (bytes(8), 2, [], 8, "whole rows"),
    ],
)
def test_what_does_not_go_together(
    src: bytes, item: int, order: list[int], dst: int, why: str
) -> None:
    out = bytearray(b"x" * dst)
    with pytest.raises(ValueError, match=why):
        _io.take_columns(src, item, np.array(order, "<i4").tobytes(), out)
    assert out == b"x" * dst
