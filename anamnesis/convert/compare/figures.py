"""How far the values of two weights lie apart, in figures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anamnesis.base.exact_sum import exact_sum
from anamnesis.convert.report.losses import WeightLoss

NOT_QUALITY = "This is weight error: it does not measure the quality of what a model answers."


@dataclass(frozen=True, slots=True)
class Difference:
    """How far the values of two weights lie apart, in float32.

    Attributes
    ----------
    loss : WeightLoss
        Of the second weight against the first: mean and largest difference, NMSE, SNR.
    differing : int
        Values of other bits: -0 differs from 0, and a float32 NaN from one with another payload;
        all NaNs of halves are one.
    not_finite : int
        Pairs of values of which one is infinite or no number; no sum counts them.
    power_b, product : float
        The sums of the second weight's squares, and of the products.
    first : tuple of int or None
        Where the first values lie that differ.
    """

    loss: WeightLoss
    differing: int
    not_finite: int
    power_b: float
    product: float
    first: tuple[int, ...] | None = None

    @property
    def cosine(self) -> float | None:
        """The cosine of the angle between both; None if one of them is zero, or too large."""
        scale = math.sqrt(self.loss.power) * math.sqrt(self.power_b)
        return max(-1.0, min(1.0, self.product / scale)) if 0 < scale < math.inf else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
        return {
            **self.loss.to_dict(),
            "differing": self.differing,
            "not_finite": self.not_finite,
            "cosine": self.cosine,
            "first": self.first,
        }


def together(differences: Iterable[Difference | None]) -> Difference:
    """Return the difference of several weights together; None is of one without any."""
    each = [one for one in differences if one is not None]
    loss = WeightLoss(
        sum(one.loss.n for one in each),
        exact_sum(one.loss.absolute for one in each),
        max((one.loss.largest for one in each), default=0.0),
        exact_sum(one.loss.squared for one in each),
        exact_sum(one.loss.power for one in each),
    )
    return Difference(
        loss,
        sum(one.differing for one in each),
        sum(one.not_finite for one in each),
        exact_sum(one.power_b for one in each),
        exact_sum(one.product for one in each),
    )
