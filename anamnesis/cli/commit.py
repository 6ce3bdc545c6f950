"""`amn commit`: finish an output whose files were made in parts."""

from __future__ import annotations

import os
from contextlib import chdir, nullcontext
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.errors import OutputError
from anamnesis.cli.app import NESTED, cli
from anamnesis.cli.grouped import ARGUMENTS
from anamnesis.cli.verbs import verb

if TYPE_CHECKING:
    from anamnesis.convert.resume.bucket import BucketParts
    from anamnesis.convert.resume.parts_folder import PartsFolder

_COMMAND = "command"  # the note of what made the parts
_OWN = {"--json", "--jsonl", "-q", "--quiet"}  # that a part was asked for alone


@click.argument("out", metavar="OUT", type=click.Path())
@verb("commit", "amn commit Qwen3-8B/")
def command(out: str, **given: Any) -> None:
    """Finish an output whose files were made in parts.

    Run it once all parts (amn convert --part I/N, ...) are made. The input must still be there:
    config.json, the tokenizer and the like are copied from it.
    """
    from anamnesis.convert.resume.places import parts_at

    folder = parts_at(out)
    if _COMMAND not in folder.names():
        raise OutputError(f"{out}: has no parts to commit; amn convert --part 1/2 makes some")
    words, where = _noted(folder)
    asked = {"--force": given["force"], "--sync": given["sync"], "--quiet": given["quiet"]}
    asked |= {"--json": given["as_json"] == "json", "--jsonl": given["as_json"] == "lines"}
    options = ["--part", "commit", *(flag for flag, is_set in asked.items() if is_set)]
    words = [word for word in words if word not in _OWN]
    end = words.index("--") if "--" in words else len(words)
    with chdir(where) if os.path.isdir(where) else nullcontext():
        args = [*words[:end], *options, *words[end:]]
        code = cli.main(args, prog_name="amn", standalone_mode=False, obj=NESTED)
    if not code and _COMMAND in folder.names():
        raise _damaged(folder)
    click.get_current_context().exit(code or 0)


def _noted(folder: PartsFolder | BucketParts) -> tuple[list[str], str]:
    """Return the command line of a note, and the folder that it was given in."""
    note = folder.read(_COMMAND) or {}
    words, where = note.get("arguments"), note.get("folder")
    if not (isinstance(words, list) and isinstance(where, str)):
        raise _damaged(folder)
    if not all(isinstance(word, str) for word in words):
        raise _damaged(folder)
    made_by = cli.get_command(click.get_current_context(), words[0]) if words else None
    if made_by is None or not any(option.name == "part" for option in made_by.params):
        raise _damaged(folder)
    return words, where


def _damaged(folder: PartsFolder | BucketParts) -> OutputError:
    return OutputError(
        f"{folder.path}: its note {_COMMAND!r} is not a command that makes parts; remove the"
        " folder, and make the parts anew"
    )


def note_command(out: str) -> None:
    """Note the command line by which a part was made, for the commit."""
    from anamnesis.convert.resume.places import parts_at

    context = click.get_current_context()
    arguments = [context.command.name, *context.meta[ARGUMENTS]]
    parts_at(out).note(_COMMAND, {"arguments": arguments, "folder": os.getcwd()})
