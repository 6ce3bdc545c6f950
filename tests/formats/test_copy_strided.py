"""Items in another order: what numpy makes of the same strides."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from anamnesis import _io

ITEMS = [1, 2, 4, 8, 16]


def copied(
    src: bytes, dst: bytearray, item: int, dims: list[tuple[int, int, int]], at: int
) -> bytes:
    """What numpy leaves in dst, whose other bytes stay as they are."""
    expected = np.array(dst)
    shape = [n for n, _, _ in dims] + [item]
    given = as_strided(np.frombuffer(src, np.uint8)[3:], shape, [step for _, step, _ in dims] + [1])
    as_strided(expected[at:], shape, [step for _, _, step in dims] + [1])[...] = given
    return expected.tobytes()


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("cols", [1, 3, 4, 7, 8, 9, 40, 129])
@pytest.mark.parametrize("rows", [1, 5, 8, 31, 32, 33, 64, 200])
def test_rows_into_columns(rows: int, cols: int, item: int) -> None:
    rng = np.random.default_rng(rows * cols)
    row, column = cols * item + 2, rows * item + 6
    src, dst = rng.bytes(3 + rows * row), bytearray(rng.bytes(5 + cols * column))
    dims = [(rows, row, item), (cols, item, column)]
    expected = copied(src, dst, item, dims, 5)
    _io.copy_strided(src, 3, dst, 5, item, dims)
    assert dst == expected


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_four_dimensions(order: tuple[int, ...], item: int) -> None:
    rng = np.random.default_rng(item)
    shape = (3, 2, 9, 10)
    src_steps = [int(np.prod(shape[i + 1 :])) * item for i in range(4)]
    sizes = [shape[i] for i in order]
    dst_steps = {i: int(np.prod(sizes[k + 1 :])) * item for k, i in enumerate(order)}
    dims = [(shape[i], src_steps[i], dst_steps[i]) for i in range(4)]
    src, dst = rng.bytes(3 + 540 * item), bytearray(rng.bytes(7 + 540 * item))
    expected = copied(src, dst, item, dims, 7)
    _io.copy_strided(src, 3, dst, 7, item, dims)
    assert dst == expected


def test_broadcast() -> None:
    dst = bytearray(12)
    _io.copy_strided(b"abc", 0, dst, 0, 1, [(4, 0, 3), (3, 1, 1)])
    assert dst == b"abcabcabcabc"


def test_nothing() -> None:
    _io.copy_strided(b"", 0, bytearray(), 0, 2, [(0, 0, 0), (5, 2, 0)])


@pytest.mark.parametrize(
    ("item", "at", "dims", "message"),
    [
        (3, (0, 0), [(2, 3, 3)], "items must have"),
        (2, (0, 0), [], "1 to 32 dimensions"),
        (2, (0, 0), [(1, 0, 0)] * 33, "1 to 32 dimensions"),
        (4, (1, 0), [(12, 4, 4)], "src does not hold"),
        (4, (0, 1), [(12, 4, 4)], "dst does not hold"),
        (4, (0, 1 << 63), [(1, 4, 4)], "dst does not hold"),
        (4, (0, 0), [(1 << 63, 1 << 63, 0)], "src does not hold"),
        (4, (0, 0), [(1 << 63, 0, 2)], "dst does not hold"),
    ],
)
def test_what_does_not_fit(
    item: int, at: tuple[int, int], dims: list[tuple[int, int, int]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _io.copy_strided(bytes(48), at[0], bytearray(48), at[1], item, dims)
