"""Write amn's manual page, from what the commands say of themselves.

`python tools/man_page.py > ~/.local/share/man/man1/amn.1` lets `man amn` find it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from anamnesis.base.version import __version__
from anamnesis.cli.app import ENVIRONMENT, cli


def page() -> str:
    """Return the page in roff."""
    with click.Context(cli, info_name="amn") as context:
        lines = [
            f'.TH AMN 1 "" "anamnesis {__version__}" "User Commands"',
            ".SH NAME",
            r"amn \- parse any tensor format, recover any precision, write any of them",
            ".SH SYNOPSIS",
            r"\fBamn\fR \fICOMMAND\fR [\fIOPTION\fR]... \fIPATH\fR...",
            ".SH DESCRIPTION",
            *_paragraphs(cli.help or ""),
            ".SH COMMANDS",
        ]
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            assert command is not None
            lines += _command(command, context)
    lines.append(".SH ENVIRONMENT")
    for name, meaning in ENVIRONMENT.items():
        lines += [".TP", rf"\fB{_escaped(name)}\fR", _escaped(meaning)]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, parent: click.Context) -> Iterator[str]:
    yield f".SS {command.name}"
    yield from _paragraphs(command.help or "")
    with click.Context(command, info_name=command.name, parent=parent) as context:
        for param in command.get_params(context):
            record = param.get_help_record(context)
            if record:
                yield from (".TP", rf"\fB{_escaped(record[0])}\fR", _escaped(record[1]))
    yield from _paragraphs(command.epilog or "")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        is_drawn = paragraph.startswith("\b")
        lines = [_escaped(line) for line in paragraph.removeprefix("\b\n").splitlines()]
        yield ".PP"
        yield from (".nf", *lines, ".fi") if is_drawn else [" ".join(map(str.strip, lines))]


def _escaped(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    print(page(), end="")
