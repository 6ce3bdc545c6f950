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
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import click

from anamnesis.base.nearest import UnknownWord
from anamnesis.cli.grouped import ARGUMENTS
from anamnesis.formats.written import asked_format

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target

_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
_FOLDER = "folder"  # the kind of a directory, beside the ids of containers


Words: TypeAlias = "tuple[tuple[str, ...], Target | None, str | None]"  # inputs, target, output


def placed(
    paths: tuple[str, ...],
    to: Target | None,
    out: str | None,
    read: Callable[[str], Target],
    *,
    needs_target: bool,
) -> Words:
    """Return what the words of a command line mean; `read` takes a target of the command."""
    if "" in paths:
        raise click.UsageError("a name is empty; name a file or a directory")
    first, *rest = paths
    at, named = _target_among(rest, read)
    behind = rest[at + 1 :]
    to, rest = _one_of(to, named, _target_among(behind, read)[1]), rest[:at] + behind
    lacks = to is None and needs_target
    if out is not None or not rest:
        if lacks and (unknown := [word for word in rest if not _is_there(word)]):
            raise _no_target(unknown[0])
        return (first, *rest), to, out
    last = rest[-1]
    if behind or not _is_model(last):
        is_said = behind == rest[-1:] == rest or os.path.isdir(last) or asked_format(last)
        if is_said or last.endswith(_SEPARATORS):
            return (first, *rest[:-1]), to, last
        if lacks and (len(rest) > 1 or not _is_gguf(first)):
            raise _no_target(*[word for word in rest if not _is_there(word)])
        if len(rest) > 1 and not behind:
            return (first, *rest), to, None
        option, does = "-o", "writes it"
        if last.isdecimal():
            option, does = "--threads", "sets the threads"
        line = _line(last, option, last)
        raise click.UsageError(f"{last!r} does not exist; `{line}` {does}")
    if len(rest) == 1 and _may_be_output(first, last, lacks=lacks):
        raise _replace_or_read(last, ("--to", "TARGET") if lacks else ())
    return (first, *rest), to, None


def targets_behind(
    paths: tuple[str, ...], read: Callable[[str], tuple[Target, ...]]
) -> tuple[tuple[str, ...], tuple[Target, ...] | None]:
    """Return inputs, and the targets that stand behind the first, each in a word or with commas."""
    first, *rest = paths
    words = [w for w in rest if not (_is_there(w) or asked_format(w) or set(_SEPARATORS) & {*w})]
    if not words:
        return paths, None
    try:
        return (first, *[word for word in rest if word not in words]), read(",".join(words))
    except UnknownWord as error:
        raise click.UsageError(f"{error}; amn convert --list shows all") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _target_among(words: list[str], read: Callable[[str], Target]) -> tuple[int, Target | None]:
    """Return the first word that is a target and no file, with its place; else the end and None."""
    for i, word in enumerate(words):
        if _is_there(word) or asked_format(word) or word.endswith(_SEPARATORS):
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


def _one_of(*targets: Target | None) -> Target | None:
    """Return the target that a line names, once or more often."""
    named = [one for one in targets if one is not None]
    for one, other in pairwise(named):
        if one != other:
            raise click.UsageError(
                f"takes one target, not {one.text} and {other.text}; ./{other.text} is a file of"
                " that name"
            )
    return named[0] if named else None


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
    from anamnesis.cli.inputs import models_in
    from anamnesis.sources.urls import kind_of_url

    if kind_of_url(word) == "bucket":
        from anamnesis.checkpoint.pipelines import is_read
        from anamnesis.sources.bucket import names_in, size_of

        names = names_in(word)
        return any(map(is_read, names)) or (not names and size_of(word) is not None)
    return models_in(word) if os.path.isdir(word) else _is_there(word)


def _is_there(word: str) -> bool:
    return word == "-" or is_name(word) or os.path.lexists(word)


def is_name(word: str) -> bool:
    """Whether a word names a model by something else than a path."""
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.sources.urls import kind_of_url

    return word.startswith(OLLAMA_PREFIX) or kind_of_url(word) is not None


def _is_gguf(path: str) -> bool:
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.opening import detect_format

    if is_name(path):
        return path.startswith(OLLAMA_PREFIX) or asked_format(path) == "gguf"
    with suppress(OSError):
        return os.path.isfile(path) and detect_format(path) == "gguf"
    return False


def _may_be_output(first: str, last: str, *, lacks: bool) -> bool:
    """Whether the second of two models is rather the output of an earlier run.

    So it is if it is of another kind than the first, or if outputs are to be replaced, or if only
    its name says what is written.
    """
    given = click.get_current_context().params
    kind = _kind(last)
    if kind is None or given.get("recursive"):
        return False
    if lacks:
        return kind != _FOLDER
    return bool(given.get("force")) or kind != _kind(first)


def _kind(word: str) -> str | None:
    is_folder = os.path.isdir(word) or (is_name(word) and word.endswith("/"))
    return _FOLDER if is_folder else asked_format(word)


def _no_target(word: str, *others: str) -> click.UsageError:
    """Refuse a word that is neither a file nor a target; alone, it may be the output."""
    line = "" if others else f"`{_line(word, '-o', word, '--to', 'TARGET')}` writes it, "
    return click.UsageError(
        f"{word!r} is no file and no target: {line}amn convert --list shows all targets"
    )


def _replace_or_read(last: str, more: tuple[str, ...]) -> click.UsageError:
    force = () if click.get_current_context().params.get("force") else ("--force",)
    return click.UsageError(
        f"{last!r} exists: `{_line(last, '-o', last, *force)}` replaces it,"
        f" `{_line(last, last, '-o', 'DIR/', *more)}` reads it, too"
    )


def _line(word: str, *instead: str) -> str:
    """Return the command line with other words in the place of one."""
    context = click.get_current_context()
    args: list[str] = [*context.meta[ARGUMENTS]]
    at = len(args) - 1 - args[::-1].index(word)
    return f"{context.command_path} {shlex.join([*args[:at], *instead, *args[at + 1 :]])}"
