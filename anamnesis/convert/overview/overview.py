"""One model looked at: its weights, and their numbers if they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from anamnesis.base.limits import ParseLimits
from anamnesis.convert.check.check import check
from anamnesis.convert.check.findings import Finding
from anamnesis.convert.check.values import ValueCounts, findings_of, look_at
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.overview.numbers import Numbers, numbers_of
from anamnesis.convert.report.inspection import Inspection
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.weight import Weight


class Counted(NamedTuple):
    """What the values of a model come to, by encoding in a word."""

    numbers: Mapping[str, Numbers]
    zeros: Mapping[str, tuple[int, int]]  # values that are zero, and all


@dataclass(frozen=True, slots=True)
class Overview:
    """What a model is made of.

    Attributes
    ----------
    path : str
    inspection : Inspection
    weights : tuple of Weight
    findings : tuple of Finding
        What a check of its headers found, and of its values if they were read.
    counted : Counted or None
        None if values were not read.
    """

    path: str
    inspection: Inspection
    weights: tuple[Weight, ...]
    findings: tuple[Finding, ...]
    counted: Counted | None = None


def overview(
    model: Input, inspection: Inspection, limits: ParseLimits, how: How, *, values: bool
) -> Overview:
    """Look at a model: at its headers, and with `values` at all of its numbers."""
    weights = tuple(model.ledger.weights.values())
    findings = check(model, limits, how, values=False).findings
    if not values:
        return Overview(model.path, inspection, weights, findings)
    seen = look_at(weights, how)
    findings += tuple(findings_of(weights, seen))
    return Overview(model.path, inspection, weights, findings, _counted(weights, seen, how))


def counted(model: Input, how: How) -> Counted:
    """Return what the values of a model come to."""
    weights = tuple(model.ledger.weights.values())
    return _counted(weights, look_at(weights, how), how)


def _counted(weights: tuple[Weight, ...], seen: Mapping[str, ValueCounts], how: How) -> Counted:
    zeros: dict[str, tuple[int, int]] = {}
    for weight in weights:
        if weight.name in seen:
            n_zero, n = zeros.get(weight.family, (0, 0))
            one = seen[weight.name]
            zeros[weight.family] = n_zero + one.zeros, n + one.n
    return Counted(numbers_of(weights, how), zeros)
