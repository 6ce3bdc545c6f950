"""The progress bar that `progress=True` asks for: in a terminal, or in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from anamnesis.convert.pipeline import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Progress]:
    """Show a bar on stderr, or in a notebook's cell, while the block runs.

    Gives the function to call with bytes done and bytes in all.
    """
    from rich import progress as rich

    shown = rich.Progress(
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
        console=console or _console(),
    )
    with shown:
        task = shown.add_task("")
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
