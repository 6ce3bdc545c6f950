"""Numbers turned round in place: numpy's byteswap."""

from __future__ import annotations

import numpy as np
import pytest

from anamnesis import _io


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize(("before", "behind"), [(0, 0), (1, 0), (0, 3), (5, 10)])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 16, 33, 1000])
def test_as_numpy(width: int, before: int, behind: int, n: int) -> None:
    """What else a record holds stays as it is."""
    record = np.dtype([("a", f"V{before}"), ("number", f"u{width}"), ("b", f"V{behind}")])
    assert record.itemsize == before + width + behind
    data = bytearray(np.random.default_rng(n).bytes(n * record.itemsize))
    expected = np.frombuffer(bytes(data), record).copy()
    expected["number"] = expected["number"].byteswap()
    _io.swap(data, before, record.itemsize, width)
    assert data == expected.tobytes()


@pytest.mark.parametrize("arguments", [(0, 4, 3), (3, 4, 2), (0, 0, 2), (0, 5, 4), (1 << 63, 4, 2)])
def test_what_does_not_fit(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="numbers must have 2, 4 or 8 bytes"):
        _io.swap(bytearray(12), *arguments)
