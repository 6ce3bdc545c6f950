"""Sums of doubles that do not depend on their order."""

from __future__ import annotations

import math
from collections.abc import Iterable


def exact_sum(values: Iterable[float]) -> float:
    """Return a sum that is rounded once; infinity where it is too large for a double."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.inf


class ExactSum:
    """A sum of doubles that is rounded once, so that their order does not matter.

    Shewchuk's: the partial sums do not overlap, and are exact together.
    """

    __slots__ = ("_beyond", "_partials")

    def __init__(self) -> None:
        self._partials: list[float] = []
        self._beyond = 0.0  # what is infinite or no number

    def add(self, value: float) -> None:
        """Add a value."""
        if not math.isfinite(value):
            self._beyond += value
            return
        partials = self._partials
        kept = 0
        for other in partials:
            large, small = (value, other) if abs(value) >= abs(other) else (other, value)
            value = large + small
            if math.isinf(value):
                partials.clear()
                self._beyond += value
                return
            rest = small - (value - large)
            if rest:
                partials[kept] = rest
                kept += 1
        partials[kept:] = [value]

    @property
    def value(self) -> float:
        """The sum."""
        return math.fsum(self._partials) + self._beyond
