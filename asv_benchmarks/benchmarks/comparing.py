"""Comparing two arrays, and looking through words, beside a copy of what they read.

NumPy's ways to the same, and decoding both arrays, which comes before, are beside them, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamnesis import _core

from .figures import Work, figure, times_another
from .kernels import COLS, LEVELS, MEASURED, NUMPY, ROWS, _Kernel, convert_call, level_id

WORDS = ("F32", "F16", "BF16")  # what NumPy knows, too


def numbers(dtype: str) -> NDArray[Any]:
    """Return plausible rows of a weight, among which there is no zero."""
    values = np.random.default_rng(1).standard_normal((ROWS, COLS), np.float32) / 50
    return (np.abs(values) + np.float32(0.001)).astype(NUMPY[dtype])


def compare_call(source: str, level: str) -> tuple[Work, int]:
    """Return a call of compare, and the bytes that a copy of what it reads moves."""
    a = numbers(source)
    b = (a.astype(np.float32) * np.float32(1.01)).astype(a.dtype)
    parts = a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)
    how = level_id(level), _core.SOURCES[source]
    return lambda: _core.compare(*parts, *how), 2 * (a.nbytes + b.nbytes)


def check_call(dtype: str, level: str) -> tuple[Work, int]:
    """Return a call of check_values, and the bytes that a copy of what it reads moves."""
    words = numbers(dtype).reshape(-1).view(np.uint8)
    return lambda: _core.check_values(dtype, words, COLS, level_id(level)), 2 * words.size


class Compare(_Kernel, title="compare"):
    """All pairs differ."""

    params = (MEASURED["amax"], LEVELS)
    param_names = ("source", "level")

    def setup(self, source: str, level: str) -> None:
        self.take(lambda: compare_call(source, level), ROWS * COLS)

    @figure("compare: time, decoding both = 1", "times the decoders' time")
    def track_beside_decoding(self, source: str, level: str) -> float:
        """Both to float32."""
        decode, _ = convert_call(source, "F32", level)
        return times_another(self.work, lambda: [decode() for _ in range(2)])

    @figure("compare: NumPy's time, ours = 1", "times our time")
    def track_peer_numpy(self, source: str, _level: str) -> float:
        """In float64, as sums of float32 would lose too much."""
        a = numbers(source)
        b = (a.astype(np.float32) * np.float32(1.01)).astype(a.dtype)

        def by_numpy() -> object:
            x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
            error = x - y
            return np.abs(error).argmax(), error @ error, x @ x, y @ y, x @ y

        return times_another(by_numpy, self.work, 3)


class Check(_Kernel, title="check of words"):
    """Neither infinities nor NaNs."""

    params = (WORDS, LEVELS)
    param_names = ("dtype", "level")

    def setup(self, dtype: str, level: str) -> None:
        self.take(lambda: check_call(dtype, level), ROWS * COLS)

    @figure("check of words: NumPy's time, ours = 1", "times our time")
    def track_peer_numpy(self, dtype: str, _level: str) -> float:
        """A part of it: NaNs, infinities and rows of zeros."""
        values = numbers(dtype)

        def by_numpy() -> object:
            return np.isnan(values).sum(), np.isinf(values).sum(), values.any(axis=1).all()

        return times_another(by_numpy, self.work, 3)
