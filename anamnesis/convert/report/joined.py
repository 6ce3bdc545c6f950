"""What the conversions of a pipeline's models did, together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anamnesis.base.printable import abbreviate
from anamnesis.base.stored import Dropped
from anamnesis.convert.report.losses import Losses
from anamnesis.convert.report.report import Report

_COUNTED = ("encodings", "dtypes", "consumed")  # by what things are, not by their names


@dataclass(frozen=True, slots=True, repr=False)
class PipelineReport(Report):
    """What the conversion of a pipeline did.

    The fields of `Report` are of all its models together, names behind that of the folder.

    Attributes
    ----------
    models : dict of str to Report
        By folder.
    copied : tuple of str
        Files that go with the models as they are.
    notes : tuple of str
        Which files beside the models do not, and the like, in sentences; they are among the
        `warnings`.
    """

    models: dict[str, Report] = field(default_factory=dict)
    copied: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what is not said of single models, and that of each."""
        folders = tuple(f"{name}/" for name in self.models)
        left = [dropped for dropped in self.dropped if not dropped.name.startswith(folders)]
        return {
            "path": self.path,
            "models": {name: report.to_dict() for name, report in self.models.items()},
            "copied": self.copied,
            "dropped": tuple(map(asdict, left)),
        }


def joined(
    path: str,
    models: Mapping[str, Report],
    copied: Sequence[str],
    left_out: Sequence[Dropped],
    notes: Sequence[str] = (),
) -> PipelineReport:
    """Return one report of all of a pipeline's models, and of the files beside them."""
    # What else is to be known of them is in `notes`.
    first = next(iter(models.values()), Report(path, "BF16", 0, 0, 0, 0, 0, ()))
    told = {name: getattr(first, name) for name in Report.__dataclass_fields__}
    for name in told.keys() - {"path", "dtype", "format", "encoding"} if models else ():
        told[name] = _joined(name, {folder: getattr(one, name) for folder, one in models.items()})
    by_reason: dict[str, list[str]] = {}
    for left in left_out:
        by_reason.setdefault(left.reason, []).append(left.name)
    said = [f"left out ({why}): {abbreviate(names)}" for why, names in by_reason.items()]
    said += notes
    told |= {
        "path": path,
        "warnings": (*said, *told["warnings"]),
        "dropped": (*told["dropped"], *left_out),
    }
    return PipelineReport(**told, models=dict(models), copied=tuple(copied), notes=tuple(said))


def _joined(name: str, values: Mapping[str, Any]) -> Any:
    """Return a field of all reports: sums of numbers, and all names, each behind its folder's."""
    first = next(iter(values.values()), None)
    if isinstance(first, (int, float)):
        return sum(values.values())
    if isinstance(first, tuple):
        below = ": " if name == "warnings" else "/"
        return tuple(
            replace(item, name=f"{folder}/{item.name}")
            if isinstance(item, Dropped)
            else f"{folder}{below}{item}"
            for folder, items in values.items()
            for item in items
        )
    if isinstance(first, dict) and name in _COUNTED:
        return dict(sum((Counter(value) for value in values.values()), Counter()).most_common())
    if isinstance(first, dict):
        return {f"{f}/{key}": told for f, value in values.items() for key, told in value.items()}
    weights = {
        f"{folder}/{key}": told
        for folder, loss in values.items()
        if isinstance(loss, Losses)
        for key, told in loss.weights.items()
    }
    return Losses(weights) if weights else None
