"""A hook of the site: a page for each command, and options that no line breaks in two.

A page has what `amn COMMAND --help` shows, its examples first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.app import COMMANDS, cli

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

MARK = "<!-- commands -->"
_CODE = re.compile(r"(<pre.*?</pre>)|<code>(.*?)</code>", re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the commands."""
    from mkdocs.structure.files import File  # the tests of pages have no mkdocs

    for name in COMMANDS:
        files.append(File.generated(config, f"commands/{name}.md", content=page_of(name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as mkdocs will render it."""
    return markdown.replace(MARK, _list()) if MARK in markdown else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Keep an option on one line: browsers break lines behind hyphens."""

    def kept(code: re.Match[str]) -> str:
        if code[1]:
            return code[1]
        words = _OPTION.sub(r'<span style="white-space: nowrap">\g<0></span>', code[2])
        return f"<code>{words}</code>"

    return _CODE.sub(kept, html)


def _list() -> str:
    """Return the help of `amn`, and a link to each command's page."""
    whole = click.Context(cli, info_name="amn", **cli.context_settings)
    links = [f"- [amn {name}](commands/{name}.md): {text}" for name, text in COMMANDS.items()]
    return "\n".join(["## Commands", "", *links, "", "```text", whole.get_help(), "```"])


def page_of(name: str) -> str:
    """Return the page of a command."""
    whole = click.Context(cli, info_name="amn", **cli.context_settings)
    command = cli.get_command(whole, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=whole)
    text = context.get_help()
    examples = re.search(r"\nExamples:\n((?:  .*\n)+)", f"{text}\n")
    shown = "" if examples is None else f"```sh\n{_dedented(examples[1])}```\n\n"
    return f"# amn {name}\n\n{COMMANDS[name]}\n\n{shown}```text\n{text}\n```\n"


def _dedented(text: str) -> str:
    return re.sub(r"^ +", "", text, flags=re.MULTILINE)
