"""The progress bar that `progress=True` asks for: in a terminal, or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anamnesis.base.printable import format_size
from anamnesis.convert.report.meter import Meter

if TYPE_CHECKING:
    from rich.console import Console

    from anamnesis.convert.request.request import Progress


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Progress]:
    """Show a bar on stderr, or in a notebook's cell, while the block runs."""
    # Gives the function to call with bytes done and bytes in all.
    shell = _notebook()
    if console is None and shell is not None:
        yield _Cell(import_module("IPython.display").display)
        return
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
        task = shown.add_task("", total=None)  # which moves until the total is known
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


_SECONDS = 0.2  # between two pictures of a cell


def _notebook() -> Any:
    """Return the shell of the notebook that this process is of; None in a terminal."""
    ipython = sys.modules.get("IPython")  # which a notebook has imported
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if shell is not None and hasattr(shell, "kernel") else None


class _Cell(Meter):
    """A bar in a notebook's cell, by what every notebook has: rich would need its widgets."""

    def __init__(self, display: Any) -> None:
        super().__init__()
        self._shown = time.monotonic()
        self._handle = display(self, display_id=True)

    def __call__(self, done: int, total: int) -> None:
        super().__call__(done, total)
        now = time.monotonic()
        if now - self._shown >= _SECONDS or done >= total:
            self._shown = now
            self._handle.update(self)

    def __repr__(self) -> str:
        if not self.total:
            return "planning"
        told = f"{format_size(self.done)} of {format_size(self.total)}"
        return told + (f", {format_size(round(self.rate))}/s" if self.rate else "")

    def _repr_html_(self) -> str:
        """Return a bar, which moves until the total is known."""
        known = f' value="{self.done}" max="{self.total}"' if self.total else ""
        return f"<progress{known}></progress> {self!r}"
