"""`amn scan`: what pickles refer to, and whether that is safe."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.printable import numbered, printable
from anamnesis.cli.exit_codes import FOUND, UNREADABLE
from anamnesis.cli.streams import is_pipe, spooled
from anamnesis.cli.verbs import verb

if TYPE_CHECKING:
    from anamnesis.base.limits import ParseLimits
    from anamnesis.formats.scan.report import Scan

_UNREADABLE = "unreadable"
_WIDTH = len(_UNREADABLE) + 2
_MOST_SHOWN = 5  # reasons for a verdict in a table


@verb(
    "scan",
    "amn scan model.pth",
    "amn scan uploads/ --untrusted",
    "amn scan -q uploads/",
    "amn scan *.pkl --json",
    exit_codes=["0 if all files are safe, 1 if any is not, 2 if any cannot be read"],
)
def command(paths: tuple[str, ...], as_json: bool, quiet: bool, limits: ParseLimits | None) -> None:
    """Show what pickles refer to, and whether that is safe.

    Nothing in them is executed. All files below a directory are scanned, and shown as a table.

    A file is safe if its pickles only rebuild tensors.
    """
    from anamnesis.cli.inputs import files_inside, run_batch

    inside = [files_inside(path) for path in paths]
    is_table = any(files is not None for files in inside)
    found = [[path] if own is None else own for path, own in zip(paths, inside, strict=True)]
    files = [file for own in found for file in own]
    verdicts: Counter[str] = Counter()

    def work(path: str) -> dict[str, Any]:
        result = _scan(path, limits)
        verdicts[result.verdict] += 1
        if as_json:
            return result.to_dict()
        if quiet and result.verdict == "safe":
            return {}
        if is_table:
            print(f"{result.verdict:<{_WIDTH}}{printable(path)}")
        for line in _reasons(path, result) if is_table else result.lines(path):
            print(line)
        return {}

    failures = run_batch(files, work, as_json=as_json, listed=is_table)
    if is_table and not as_json:
        for path in failures:
            print(f"{_UNREADABLE:<{_WIDTH}}{printable(path)}")
        if not quiet:
            counts = {name: verdicts[name] for name in ("safe", "dangerous", "unknown")}
            counts[_UNREADABLE] = len(failures)
            text = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
            print(f"\n{numbered(len(files), 'file')}{f': {text}' if text else ''}")
    sys.stdout.flush()
    if failures or verdicts.keys() - {"safe"}:
        click.get_current_context().exit(UNREADABLE if failures else FOUND)


def _scan(path: str, limits: ParseLimits | None) -> Scan:
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.checkpoint.ollama import resolve
    from anamnesis.formats.scan.scan import scan

    if path.startswith(OLLAMA_PREFIX):
        found = resolve(path)
        blobs = [found] if isinstance(found, str) else [blob for _, blob in found.tensors]
        scanned = [scan(blob, limits=limits) for blob in blobs]
        return next((one for one in scanned if one.verdict != "safe"), scanned[0])
    return scan(spooled(path) if is_pipe(path) else path, limits=limits)


def _reasons(path: str, result: Scan) -> Iterator[str]:
    """Yield short reasons why a file is not safe."""
    found = [g for pickle in result.pickles for g in pickle.globals if g.verdict != "safe"]
    found.sort(key=lambda g: g.verdict)  # dangerous, unknown
    reasons = [f"{g.module}.{g.name}" for g in found]
    reasons += result.problems
    reasons += [pickle.malformed for pickle in result.pickles if pickle.malformed]
    reasons = list(dict.fromkeys(reasons))
    for reason in reasons[:_MOST_SHOWN]:
        yield f"{'':<{_WIDTH}}  {printable(reason.removeprefix(f'{path}: '))}"
    if len(reasons) > _MOST_SHOWN:
        yield f"{'':<{_WIDTH}}  and {len(reasons) - _MOST_SHOWN:,} more"
