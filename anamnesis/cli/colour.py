"""Whether a terminal shows colours, and how errors and warnings look there."""

from __future__ import annotations

import os
from typing import Any

import click

COLOUR = "anamnesis.colour"  # key of what --color says, in a context
RESET = "\x1b[0m"
_SEVERITY = {"error": "\x1b[1;31m", "warning": "\x1b[1;35m"}


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
