"""The pages of the documentation, taken apart into what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]

BLOCK = re.compile(  # the comment above, the language, the text
    r"^(?:<!-- ([^\n]*?) -->\n+)?```([^\n]*)\n(.*?)^```$", re.M | re.S
)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", re.M)  # a line after a prompt, its output
TORCH = re.compile(r"^\s*(import|from) torch\b", re.M)
NOT_RUN_MARK = "not run: "

SECONDS = re.compile(r"\b\d+\.\d+s\b")

RUN = {"console", "python"}


class Block(NamedTuple):
    """What stands between two fences, and in the comment above them."""

    comment: str
    language: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.comment.startswith(NOT_RUN_MARK)

    @property
    def needs_torch(self) -> bool:
        return self.language == "python" and TORCH.search(self.text) is not None


class Command(NamedTuple):
    """A line after a prompt, and what it prints."""

    line: str
    output: str


def blocks(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(*parts) for parts in found]


def programs(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.is_run and block.language == "python"]


def commands(page: Path) -> list[Command]:
    shown = [block for block in blocks(page) if block.is_run and block.language == "console"]
    found = (match for block in shown for match in COMMAND.finditer(block.text))
    return [Command(match[1], match[2]) for match in found]


def called(page: Path) -> str:
    return page.relative_to(PROJECT).as_posix()
