"""How far a conversion is, and how fast, and the bar that shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anamnesis.base.sizes import format_size

if TYPE_CHECKING:
    from anamnesis.convert.request.request import Progress

_SECONDS = 0.2  # between two pictures of a cell


def format_duration(seconds: float) -> str:
    """Return for instance `2.1s`, `3m 05s`, `1h 02m`."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    return f"{minutes // 60}h {minutes % 60:02}m"


class Meter:
    """Counts bytes done; call it with bytes done and bytes in all."""

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.done = 0
        self.total = 0
        self._made = self._called = time.monotonic()
        self._start: tuple[float, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        """Take note of progress."""
        self._called = time.monotonic()
        # Neither what a resumed run finds done nor a first pass says anything of the speed.
        if self._start is None or done <= self._start[1]:
            self._start = (self._called, done)
        self.done, self.total = done, total

    @property
    def idle_seconds(self) -> float:
        """How long nothing was done that could be counted."""
        return time.monotonic() - self._called

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def rate(self) -> float:
        """Bytes a second; 0 while unknown."""
        if self._start is None:
            return 0.0
        began, first = self._start
        elapsed = time.monotonic() - began
        return (self.done - first) / elapsed if elapsed > 0 else 0.0

    def facts(self, *, with_bytes: bool) -> list[str]:
        """Return percent, bytes, rate and time left, as far as they are known."""
        # Of work that is not counted, such as planning, only how long it takes is.
        if self._start is None:
            return [format_duration(time.monotonic() - self._made)]
        facts = [f"{self.fraction:.0%}"]
        if with_bytes:
            facts.append(f"{format_size(self.done)} of {format_size(self.total)}")
        if self.rate:
            left = (self.total - self.done) / self.rate
            coarse = f"{left:.0f}s" if left < 59.5 else format_duration(left)
            facts += [f"{format_size(round(self.rate))}/s", f"{coarse} left"]
        return facts


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a bar on stderr, or in a notebook's cell, while the block runs."""
    # Gives the function to call with bytes done and bytes in all.
    ipython = sys.modules.get("IPython")  # which a notebook has imported
    shell = ipython.get_ipython() if ipython is not None else None
    if hasattr(shell, "kernel"):
        yield _Cell(import_module("IPython.display").display)
        return
    from rich import progress as rich
    from rich.console import Console

    shown = rich.Progress(
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with shown:
        task = shown.add_task("", total=None)  # which moves until the total is known
        yield lambda done, total: shown.update(task, completed=done, total=total)


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
