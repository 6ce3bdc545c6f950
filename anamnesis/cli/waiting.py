"""Work that nobody counts: a mark that moves on a terminal, if it takes a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from anamnesis.cli.streams import is_terminal


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Show on a terminal that work goes on."""
    context = click.get_current_context(silent=True)
    asked = context.params if context is not None else {}
    if asked.get("quiet") or asked.get("as_json") or not is_terminal(sys.stderr):
        yield
        return
    from anamnesis.cli.progress import at_work

    with at_work(label, sys.stderr):
        yield
