"""The 16 levels of W4A8: the usual ones, or levels fitted to heavy tails.

`_decide_codebook` of comfy-kitchen looks at rows that are spread over a weight, and at some half a
million of their values, which torch's generator picks. It fits levels where their excess kurtosis
is above -0.1. Levels that are fitted differ from its own in their last bits: there, means depend on
the number of threads, and which rows are looked at on the processor. Here, neither does.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import anamnesis._core as _core
from anamnesis.base.lazy import NDArray, np
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Survey

GROUP = _core.W4A8_SIZE  # columns with a scale of their own
USUAL = (
    *(-0.980602, -0.794529, -0.638165, -0.500986, -0.377321, -0.263187, -0.155210, -0.050720),
    *(0.052541, 0.156985, 0.265284, 0.379533, 0.502636, 0.638953, 0.794876, 0.980671),
)
_HEAVIEST = -0.1  # excess kurtosis of values that have the usual levels
_SPREAD = 1 << 22  # values of rows that are looked at
_PICKED = 1 << 19
_AT_ONCE = 1 << 16  # values that are rotated
_FITTED, _ROUNDS = 300_000, 25
_LEAST = 1e-8


class TailSurvey(Survey):
    """Finds the levels of a weight by a sample of what they stand for."""

    def __init__(
        self, rows: int, cols: int, rotate: Callable[[memoryview, int], memoryview]
    ) -> None:
        self._rows, self._cols = _spread_rows(rows, max(1, _SPREAD // cols)), cols
        self._rotate = rotate
        self._n = len(self._rows) * cols
        self._sample = np.empty(min(self._n, _PICKED), np.float32)
        if self._n > _PICKED:  # which values are picked, in rising order, and their places
            picked = _picked(self._n, _PICKED)
            self._places = np.argsort(picked).astype(np.uint32)
            self._picked = picked[self._places]

    def see(self, values: memoryview, band: Band, level: int) -> None:
        start, stop = band.start // self._cols, band.stop // self._cols
        first, last = np.searchsorted(self._rows, (start, stop))
        seen = np.frombuffer(values, np.float32).reshape(-1, self._cols)
        step = max(1, _AT_ONCE // self._cols)
        for at in range(first, last, step):
            rows = seen[self._rows[at : min(last, at + step)] - start]
            rotated = self._rotate(rows.reshape(-1).view(np.uint8).data, level)
            groups = np.frombuffer(rotated, np.float32).reshape(-1, GROUP)
            with np.errstate(all="ignore"):
                largest = np.abs(groups).max(1, keepdims=True)
                levels = (groups / np.maximum(largest, np.float32(_LEAST))).reshape(-1)
            # Their places among all that are looked at, of which some are kept.
            begin, end = at * self._cols, at * self._cols + levels.size
            if self._n <= _PICKED:
                self._sample[begin:end] = levels
                continue
            own = slice(*np.searchsorted(self._picked, np.array((begin, end), np.uint32)))
            self._sample[self._places[own]] = levels[self._picked[own] - np.uint32(begin)]

    def found(self) -> bytes:
        if not _excess_kurtosis(self._sample) > _HEAVIEST:
            return usual().tobytes()
        if _FITTED < self._n <= _PICKED:
            return _fitted(self._sample[_picked(self._n, _FITTED)]).tobytes()
        return _fitted(self._sample[:_FITTED]).tobytes()


def _excess_kurtosis(sample: NDArray[np.float32]) -> float:
    """Return it by the deviation over n - 1, which is torch's."""
    mean, squares, fourths = float(sample.mean(dtype=np.float64)), 0.0, 0.0
    with np.errstate(all="ignore"):
        for at in range(0, sample.size, _AT_ONCE):
            square = np.square(sample[at : at + _AT_ONCE].astype(np.float64) - mean)
            squares += float(square.sum())
            fourths += float(np.square(square, square).sum())
        deviation = (squares / (sample.size - 1)) ** 0.5 + 1e-9
        return fourths / sample.size / float(deviation) ** 4 - 3


def usual() -> NDArray[np.float32]:
    """Return comfy-kitchen's own levels."""
    return np.array(USUAL, np.float32)


def _spread_rows(rows: int, most: int) -> NDArray[np.int64]:
    """Return which rows are looked at: at most so many, at equal distances."""
    if rows <= most:
        return np.arange(rows)
    return np.linspace(0, rows - 1, most).astype(np.int64)


def _picked(n: int, count: int) -> NDArray[np.uint32]:
    """Return which of `n` values torch's generator picks, seeded with 0."""
    # Python's own is the same Mersenne twister, but for its seeds; numpy's takes 7 MB to import.
    state = [0]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    twister = Random()
    twister.setstate((3, (*state, len(state)), None))
    return np.frombuffer(twister.randbytes(4 * count), np.uint32) % np.uint32(n)


def _fitted(sample: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return levels with the least squared error: Lloyd's and Max's method."""
    count = len(USUAL)
    levels: NDArray[Any] = np.quantile(sample, np.linspace(0, 1, count)).astype(np.float32)
    for _ in range(_ROUNDS):
        own = np.searchsorted((levels[1:] + levels[:-1]) / 2, sample)
        n = np.bincount(own, minlength=count)
        means = np.bincount(own, sample, count) / np.maximum(n, 1)
        levels = np.where(n > 0, means, levels).astype(np.float32)
    return levels
