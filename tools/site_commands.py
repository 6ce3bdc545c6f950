"""A hook of the site: fills `<!-- commands -->` of a page with the help of each command.

It is what `amn COMMAND --help` shows, examples and all.
"""

from __future__ import annotations

from typing import Any

import click

from anamnesis.cli.app import COMMANDS, cli

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as mkdocs will render it."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """Return a heading and the help of `amn` and of each command."""
    whole = click.Context(cli, info_name="amn", **cli.context_settings)
    sections = [_section("amn", whole.get_help())]
    for name in COMMANDS:
        command = cli.get_command(whole, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=whole)
        sections.append(_section(context.command_path, context.get_help()))
    return "\n\n".join(sections)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text}\n```"
