"""What commands that write models say of it, in words."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.printable import abbreviate, numbered, printable
from anamnesis.base.sizes import format_size
from anamnesis.checkpoint.pipelines import is_read
from anamnesis.cli.errors import in_options
from anamnesis.cli.progress import bar, metered
from anamnesis.convert.report.meter import format_duration

if TYPE_CHECKING:
    from anamnesis.base.stored import Dropped
    from anamnesis.cli.writing import Task
    from anamnesis.convert.report.inspection import Inspection
    from anamnesis.convert.report.joined import PipelineReport
    from anamnesis.convert.report.report import Outcome, Report
    from anamnesis.model import Model

_BAR_WIDTH = 20
_WIDTH = len("Recalling... ")


class Narrator:
    """Runs conversions and tells of them: one at length, many in a line each."""

    def __init__(self, stream: TextIO, task: Task, *, silent: bool, brief: bool) -> None:
        self._stream = stream
        self._task = task
        self._silent = silent
        self._brief = brief
        self._kept = ""
        self._n_skipped = 0
        self._told: set[str] = set()

    def convert(self, model: Model, path: str, out: Any, write: Callable[..., Report]) -> Report:
        """Convert to a file, a directory or a stream."""
        task, self._kept = self._task, ""
        if self._silent and not task.says_kept:
            return write(model, out)
        inspection = model.inspect(task.dtype)
        if task.says_kept:
            self._kept = _kept(inspection)
        if self._silent:
            return write(model, out)
        name = out if isinstance(out, str) else "standard output"
        label = printable(path) if self._brief else task.label(inspection)
        if not self._brief:
            self._say(*task.parsed(inspection))
        with metered(label, sys.stderr) as meter:
            report = write(model, out, progress=meter)
        if report.path is not None and report.format == "gguf":  # of parts the first
            name = os.path.join(os.path.dirname(name), os.path.basename(report.path))
        from anamnesis.convert.report.report import PartReport

        if isinstance(report, PartReport):
            once = "once all are, " if report.missing else ""
            self._say(f"{report}; {once}commit: amn commit {printable(name)}")
            return report
        if self._brief:
            n = sum(left.name in model.stored for left in report.dropped)
            counts = {"dropped": n, "left out": len(report.dropped) - n}
            gone = "".join(f", {what} {n:,}" for what, n in counts.items() if n)
            size = format_size(report.n_bytes)
            self._say(f"{printable(path)} -> {printable(name)} ({size}){gone}")
        else:
            label = f"{task.label_done(label, report)} {bar(1.0, _BAR_WIDTH)}"
            is_cut = report.n_files > 1 and report.format == "gguf"  # a directory is one thing
            files = f" in {report.n_files:,} files" if is_cut else ""
            self._say(f"{label} {format_duration(report.seconds)}")
            self._say(f"Output: {printable(name)} ({format_size(report.n_bytes)}{files})")
            self._say(*task.account(report, model.stored))
        for warning in self.warnings(report):
            self._say(*hanging(warning))
        return report

    def skipped(self, path: str, why: str) -> None:
        """Say that an input is left as it is."""
        self._n_skipped += 1
        self._say(f"{printable(path)}: skipped, {printable(why)}")

    def copied(self, report: PipelineReport) -> None:
        """Say what went with the models of a pipeline; weights by their names."""
        weights = [name for name in report.copied if is_read(name)]
        more = f", weights as they are among them: {abbreviate(weights)}" if weights else ""
        what = numbered(len(report.copied), "other file")
        self._say(f"{printable(report.path or '')}: copied {what}{more}")

    def warnings(self, report: Report) -> Iterator[str]:
        """Yield what the user must know of the last conversion even if nothing else matters."""
        if self._kept:
            yield self._kept
        if report.unknown:
            n = len(report.unknown)
            yield f"passed through {n:,} that could not be read: {abbreviate(report.unknown)}"
        if report.still_quantized:
            yield f"kept, since the output is still quantised: {abbreviate(report.still_quantized)}"
        if report.overflows:
            n = sum(report.overflows.values())
            where = abbreviate(f"{name} ({k:,})" for name, k in report.overflows.items())
            told = f"{n:,} {'value is' if n == 1 else 'values are'} too large for {report.dtype}"
            yield f"overflow: {told} and became infinite: {where}"
        for sentence in map(in_options, report.warnings):
            if not self._brief or sentence not in self._told:  # of many, each is told once
                self._told.add(sentence)
                yield sentence

    def summary(self, n: int, failures: Mapping[str, str]) -> None:
        """Say how many conversions went well, and again which did not."""
        if not self._brief:
            return
        done = n - len(failures) - self._n_skipped
        skipped = f", {self._n_skipped:,} skipped" if self._n_skipped else ""
        failed = f", {len(failures):,} failed:" if failures else ""
        self._say("", f"{done:,} of {n:,} {self._task.done}{skipped}{failed}")
        self._say(*(f"  {message}" for message in failures.values()))

    def _say(self, *lines: str) -> None:
        for line in () if self._silent else lines:
            print(line, file=self._stream, flush=True)


def _kept(inspection: Inspection) -> str:
    """Return that floats were not cast, if a dtype was asked for and nothing is quantised."""
    kept = {
        name: n
        for name, n in inspection.passthrough.items()
        if name in DTYPES and DTYPES[name].kind == "float" and name != inspection.dtype_out
    }
    if inspection.n_quantized or not kept:
        return ""
    told = " and ".join(numbered(n, f"{name} tensor") for name, n in kept.items())
    verb, them = ("is", "it") if sum(kept.values()) == 1 else ("are", "them")
    return (
        f"nothing is quantised: {told} {verb} kept; --cast-all casts {them} to"
        f" {inspection.dtype_out}"
    )


def parsed_lines(
    inspection: Inspection, plain: str = "none quantised", width: int = _WIDTH
) -> Iterator[str]:
    """Yield what was found: how many tensors, in which encodings, or `plain`.

    The first word takes `width` characters, as on the line below.
    """
    n = inspection.n_quantized + inspection.n_passthrough + len(inspection.problems)
    files = f" in {inspection.files:,} files" if inspection.files > 1 else ""
    head = f"{'Parsing...':<{width}}{numbered(n, 'tensor')}{files}"
    schemes = {printable(scheme): n for scheme, n in inspection.schemes.items()}
    if not schemes:
        n_unread = len(inspection.problems)
        yield f"{head}, {f'{n_unread:,} that cannot be read' if n_unread else plain}"
    elif len(schemes) == 1:
        yield f"{head}, {next(iter(schemes))}"
    else:
        yield f"{head}, {len(schemes)} schemes"
        digits = len(f"{max(schemes.values()):,}")
        for scheme, n in schemes.items():
            yield f"{'':{width}}{n:>{digits},} {scheme}"


def account_lines(report: Report, stored: Collection[str]) -> Iterator[str]:
    """Yield what became of every stored tensor."""
    from anamnesis.schemes.core.roles import counted

    n_dropped = sum(dropped.name in stored for dropped in report.dropped)
    parts = ""
    if report.n_consumed and not report.n_encoded:  # else there are more than one to a weight
        told = [counted(role, n) for role, n in report.consumed.items()]
        n_weights = report.n_out - len(report.made)
        n_weights += sum(n - 1 for n in report.put_together.values())
        n_weights -= sum(n - 1 for n in report.taken_apart.values())
        parts = f" ({', '.join([numbered(n_weights, 'weight'), *told])})"
    account = f"in {numbered(report.n_in, 'tensor')}{parts}, out {report.n_out:,}"
    yield from hanging(f"{account}, dropped {n_dropped:,}", first="", rest="  ")
    yield from dropped_lines(report.dropped, stored)
    yield from joined_lines(report)


def joined_lines(outcome: Outcome) -> Iterator[str]:
    """Yield how many tensors are written as several, are made of several, or are new."""
    ways = ("taken apart, into", outcome.taken_apart), ("put together, of", outcome.put_together)
    for way, tensors in ways:
        if tensors:
            are_experts = all("exp" in name for name in tensors)
            n = numbered(len(tensors), "stack" if are_experts else "tensor")
            what = f"{n} of experts" if are_experts else n
            yield f"  {what} {way} {sum(tensors.values()):,} pieces"
    if outcome.made:
        names = printable(", ".join(outcome.made))
        yield f"  {numbered(len(outcome.made), 'tensor')} made of config.json: {names}"
    for pattern, matched in outcome.matched.items():
        yield from hanging(f"{pattern!r} matches {abbreviate(matched)}")


def dropped_lines(dropped: Iterable[Dropped], stored: Collection[str]) -> Iterator[str]:
    """Yield what is left out, by reason: tensors are dropped, files and metadata left out."""
    by_reason: dict[tuple[bool, str], list[str]] = {}
    for left in dropped:
        by_reason.setdefault((left.name in stored, left.reason), []).append(left.name)
    for (is_tensor, reason), names in by_reason.items():
        what = f"dropped {len(names):,}" if is_tensor else "left out"
        yield from hanging(f"{what} ({printable(in_options(reason))}): {abbreviate(names)}")


def hanging(sentence: str, first: str = "  ", rest: str = "    ") -> list[str]:
    """Return a sentence in lines that fit a terminal of 80 columns, the first one outermost."""
    import textwrap

    return textwrap.wrap(
        printable(sentence),
        width=80,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
