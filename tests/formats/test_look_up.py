"""Pairs of bytes that lines of a table have for bytes; what does not go together is refused."""

from __future__ import annotations

import numpy as np
import pytest

from anamnesis import _io

TABLE = np.random.default_rng(1).integers(0, 1 << 16, (5, 256), np.uint16)


@pytest.mark.parametrize(("groups", "size"), [(0, 0), (1, 1), (1, 300), (7, 16), (300, 8), (3, 0)])
def test_each_group_has_its_line(groups: int, size: int) -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (groups, size), np.uint8)
    lines = rng.integers(0, 5, groups, np.uint8)
    found = np.zeros((groups, size), np.uint16)
    _io.look_up_pairs(codes.data, lines.data, TABLE.data, found.data)
    assert found.tobytes() == TABLE[lines[:, None], codes].tobytes()


@pytest.mark.parametrize(
    ("codes", "lines", "table", "dst"),
    [
        (8, b"\0\1", TABLE.tobytes(), 15),
        (8, b"\0\1", TABLE.tobytes(), 17),
        (8, b"\0\1", TABLE.tobytes(), 18),
        (8, b"\0\1\2", TABLE.tobytes(), 16),
        (8, b"", TABLE.tobytes(), 16),
        (8, b"\0\5", TABLE.tobytes(), 16),
        (8, b"\0\xff", TABLE.tobytes(), 16),
        (8, b"\0\0", b"", 16),
        (8, b"\0\0", TABLE.tobytes()[:-1], 16),
    ],
)
def test_what_does_not_go_together(codes: int, lines: bytes, table: bytes, dst: int) -> None:
    with pytest.raises(ValueError, match="must"):
        _io.look_up_pairs(bytes(codes), lines, table, bytearray(dst))
