"""Runs a command over several inputs, each of which fails on its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import click

from anamnesis.base.printable import printable
from anamnesis.cli.app import FAILED
from anamnesis.cli.errors import StdoutError, complain, describe_error, error_dict, wants_traceback
from anamnesis.cli.streams import print_json


def run_batch(
    paths: Sequence[str],
    work: Callable[[str], dict[str, Any]],
    *,
    as_json: bool | str = False,
    headings: bool = False,
    listed: bool = False,
) -> dict[str, str]:
    """Do `work` for each path; return those that failed, and why."""
    in_lines = as_json == "lines"
    results: list[dict[str, Any]] = []

    def add(result: dict[str, Any]) -> None:
        if in_lines:
            print_json(result, as_json)
        else:
            results.append(result)

    failures: dict[str, str] = {}
    try:
        for i, path in enumerate(paths):
            if len(paths) > 1 and headings and not as_json:
                print(f"{chr(10) if i else ''}{printable(path)}", flush=True)
            try:
                add({"path": path, **work(path)})
            except (BrokenPipeError, StdoutError, click.UsageError):
                raise
            except Exception as error:
                if wants_traceback():
                    raise
                failures[path] = describe_error(error, path)
                add({"path": path, "error": error_dict(error, path)})
                complain(failures[path])
    finally:
        if as_json and not in_lines and (results or listed):
            shown = results if listed or len(paths) > 1 else results[0]
            print_json(shown)
    return failures


def run_each(
    paths: Sequence[str], work: Callable[[str], dict[str, Any]], *, as_json: bool | str
) -> None:
    """Do `work` for each model, under its name; exit with 1 if any failed."""
    from anamnesis.cli.inputs import with_components

    finish(run_batch(with_components(paths), work, as_json=as_json, headings=True))


def finish(failures: Collection[str]) -> None:
    """Exit with 1 if anything failed; first flush stdout, which may fail, too."""
    sys.stdout.flush()
    if failures:
        click.get_current_context().exit(FAILED)
