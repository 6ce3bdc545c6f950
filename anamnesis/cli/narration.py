"""What `amn remember` says of a conversion, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from anamnesis.base.printable import abbreviate, printable
from anamnesis.base.sizes import format_size
from anamnesis.cli.progress import bar, format_duration

if TYPE_CHECKING:
    from anamnesis.convert.inspection import Inspection
    from anamnesis.convert.result import Report

__all__ = ["account_lines", "output_line", "parsed_lines", "recalled_line", "recalling", "warnings"]

_BAR_WIDTH = 20
_INDENT = " " * len("Parsing...   ")


def parsed_lines(inspection: Inspection) -> Iterator[str]:
    """Yield what was found: how many tensors, in which encodings."""
    n = inspection.n_quantized + inspection.n_passthrough + len(inspection.problems)
    files = f" in {inspection.files:,} files" if inspection.files > 1 else ""
    head = f"Parsing...   {_count(n, 'tensor')}{files}"
    schemes = {printable(scheme): n for scheme, n in inspection.schemes.items()}
    if not schemes:
        n_unread = len(inspection.problems)
        yield f"{head}, {f'{n_unread:,} that cannot be read' if n_unread else 'none quantized'}"
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
    yield f"in {_count(report.n_in, 'tensor')}, out {report.n_out:,}, dropped {n_dropped:,}"
    for (is_tensor, reason), names in by_reason.items():
        what = f"dropped {len(names):,}" if is_tensor else "left out"
        yield f"  {what} ({printable(reason)}): {abbreviate(names)}"
    for warning in warnings(report):
        yield f"  {warning}"


def warnings(report: Report) -> Iterator[str]:
    """Yield what the user must know even if nothing else is of interest."""
    if report.unknown:
        n = len(report.unknown)
        yield f"passed through {n:,} that could not be read: {abbreviate(report.unknown)}"
    if report.still_quantized:
        yield f"kept, since the output is still quantized: {abbreviate(report.still_quantized)}"
    if report.overflows:
        n = sum(report.overflows.values())
        where = abbreviate(f"{name} ({k:,})" for name, k in report.overflows.items())
        verb = "value is" if n == 1 else "values are"
        yield f"overflow: {n:,} {verb} too large for {report.dtype} and became infinite: {where}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
