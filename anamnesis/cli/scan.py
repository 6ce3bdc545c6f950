"""`amn scan`: what pickles refer to."""

from __future__ import annotations

from typing import Any

import click

from anamnesis.cli.options import json_option

__all__ = ["command"]


@click.command("scan")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@json_option
def command(paths: tuple[str, ...], as_json: bool) -> None:
    """Show what pickles refer to, and whether that is safe.

    Nothing of them is executed. Exit code 0 if all are safe (they rebuild tensors, no more), 1 if
    any is not, 2 if any cannot be read.
    """
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.checkpoint.ollama import resolve
    from anamnesis.cli.batch import flush_stdout, run_batch
    from anamnesis.formats.scan.scan import scan as scan_file

    verdicts = set()

    def work(path: str) -> dict[str, Any]:
        result = scan_file(resolve(path) if path.startswith(OLLAMA_PREFIX) else path)
        verdicts.add(result.verdict)
        if as_json:
            return result.to_dict()
        for line in result.lines(path):
            print(line)
        return {}

    failures = run_batch(paths, work, as_json=as_json)
    flush_stdout()
    if failures or verdicts - {"safe"}:
        click.get_current_context().exit(2 if failures else 1)
