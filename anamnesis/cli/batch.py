"""One command over several inputs: each fails on its own, in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import click

from anamnesis.base.printable import printable
from anamnesis.cli.errors import StdoutError, complain, describe_error, error_dict, wants_traceback

__all__ = ["finish", "run_batch"]


def run_batch(
    paths: Sequence[str],
    work: Callable[[str], dict[str, Any]],
    *,
    as_json: bool | str = False,
    headings: bool = False,
    listed: bool = False,
) -> dict[str, str]:
    """Do `work` for each path; return those that failed, and why.

    Parameters
    ----------
    paths : sequence of str
    work : function
        Takes a path and prints what it has to say; or, for `as_json`, returns it.
    as_json : bool or str
        Write one object to stdout in the end, or a list of them for several paths; a failure has
        an `error`. With `lines` each is written by itself, on a line, as soon as it is done.
    headings : bool
        Write each path above what is said of it, if there are several.
    listed : bool
        Write a list as JSON also of one path, or of none.
    """
    in_lines = as_json == "lines"
    results: list[dict[str, Any]] = []

    def add(result: dict[str, Any]) -> None:
        if in_lines:
            print(json.dumps(result, allow_nan=False), flush=True)
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
            told = results if listed or len(paths) > 1 else results[0]
            print(json.dumps(told, indent=2, allow_nan=False))
    return failures


def finish(failures: Collection[str]) -> None:
    """Exit with 1 if anything failed; writing to stdout may be what did, so not before it is."""
    sys.stdout.flush()
    if failures:
        click.get_current_context().exit(1)
