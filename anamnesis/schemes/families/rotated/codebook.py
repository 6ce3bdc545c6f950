"""The 16 levels of W4A8: the usual ones, or levels fitted to heavy tails.

`_decide_codebook` of comfy-kitchen looks at rows that are spread over a weight, and at some half a
million of their values, which torch's generator picks. It fits levels where their excess kurtosis
is above -0.1. Levels that are fitted differ from its own in their last bits: there, means depend on
the number of threads, and which rows are looked at on the processor. Here, neither does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
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

    def see(self, values: memoryview, band: Band, level: int) -> None:
        start, stop = band.start // self._cols, band.stop // self._cols
        first, last = np.searchsorted(self._rows, (start, stop))
        if first == last:
            return
        seen = np.frombuffer(values, np.float32).reshape(-1, self._cols)
        rows = seen[self._rows[first:last] - start].reshape(-1)
        groups = np.frombuffer(self._rotate(rows.view(np.uint8).data, level), np.float32)
        groups = groups.reshape(-1, GROUP)
        with np.errstate(all="ignore"):
            largest = np.abs(groups).max(1, keepdims=True)
            levels = (groups / np.maximum(largest, np.float32(_LEAST))).reshape(-1)
        begin, end = first * self._cols, last * self._cols
        if self._n <= _PICKED:
            self._sample[begin:end] = levels
            return
        order, picked = _in_order(self._n, _PICKED)
        own = slice(*np.searchsorted(picked, (begin, end)))
        self._sample[order[own]] = levels[picked[own] - begin]

    def found(self) -> bytes:
        sample = self._sample.astype(np.float64)
        sample -= sample.mean()
        with np.errstate(all="ignore"):
            kurtosis = np.mean((sample / (sample.std(ddof=1) + 1e-9)) ** 4) - 3
        if not kurtosis > _HEAVIEST:
            return usual().tobytes()
        if _FITTED < self._n <= _PICKED:
            return _fitted(self._sample[_picked(self._n, _FITTED)]).tobytes()
        return _fitted(self._sample[:_FITTED]).tobytes()


def usual() -> NDArray[np.float32]:
    """Return comfy-kitchen's own levels."""
    return np.array(USUAL, np.float32)


def _spread_rows(rows: int, most: int) -> NDArray[np.int64]:
    """Return which rows are looked at: at most so many, at equal distances."""
    if rows <= most:
        return np.arange(rows)
    return np.linspace(0, rows - 1, most).astype(np.int64)


@lru_cache(maxsize=2)
def _in_order(n: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return where picked values stand in the sample, and which they are, in rising order."""
    picked = _picked(n, count)
    order = np.argsort(picked, kind="stable")
    return order, picked[order]


def _picked(n: int, count: int) -> NDArray[np.int64]:
    """Return which of `n` values torch's generator picks, seeded with 0."""
    return np.random.RandomState(0).randint(0, 1 << 32, count, np.uint32).astype(np.int64) % n


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
