"""One model looked at: its weights, and their numbers if they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anamnesis.base.limits import ParseLimits
from anamnesis.convert.check.check import check
from anamnesis.convert.check.findings import Finding
from anamnesis.convert.check.values import Seen, findings_of, look_at
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.overview.numbers import Numbers, numbers_of
from anamnesis.convert.report.inspection import Inspection
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.weight import Weight

__all__ = ["Overview"]


@dataclass(frozen=True, slots=True, repr=False)
class Overview:
    """What a model is made of.

    Attributes
    ----------
    path : str
    inspection : Inspection
    weights : tuple of Weight
    findings : tuple of Finding
        What a check of its headers found, and of its values if they were read.
    numbers : mapping of str to Numbers or None
        By encoding in a word; None if values were not read.
    zeros : mapping of str to (int, int)
        By encoding: values that are zero, and all; empty if values were not read.
    """

    path: str
    inspection: Inspection
    weights: tuple[Weight, ...]
    findings: tuple[Finding, ...]
    numbers: Mapping[str, Numbers] | None
    zeros: Mapping[str, tuple[int, int]]

    def __repr__(self) -> str:
        return f"<anamnesis.Overview: {self.path}, {len(self.weights):,} weights>"

    def to_html(self) -> str:
        """Return a page of HTML that needs nothing else: no script, light and dark."""
        from anamnesis.convert.overview.page import overview_page

        return overview_page(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from anamnesis.convert.overview.page import overview_fragment

        return overview_fragment(self)


def overview(
    model: Input, inspection: Inspection, limits: ParseLimits, how: How, *, values: bool
) -> Overview:
    """Look at a model: at its headers, and with `values` at all of its numbers."""
    weights = tuple(model.ledger.weights.values())
    findings = check(model, limits, how, values=False).findings
    if not values:
        return Overview(model.path, inspection, weights, findings, None, {})
    seen = look_at(weights, how)
    findings += tuple(findings_of(weights, seen))
    zeros = _zeros(weights, seen)
    return Overview(model.path, inspection, weights, findings, numbers_of(weights), zeros)


def _zeros(weights: tuple[Weight, ...], seen: Mapping[str, Seen]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for weight in weights:
        if weight.name in seen:
            zeros, n = found.get(weight.family, (0, 0))
            one = seen[weight.name]
            found[weight.family] = zeros + one.zeros, n + one.n
    return found
