"""Rows into columns of a larger buffer: numpy's transpose."""

from __future__ import annotations

import numpy as np
import pytest

from anamnesis import _io


@pytest.mark.parametrize("item", [2, 4])
@pytest.mark.parametrize("cols", [1, 3, 4, 7, 8, 9, 40, 129])
@pytest.mark.parametrize("rows", [1, 5, 8, 31, 32, 33, 64, 200])
def test_as_numpy(rows: int, cols: int, item: int, rng: np.random.Generator) -> None:
    """The rest of the buffer stays as it is."""
    src = rng.integers(0, 256, (rows, cols, item), np.uint8)
    stride, offset = rows * item + 6, 5
    dst = bytearray(rng.bytes(offset + cols * stride))
    expected = np.array(dst)
    columns = expected[offset:].reshape(cols, stride)[:, : rows * item]
    columns[:] = src.transpose(1, 0, 2).reshape(cols, rows * item)
    _io.transpose(src.tobytes(), rows, cols, item, dst, offset, stride)
    assert dst == expected.tobytes()


def test_nothing() -> None:
    _io.transpose(b"", 0, 5, 2, bytearray(), 0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((6, 2, 3, 6, 0), "items must have 2 or 4 bytes"),
        ((6, 2, 2, 6, 0), "src must be as long"),
        ((6, 4, 2, 11, 0), "dst does not hold"),
        ((6, 4, 2, 12, 1), "dst does not hold"),
        ((6, 4, 2, 12, 1 << 63), "dst does not hold"),
    ],
)
def test_what_does_not_fit(arguments: tuple[int, ...], message: str) -> None:
    rows, cols, item, stride, offset = arguments
    with pytest.raises(ValueError, match=message):
        _io.transpose(bytes(48), rows, cols, item, bytearray(48), offset, stride)
