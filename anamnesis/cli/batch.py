"""One command over several inputs: each fails on its own, in one line."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from anamnesis.base.errors import AnamnesisError, OutputError
from anamnesis.base.printable import printable

__all__ = ["TRACEBACK_VARIABLE", "complain", "describe_error", "run_batch", "wants_traceback"]

TRACEBACK_VARIABLE = "ANAMNESIS_TRACEBACK"

_REMEDIES = {
    errno.ENOSPC: "free some space, or name an output elsewhere with -o",
    errno.EDQUOT: "free some space, or name an output elsewhere with -o",
    errno.EFBIG: "name an output on another file system with -o",
    errno.EROFS: "name an output elsewhere with -o",
    errno.ENAMETOOLONG: "shorten it",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def wants_traceback() -> bool:
    """Whether errors are to be raised as they are, for whoever works on this package."""
    return os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0")


def describe_error(error: BaseException, path: str | None = None) -> str:
    """Return one line that says what went wrong, where, and what to do about it.

    Parameters
    ----------
    error : exception
    path : str, optional
        The input at hand, for messages that name no file.
    """
    if isinstance(error, OSError):
        where = error.filename
        remedy = _REMEDIES.get(error.errno or 0)
        what = error.strerror or str(error) or type(error).__name__
        if not isinstance(where, str | bytes | os.PathLike):  # a call by descriptor names that
            where = path
        message = ": ".join(os.fsdecode(part) for part in (where, what) if part is not None)
        return printable(f"{message}; {remedy}" if remedy else message)
    if isinstance(error, AnamnesisError):
        message = str(error)
    elif isinstance(error, MemoryError):
        message = "out of memory"
    else:
        message = (
            f"internal error, please report it: {type(error).__name__}: {error}"
            f" ({TRACEBACK_VARIABLE}=1 shows where)"
        )
    # An output's trouble is told of the output.
    named = path is None or isinstance(error, OutputError) or os.path.normpath(path) in message
    return printable(message if named else f"{path}: {message}")


def complain(message: str, severity: str = "error") -> None:
    """Write an error or a warning to stderr, as one line."""
    with suppress(OSError):  # its own failure is told at the end
        sys.stdout.flush()
    print(f"amn: {severity}: {printable(message)}", file=sys.stderr, flush=True)


def run_batch(
    paths: Sequence[str],
    work: Callable[[str], dict[str, Any]],
    *,
    as_json: bool = False,
    headings: bool = False,
) -> int:
    """Do `work` for each path; return how many failed.

    Parameters
    ----------
    paths : sequence of str
    work : function
        Takes a path and prints what it has to say; or, for `as_json`, returns it.
    as_json : bool
        Write one object to stdout in the end, or a list of them for several paths; a failure is
        an object with `error`.
    headings : bool
        Write each path above what is said of it, if there are several.
    """
    results: list[dict[str, Any]] = []
    n_failed = 0
    try:
        for i, path in enumerate(paths):
            if len(paths) > 1 and headings and not as_json:
                print(f"{chr(10) if i else ''}{printable(path)}", flush=True)
            try:
                results.append({"path": path, **work(path)})
            except BrokenPipeError:
                raise
            except Exception as error:
                if wants_traceback():
                    raise
                n_failed += 1
                message = describe_error(error, path)
                results.append({"path": path, "error": message})
                complain(message)
    finally:
        if as_json and results:
            told = results if len(paths) > 1 else results[0]
            print(json.dumps(told, indent=2, allow_nan=False))
    return n_failed
