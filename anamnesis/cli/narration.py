"""What `amn remember` says of conversions, in words."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.printable import abbreviate, printable
from anamnesis.base.sizes import format_size
from anamnesis.cli.progress import bar, format_duration

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.convert.inspection import Inspection
    from anamnesis.convert.result import Report
    from anamnesis.model import Model

__all__ = ["Narrator"]

_BAR_WIDTH = 20
_INDENT = " " * len("Parsing...   ")


class Narrator:
    """Runs conversions and tells of them: one at length, many in a line each.

    Parameters
    ----------
    stream : text file
        How far a conversion is goes to stderr in any case.
    silent : bool
        Say nothing.
    brief : bool
        Say one line of each.
    asked : str or None
        The dtype that the user asked for, if any.
    """

    def __init__(self, stream: TextIO, *, silent: bool, brief: bool, asked: str | None) -> None:
        self._stream = stream
        self._silent = silent
        self._brief = brief
        self._asked = asked
        self._kept = ""
        self._n_skipped = 0

    def convert(
        self, model: Model, path: str, out: Any, *, dtype: DTypeName, **options: Any
    ) -> Report:
        """Convert to a file, a directory or a stream."""
        self._kept = ""
        if self._asked and not options["cast_all"]:
            self._kept = _kept(model.inspect(dtype))
        if self._silent:
            return model.remember(out, dtype, **options)
        inspection = model.inspect(dtype)
        from anamnesis.cli.progress import metered

        name = out if isinstance(out, str) else "standard output"
        label = printable(path) if self._brief else recalling(inspection)
        if not self._brief:
            self._say(*parsed_lines(inspection))
        with metered(label, sys.stderr) as meter:
            report = model.remember(out, dtype, progress=meter, **options)
        if self._brief:
            dropped = f", dropped {len(report.dropped):,}" if report.dropped else ""
            size = format_size(report.n_bytes)
            self._say(f"{printable(path)} -> {printable(name)} ({size}){dropped}")
            self._say(*(f"  {warning}" for warning in self.warnings(report)))
        else:
            self._say(recalled_line(label, report), output_line(name, report))
            self._say(*account_lines(report, model.stored))
            self._say(*(f"  {warning}" for warning in self.warnings(report)))
        return report

    def skipped(self, path: str, why: str) -> None:
        """Say that an input is left as it is."""
        self._n_skipped += 1
        self._say(f"{printable(path)}: skipped, {printable(why)}")

    def warnings(self, report: Report) -> Iterator[str]:
        """Yield what the user must know of the last conversion even if nothing else matters."""
        if self._kept:
            yield self._kept
        yield from warnings(report)

    def summary(self, n: int, failures: Mapping[str, str]) -> None:
        """Say how many conversions went well, and again which did not."""
        if not self._brief:
            return
        done = n - len(failures) - self._n_skipped
        skipped = f", {self._n_skipped:,} skipped" if self._n_skipped else ""
        failed = f", {len(failures):,} failed:" if failures else ""
        self._say("", f"{done:,} of {n:,} remembered{skipped}{failed}")
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
    told = " and ".join(_count(n, f"{name} tensor") for name, n in kept.items())
    verb, them = ("is", "it") if sum(kept.values()) == 1 else ("are", "them")
    return (
        f"nothing is quantised: {told} {verb} kept; --cast-all casts {them} to"
        f" {inspection.dtype_out}"
    )


def parsed_lines(inspection: Inspection) -> Iterator[str]:
    """Yield what was found: how many tensors, in which encodings."""
    n = inspection.n_quantized + inspection.n_passthrough + len(inspection.problems)
    files = f" in {inspection.files:,} files" if inspection.files > 1 else ""
    head = f"Parsing...   {_count(n, 'tensor')}{files}"
    schemes = {printable(scheme): n for scheme, n in inspection.schemes.items()}
    if not schemes:
        n_unread = len(inspection.problems)
        yield f"{head}, {f'{n_unread:,} that cannot be read' if n_unread else 'none quantised'}"
    elif len(schemes) == 1:
        yield f"{head}, {next(iter(schemes))}"
    else:
        yield f"{head}, {len(schemes)} schemes"
        width = len(f"{max(schemes.values()):,}")
        for scheme, n in schemes.items():
            yield f"{_INDENT}{n:>{width},} {scheme}"


def recalling(inspection: Inspection) -> str:
    """Return what the progress bar is labelled."""
    if inspection.n_quantized:
        return f"Recalling... {_count(inspection.n_quantized, 'tensor')}"
    return f"Copying...   {_count(inspection.n_passthrough, 'tensor')}"


def recalled_line(label: str, report: Report) -> str:
    """Return the line that stays when the progress bar has gone."""
    return f"{label} {bar(1.0, _BAR_WIDTH)} {format_duration(report.seconds)}"


def output_line(out: str, report: Report) -> str:
    """Return where it went, and its size."""
    return f"Output: {printable(out)} ({format_size(report.n_bytes)})"


def account_lines(report: Report, stored: Collection[str]) -> Iterator[str]:
    """Yield what became of every stored tensor.

    Parameters
    ----------
    report : Report
    stored : collection of str
        Names of the source's tensors, to tell them from files that were left out.
    """
    by_reason: dict[tuple[bool, str], list[str]] = {}
    for dropped in report.dropped:
        key = (dropped.name in stored, dropped.reason)
        by_reason.setdefault(key, []).append(dropped.name)
    n_dropped = sum(len(names) for (is_tensor, _), names in by_reason.items() if is_tensor)
    parts = ""
    if report.n_consumed:
        parts = f" ({_count(report.n_out, 'weight')}, {_count(report.n_consumed, 'scale')})"
    yield (
        f"in {_count(report.n_in, 'tensor')}{parts}, out {report.n_out:,}, dropped {n_dropped:,}"
    )
    for (is_tensor, reason), names in by_reason.items():
        what = f"dropped {len(names):,}" if is_tensor else "left out"
        yield f"  {what} ({printable(reason)}): {abbreviate(names)}"


def warnings(report: Report) -> Iterator[str]:
    """Yield what the user must know even if nothing else is of interest."""
    if report.unknown:
        n = len(report.unknown)
        yield f"passed through {n:,} that could not be read: {abbreviate(report.unknown)}"
    if report.still_quantized:
        yield f"kept, since the output is still quantised: {abbreviate(report.still_quantized)}"
    if report.overflows:
        n = sum(report.overflows.values())
        where = abbreviate(f"{name} ({k:,})" for name, k in report.overflows.items())
        verb = "value is" if n == 1 else "values are"
        yield f"overflow: {n:,} {verb} too large for {report.dtype} and became infinite: {where}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
