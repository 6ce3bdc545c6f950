"""Whether a terminal shows colours, and how lines look there.

Only the eight colours of the terminal's own palette are used, which its owner can read.
"""

from __future__ import annotations

import os
import re
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


def painted(text: str) -> str:
    """Return lines with their labels and figures in colours."""
    return "".join(map(_painted, text.splitlines(keepends=True)))


def _painted(line: str) -> str:
    for begins, figure in _FIGURES:
        if begins.match(line):
            line = figure.sub(lambda found: f"{_BOLD}{found[0]}{RESET}", line)
    problem = _PROBLEM.match(line)
    if problem is not None:
        return severity("warning", problem[0]) + line[problem.end() :]
    label = _LABELLED.match(line)
    return line if label is None else f"{_LABEL}{label[0]}{RESET}{line[label.end() :]}"
