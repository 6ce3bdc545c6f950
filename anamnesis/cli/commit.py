"""`amn commit`: finish an output whose files were made in parts."""

from __future__ import annotations

import os
from contextlib import chdir, nullcontext
from typing import Any

import click

from anamnesis.cli.options import verb

_COMMAND = "command"  # the note of what made the parts
_OWN = {"--json", "--jsonl", "-q", "--quiet"}  # that a part was asked for alone


@click.argument("out", metavar="OUT", type=click.Path())
@verb("commit", "amn commit Qwen3-8B/")
def command(out: str, **given: Any) -> None:
    """Finish an output whose files were made in parts.

    Of amn convert --part I/N and the like: all parts must be made. What they were made of must be
    there, for what goes with the weights is copied.
    """
    from anamnesis.base.errors import OutputError
    from anamnesis.cli.app import NESTED, cli
    from anamnesis.convert.resume.places import parts_at

    folder = parts_at(out)
    told = folder.read(_COMMAND) if _COMMAND in folder.names() else None
    if told is None:
        raise OutputError(
            f"{out}: there are no parts of it that amn has made; amn convert --part 1/2 makes some"
        )
    asked = {"--force": given["force"], "--sync": given["sync"], "--quiet": given["quiet"]}
    asked |= {"--json": given["as_json"] == "json", "--jsonl": given["as_json"] == "lines"}
    options = ["--part", "commit", *(flag for flag, is_set in asked.items() if is_set)]
    words = [word for word in told["arguments"] if word not in _OWN]
    end = words.index("--") if "--" in words else len(words)
    with chdir(told["folder"]) if os.path.isdir(told["folder"]) else nullcontext():
        args = [*words[:end], *options, *words[end:]]
        code = cli.main(args, prog_name="amn", standalone_mode=False, obj=NESTED)
    click.get_current_context().exit(code or 0)


def note_command(out: str) -> None:
    """Note the command line by which a part was made, for the commit."""
    from anamnesis.cli.grouped import ARGUMENTS
    from anamnesis.convert.resume.places import parts_at

    context = click.get_current_context()
    arguments = [context.command.name, *context.meta[ARGUMENTS]]
    told = {"arguments": arguments, "folder": os.getcwd()}
    parts_at(out).note(_COMMAND, told)
