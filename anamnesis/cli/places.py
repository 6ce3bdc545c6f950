"""What the words of a command line mean: inputs, a target, an output.

`amn convert IN OUT`, `amn quantize IN TYPE [OUT]` and `amn remember IN OUT` need no options. A word
that exists as a model is an input; after the first, a word that does not exist may be a target, and
the last one is the output if its ending, a final slash or a target before it says so.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import click

from anamnesis.base.nearest import UnknownWord
from anamnesis.cli.grouped import ARGUMENTS
from anamnesis.formats.writers import asked_format

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target

_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


class Words(NamedTuple):
    """What a command line names."""

    paths: tuple[str, ...]
    to: Target | None
    out: str | None


def placed(
    paths: tuple[str, ...],
    to: Target | None,
    out: str | None,
    read: Callable[[str], Target],
    *,
    needs_target: bool,
) -> Words:
    """Return what the words of a command line mean; `read` takes a target of the command."""
    first, *rest = paths
    at, named = _target_among(rest, read) if to is None else (len(rest), None)
    to, behind = to or named, rest[at + 1 :]
    rest = rest[:at] + behind
    if out is not None or not rest:
        return Words((first, *rest), to, out)
    last = rest[-1]
    if behind or not _is_model(last):
        is_said = behind or os.path.isdir(last) or asked_format(last)
        if not (is_said or last.endswith(_SEPARATORS)):
            if len(rest) > 1:
                return Words((first, *rest), to, None)
            is_asked = to is not None or not needs_target or _is_gguf(first)
            raise _two_readings(last, () if is_asked else ("--to", "TARGET"))
        return Words((first, *rest[:-1]), to, last)
    if to is None and needs_target and len(rest) == 1 and asked_format(last):
        raise _replace_or_convert(last)
    return Words((first, *rest), to, None)


def _target_among(words: list[str], read: Callable[[str], Target]) -> tuple[int, Target | None]:
    """Return the first word that is a target and no file, with its place; else the end and None."""
    for i, word in enumerate(words):
        if os.path.lexists(word) or asked_format(word) or word.endswith(_SEPARATORS):
            continue
        try:
            found = read(word)
        except UnknownWord:
            continue
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if not found.is_directory:  # "hf" is what a directory may well be called
            return i, found
    return len(words), None


def asked_for(paths: tuple[str, ...], to: Target | None, out: str | None) -> Target | None:
    """Return the target; where none is named, what the output's name asks for."""
    from anamnesis.convert.request.targets import asked_target

    if to is not None and not to.is_directory:
        return to
    of_gguf = bool(paths) and all(map(_is_gguf, paths))
    if to is None and (out is None or not (of_gguf or asked_format(out))):
        return None
    found = asked_target(to, out, of_gguf=of_gguf)
    return replace(found, text=found.text or found.container or "")


def _is_model(word: str) -> bool:
    """Whether a word names something to read: a file, or a folder with models."""
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.cli.inputs import models_in

    if os.path.isdir(word):
        return models_in(word)
    return word == "-" or word.startswith(OLLAMA_PREFIX) or os.path.lexists(word)


def _is_gguf(path: str) -> bool:
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.opening import detect_format

    if path.startswith(OLLAMA_PREFIX):
        return True
    with suppress(OSError):
        return os.path.isfile(path) and detect_format(path) == "gguf"
    return False


def _two_readings(last: str, more: tuple[str, ...]) -> click.UsageError:
    return click.UsageError(
        f"{last!r} does not exist: it is no input, and as the output it is written by"
        f" `{_line(last, '-o', last, *more)}`"
    )


def _replace_or_convert(last: str) -> click.UsageError:
    return click.UsageError(
        f"{last!r} exists: `{_line(last, '-o', last, '--force')}` replaces it,"
        f" `{_line(last, last, '--to', 'TARGET')}` reads it, too"
    )


def _line(word: str, *instead: str) -> str:
    """Return the command line with other words in the place of one."""
    context = click.get_current_context()
    args: list[str] = [*context.meta[ARGUMENTS]]
    at = len(args) - 1 - args[::-1].index(word)
    return f"{context.command_path} {shlex.join([*args[:at], *instead, *args[at + 1 :]])}"
