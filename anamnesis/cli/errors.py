"""Errors in the command line's words: what is wrong, where, and what to do."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from typing import Any

from anamnesis.base.errors import AnamnesisError, LimitExceeded, OutputError, UnsupportedError
from anamnesis.base.printable import printable
from anamnesis.formats.written import promised_format
from anamnesis.sources.urls import shown_url

TRACEBACK_VARIABLE = "ANAMNESIS_TRACEBACK"
WRITING = "anamnesis.writing"  # key of the output that is being written, in a context

_REMEDIES = {
    errno.ENOSPC: "free some space, or name an output elsewhere with -o",
    errno.EDQUOT: "free some space, or name an output elsewhere with -o",
    errno.EFBIG: "name an output on another file system with -o",
    errno.EROFS: "name an output elsewhere with -o",
    errno.ENAMETOOLONG: "shorten it",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}

_ADDRESS = re.compile(r"[a-z][a-z0-9+]+://", re.IGNORECASE)
_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*)/[A-Za-z0-9][\w.-]*", re.ASCII)

# What stands behind a bracket is an argument of another program's function.
_ARGUMENT = re.compile(r"(?<!\()\b([a-z]\w*)=(True|False|\.\.\.|'[^']*'|\w+)")
_FUNCTION = re.compile(r"\banamnesis\.([a-z]+)\b")


def wants_traceback() -> bool:
    """Whether errors keep their tracebacks, for maintainers."""
    return os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0")


def in_options(remedy: str) -> str:
    """Return a remedy in the command line's words: `force=True` as `--force`."""
    return _FUNCTION.sub(r"amn \1", _ARGUMENT.sub(_option, remedy))


def as_options(error: ValueError) -> Exception:
    """Return what the library says of an argument as said of its option; else the error itself."""
    from anamnesis.convert.request.options import flag_of

    name, _, rest = str(error).partition(": ")
    flag = flag_of(name)
    return UnsupportedError(f"{flag}: {rest}") if flag else error


def _option(argument: re.Match[str]) -> str:
    from anamnesis.convert.request.options import flag_of

    name, value = argument[1], argument[2].strip("'")
    flag = flag_of(name) or f"--{name.replace('_', '-')}"
    if value == "False" and not flag.startswith("--no-"):
        return flag.replace("--", "--no-", 1)
    return flag if value in ("True", "False", "...") else f"{flag} {value}"


def describe_error(error: BaseException, path: str | None = None) -> str:
    """Return one line: what went wrong, where, and what to do."""
    if path is not None and _ADDRESS.match(path):
        path = shown_url(path)
    if isinstance(error, OSError):
        where = error.filename
        remedy = _remedy_of_system(error)
        what = error.strerror or str(error) or type(error).__name__
        if not isinstance(where, str | bytes | os.PathLike):  # a descriptor
            where = path
        message = ": ".join(os.fsdecode(part) for part in (where, what) if part is not None)
        return printable(f"{message}; {remedy}" if remedy else message)
    if isinstance(error, AnamnesisError):
        remedy = _remedy(error)
        message = f"{error.message}; {remedy}" if remedy else error.message
        message = _as_typed(message) if isinstance(error, OutputError) else message
    elif isinstance(error, MemoryError):
        message = "out of memory"
    else:
        message = (
            f"internal error, please report it: {type(error).__name__}: {error}"
            f" ({TRACEBACK_VARIABLE}=1 shows where)"
        )
    # Errors of an output name the output, and `-` has a name of its own.
    named = path in (None, "-") or isinstance(error, OutputError)
    named = named or _names(message, path or "") or _names(message, os.path.normpath(path or ""))
    return printable(message if named else f"{path}: {message}")


def _names(message: str, path: str) -> bool:
    """Whether a message has a path, and not merely as a part of a word."""
    return re.search(rf"(?<![\w.-]){re.escape(path)}(?![\w-]|\.\w)", message) is not None


def _as_typed(message: str) -> str:
    """Return a message with the output's path as the user wrote it."""
    import click

    context = click.get_current_context(silent=True)
    output: str | None = None if context is None else context.meta.get(WRITING)
    whole = os.path.abspath(output) if output else None
    if output and whole and message.startswith((f"{whole}: ", f"{whole}{os.sep}")):
        return output.rstrip("/" + os.sep) + message.removeprefix(whole)
    return message


def _remedy_of_system(error: OSError) -> str | None:
    """Return what to do about a system error; None if nothing helps."""
    where = error.filename
    if error.errno == errno.ENOENT and isinstance(where, str):
        if _ADDRESS.match(where) and error.strerror == os.strerror(errno.ENOENT):
            return "https, hf, s3, gs and az are where models are read; download it first"
        repository = _REPOSITORY.fullmatch(where)
        if repository and not (os.path.lexists(repository[1]) or promised_format(where)):
            return f"if it is on the hub, hf://{where} reads it there"
    return _REMEDIES.get(error.errno or 0)


def _remedy(error: BaseException) -> str | None:
    """Return an error's remedy in the command line's words; None if it has none."""
    if isinstance(error, LimitExceeded):
        from anamnesis.convert.request.options import flag_of

        flag = flag_of(error.limit)
        if flag is not None:
            return f"{flag} sets how much is allowed"
    remedy = getattr(error, "remedy", None)
    return in_options(remedy) if remedy else None


def error_dict(error: BaseException, path: str | None = None) -> dict[str, Any]:
    """Return an error for JSON: `error` in docs/json.md."""
    file = getattr(error, "source", None) or getattr(error, "filename", None)
    return {
        "class": type(error).__name__,
        "message": describe_error(error, path),
        "file": os.fsdecode(file) if isinstance(file, str | bytes | os.PathLike) else path,
        "tensor": getattr(error, "tensor", None),
        "offset": getattr(error, "offset", None),
        "limit": getattr(error, "limit", None),
        "remedy": _remedy_of_system(error) if isinstance(error, OSError) else _remedy(error),
    }


def complain(message: str, severity: str = "error") -> None:
    """Write an error or a warning to stderr, as one line."""
    with suppress(OSError):  # its own failure shows at the end
        sys.stdout.flush()
    from anamnesis.cli.streams import severity as coloured
    from anamnesis.cli.streams import wants_colour

    word = f"{severity}:"
    word = coloured(severity, word) if wants_colour(sys.stderr) else word
    print(f"amn: {word} {printable(message)}", file=sys.stderr, flush=True)
