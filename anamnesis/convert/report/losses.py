"""What encoding loses of weights: mean and largest errors, and the SNR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WeightLoss:
    """What encoding took of a weight, or of several, in float32.

    Attributes
    ----------
    n : int
        Values that were measured.
    absolute, largest : float
        The sum and the largest of the absolute errors.
    squared, power : float
        The sums of the squared errors and of the squared values.
    """

    n: int
    absolute: float
    largest: float
    squared: float
    power: float

    @property
    def is_finite(self) -> bool:
        """Whether all values come back as numbers."""
        return math.isfinite(self.squared)

    @property
    def mean(self) -> float:
        return self.absolute / self.n if self.n else 0.0

    @property
    def nmse(self) -> float | None:
        """The squared error by the squared values; None where all values are zero."""
        return self.squared / self.power if self.power else None

    @property
    def snr_db(self) -> float | None:
        """The ratio of signal to noise in decibels; None where one of them is zero."""
        ratio = self.power / self.squared if self.squared else 0.0
        return 10 * math.log10(ratio) if ratio > 0 else None

    def __str__(self) -> str:
        """Return the loss for people: the ratio first, by which encodings can be compared."""
        if not self.squared:
            return "none, every value comes back"
        ratio = self.snr_db
        snr = "" if ratio is None or math.isnan(ratio) else f"SNR {ratio:.1f} dB, "
        return f"{snr}mean error {self.mean:.2g}, largest {self.largest:.2g}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has: what is no finite number is None."""
        figures = {
            "mean": self.mean,
            "largest": self.largest,
            "nmse": self.nmse,
            "snr_db": self.snr_db,
        }
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in figures.items()}
        return {"n": self.n, **finite}


@dataclass(frozen=True, slots=True)
class Losses:
    """What an encoding took of a model.

    Attributes
    ----------
    weights : mapping of str to WeightLoss
        Of those that were encoded with a loss, in the order of the output.
    """

    weights: Mapping[str, WeightLoss]

    @property
    def total(self) -> WeightLoss:
        each = list(self.weights.values())
        largest = [loss.largest for loss in each]
        return WeightLoss(
            sum(loss.n for loss in each),
            sum(loss.absolute for loss in each),
            math.nan if any(map(math.isnan, largest)) else max(largest, default=0.0),
            sum(loss.squared for loss in each),
            sum(loss.power for loss in each),
        )

    def worst(self, n: int = 1) -> list[tuple[str, WeightLoss]]:
        """Return the weights, and what they lost, whose errors are largest beside their values.

        Those come first of which values come back as infinities or NaNs.
        """

        def noise(item: tuple[str, WeightLoss]) -> float:
            loss = item[1]
            return (loss.nmse or 0.0) if loss.is_finite else math.inf

        return sorted(self.weights.items(), key=noise, reverse=True)[:n]

    @property
    def not_finite(self) -> list[str]:
        """The weights of which values come back as infinities or NaNs."""
        return [name for name, loss in self.weights.items() if not loss.is_finite]

    @property
    def erased(self) -> list[str]:
        """The weights that come back no nearer than zeros."""
        return [
            name for name, loss in self.weights.items() if 0 < loss.power <= loss.squared < math.inf
        ]

    def to_dict(self) -> dict[str, Any]:
        weights = {name: loss.to_dict() for name, loss in self.weights.items()}
        return {"total": self.total.to_dict(), "weights": weights}
