"""What `amn forget` and `amn convert` say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from anamnesis.base.printable import numbered, printable, shortened
from anamnesis.cli.errors import in_options
from anamnesis.cli.narration import Voice, hanging, parsed_lines

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.convert.report.inspection import Inspection
    from anamnesis.convert.report.report import Losses, Outcome, Report, WeightLoss

_LABELS = {"forget": "Forgetting...", "convert": "Converting..."}
_DONE = {"forget": "forgotten", "convert": "converted"}
_N_WORST = 5
_COLUMNS = 80  # of a terminal; names that leave too few for the figures get lines of their own
_MOVED = "repacked as {}: the same codes, no loss"
_CAST = "cast to {}: other codes or scales, the same values, no loss"
_UNCHANGED = "unchanged, in {} already"


class EncodingVoice(Voice):
    """What is said where weights may be encoded."""

    def __init__(
        self,
        verb: str,
        dtype: DTypeName,
        *,
        worst: bool,
        verified: bool,
        same_as: str | None,
    ) -> None:
        super().__init__(dtype, asked=False)
        self.done = _DONE[verb]
        self._verb = verb
        self._worst = worst
        self._verified = verified
        self._same_as = same_as

    def parsed(self, inspection: Inspection) -> Iterator[str]:
        return found_lines(inspection)

    def label(self, inspection: Inspection) -> str:
        return _LABELS[self._verb]

    def label_done(self, label: str, report: Report) -> str:
        n = report.n_encoded if self._verb == "forget" else report.n_out
        return f"{label} {numbered(n, 'tensor')}"

    def account(self, report: Report, stored: Collection[str]) -> Iterator[str]:
        if report.loss is not None and report.loss.weights:
            yield from loss_lines(report.loss, _N_WORST if self._worst else 1)
        if report.edited:
            yield f"Adapters added to {numbered(len(report.edited), 'weight')}"
        if self._verified:
            yield "Verified: read back, and equal to a second encoding"
        if self._same_as is not None:
            yield f"Same as {printable(self._same_as)}: every tensor, byte for byte"
        yield from super().account(report, stored)
        for encoding, n in report.encodings.items():
            yield f"  encoded {numbered(n, 'weight')} as {printable(encoding)}"
        yield from outcome_lines(report)


def found_lines(inspection: Inspection) -> Iterator[str]:
    """Yield what was found; of a model that is not quantised, its dtypes."""
    dtypes = " and ".join(map(printable, inspection.passthrough)) or "none"
    return parsed_lines(inspection, dtypes, width=len("Forgetting... "))


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """Yield how many weights are moved, quantised anew, left plain, cast or kept, and why."""
    own, cast = set(outcome.unchanged), set(outcome.recast)
    ways = [
        (_UNCHANGED if name in own else _CAST if name in cast else _MOVED, encoding)
        for name, encoding in outcome.repacked.items()
    ]
    for (way, encoding), n in Counter(ways).most_common():
        yield from hanging(f"{numbered(n, 'weight')} {way.format(printable(encoding))}")
    if outcome.inexact:
        n = len(outcome.inexact)
        yield f"  {n:,} of them equal in BF16 and F16; F32 may differ in its last bits"
    why = {name: f"{said} has no such codes to move" for name, said in outcome.requantised.items()}
    for reason, n in Counter({**why, **outcome.unmovable}.values()).most_common():
        yield from hanging(f"{numbered(n, 'weight')} re-quantised: {printable(reason)}")
    if why:
        yield "  the loss is against what they decode to"
    for reason, n in Counter(outcome.plain.values()).most_common():
        yield from hanging(f"left {n:,} plain: {printable(in_options(reason))}")
    for (old, new), n in Counter(outcome.cast.values()).most_common():
        yield f"  cast {numbered(n, 'tensor')} from {old} to {new}"
    if outcome.kept:
        types = ", ".join(type for type, _ in Counter(outcome.kept.values()).most_common())
        n_kept = numbered(len(outcome.kept), "weight")
        yield from hanging(f"kept {n_kept} as stored ({types}); gguf-bf16 decodes them")


def loss_lines(losses: Losses, n_worst: int) -> Iterator[str]:
    """Yield what encoding took: of all weights together, and of those that lost the most.

    `docs/command-line.md` says what Lethe distance is.
    """
    total = losses.total
    yield f"Lethe distance: {total}"
    if not total.squared:
        return
    if n_worst > 1:
        yield from _worst_lines(losses.worst(n_worst))
    elif len(losses.weights) > 1:
        ((name, loss),) = losses.worst()
        figures, shown = f"  worst weight: {_decibels(loss)}", printable(name)
        fits = len(figures) + 2 + len(shown) <= _COLUMNS
        yield from [f"{figures}, {shown}"] if fits else [figures, f"    {shown}"]


def _worst_lines(worst: Sequence[tuple[str, WeightLoss]]) -> Iterator[str]:
    """Yield the weights whose errors are largest beside their values."""
    rows = [
        (
            shortened(name),
            f"SNR {_decibels(loss)}  mean {loss.mean:.2g}  max {loss.largest:.2g}",
        )
        for name, loss in worst
    ]
    width = max(len(name) for name, _ in rows)
    fits = all(2 + width + 2 + len(figures) <= _COLUMNS for _, figures in rows)
    for name, figures in rows:
        if fits:
            yield f"  {name:<{width}}  {figures}"
        else:
            yield f"  {name}"
            yield f"    {figures}"


def _decibels(loss: WeightLoss) -> str:
    return "-" if loss.snr_db is None else f"{loss.snr_db:.1f} dB"
