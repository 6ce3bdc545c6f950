"""Standard input and output, written `-`, and how lines look on a terminal."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

import click

if TYPE_CHECKING:
    from anamnesis.base.source import Readable
    from anamnesis.convert.write.sinks import Writable

_STDIN = ("-", "/dev/stdin", "/dev/fd/0")
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1")
COLOUR = "anamnesis.colour"  # key of what --color says, in a context
RESET = "\x1b[0m"
_SEVERITY = {"error": "\x1b[1;31m", "warning": "\x1b[1;35m"}
_BOLD, _LABEL = "\x1b[1m", "\x1b[36m"
_PROBLEM = re.compile(r"(Problems?|Otherwise|Not in):")
_LABELLED = re.compile(r"(?:  )?[A-Z][A-Za-z ]{1,15}:(?= |$)")
# What is worth a second look in lines that begin so: a size, a loss, what was dropped.
_SIZE = re.compile(r"\d[\d,.]* [KMGT]?B\b")
_FIGURES = (
    (re.compile(r"(Size|Output|Would write|Memory):"), _SIZE),
    (re.compile(r"Lethe distance:"), re.compile(r"SNR [\d.]+ dB")),
    (re.compile(r"Parameters:"), re.compile(r"[\d.]+ bits")),
    (re.compile(r"in [\d,]+ tensor"), re.compile(r"dropped [1-9][\d,]*")),
    (re.compile(r"\d[\d,]* of [\d,]+ "), re.compile(r"[\d,]+ failed")),
    (re.compile(r"(unknown|dangerous)\b"), re.compile(r"^\w+")),
    (re.compile(r"  overflow:"), re.compile(r"overflow: [\d,]+")),
)


class StdoutError(OSError):
    """Standard output fails: an error of the command, not of an input."""


class _Redirected:
    """Standard input that is redirected from a file, with a name for errors."""

    name = "standard input"

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self.seek = file.seek

    def fileno(self) -> int:
        return sys.stdin.fileno()


def is_pipe(path: str) -> bool:
    """Whether an input is `-` or a named pipe, which can be read only once."""
    if path == "-":
        return True
    with suppress(OSError, ValueError):
        return stat.S_ISFIFO(os.stat(path).st_mode)
    return False


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal that knows control codes."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def print_json(value: object, as_json: bool | str = True) -> None:
    """Write a result to stdout: indented, or with --jsonl as one line, at once."""
    in_lines = as_json == "lines"
    print(json.dumps(value, indent=None if in_lines else 2, allow_nan=False), flush=in_lines)


def is_nameless(path: str) -> bool:
    """Whether no output can be named after an input."""
    return path in _STDIN or is_pipe(path)


def is_stdout(out: str | None) -> bool:
    """Whether an output is standard output."""
    return out in _STDOUT


def spooled(path: str) -> Readable:
    """Return a pipe's content as a seekable file, in memory or, if it is long, on disk."""
    from anamnesis.sources.stream import spooled as copy_of

    if path in _STDIN:
        if sys.stdin is None:
            raise click.UsageError("standard input is closed")
        stream = sys.stdin.buffer
        if stream.isatty():
            raise click.UsageError("standard input is a terminal; pipe or redirect a file into it")
        if stream.seekable():  # a file, redirected
            return _Redirected(stream)
    else:
        stream = open(path, "rb")  # noqa: SIM115 -- closed below
    with stream:
        return copy_of(stream, "standard input" if path in _STDIN else path)


class _Stdout:
    """A stream to standard output; its errors name it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> Any:
        return _named(self._stream.write, data)

    def flush(self) -> None:
        _named(self._stream.flush)


class _Lines(_Stdout):
    """Lines for people, in colours if they are wanted."""

    @cached_property
    def _has_colour(self) -> bool:
        return wants_colour(self._stream)

    def write(self, data: str) -> Any:
        if self._has_colour:
            data = "".join(map(_painted, data.splitlines(keepends=True)))
        return super().write(data)


def _named(do: Callable[..., Any], *args: Any) -> Any:
    try:
        return do(*args)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(error.errno, error.strerror, "stdout") from None


@contextmanager
def named_stdout() -> Iterator[None]:
    """Let errors of standard output name it, lest they be taken for an input's."""
    stream = sys.stdout
    if stream is not None:
        sys.stdout = cast("TextIO", _Lines(stream))
    try:
        yield
    finally:
        sys.stdout = stream


def data_stdout() -> Writable:
    """Return standard output for the bytes of a file."""
    if sys.__stdout__ is None:  # what stands for it takes all, and keeps nothing
        from anamnesis.base.errors import OutputError

        raise OutputError("standard output is closed; redirect it, or name a file with -o")
    if sys.stdout.isatty():
        raise click.UsageError("standard output is a terminal; redirect it, or name a file with -o")
    sys.stdout.flush()
    return cast("Writable", _Stdout(sys.stdout.buffer))


def wants_colour(stream: Any) -> bool:
    """Whether a stream shows colours: a terminal, unless NO_COLOR or --color says otherwise."""
    context = click.get_current_context(silent=True)
    asked = "auto" if context is None else context.meta.get(COLOUR, "auto")
    if asked != "auto":
        return bool(asked == "always")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def severity(word: str, text: str) -> str:
    """Return a text in the colour of errors or warnings."""
    return f"{_SEVERITY[word]}{text}{RESET}"


def _painted(line: str) -> str:
    """Return a line with its label and figures in colours."""
    for begins, figure in _FIGURES:
        if begins.match(line):
            line = figure.sub(lambda found: f"{_BOLD}{found[0]}{RESET}", line)
    problem = _PROBLEM.match(line)
    if problem is not None:
        return severity("warning", problem[0]) + line[problem.end() :]
    label = _LABELLED.match(line)
    return line if label is None else f"{_LABEL}{label[0]}{RESET}{line[label.end() :]}"
