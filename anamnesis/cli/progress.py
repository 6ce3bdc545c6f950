"""Progress of a conversion: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from threading import Event, Thread
from typing import TYPE_CHECKING, TextIO

import click

from anamnesis.cli.streams import is_terminal
from anamnesis.convert.report.meter import Meter

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.text import Text

_PLAIN_SECONDS = 60.0  # between two lines of a log
_PATIENCE = 0.5  # seconds, before what is done is shown to go on
_MARK, _STEPS = "<=>", 10  # a second
_BAR_WIDTHS = range(10, 41)
_ROOM_FOR_BYTES = 100  # columns
_BYTES_WIDTH = len("999.99 GB of 999.99 GB")
# Percent, bytes, rate, time left: fixed, so that the bar keeps its length while figures change.
_FACT_WIDTHS = (len("100%"), _BYTES_WIDTH, len("999.9 MB/s"), len("59m 59s left"))


def bar(fraction: float, width: int) -> str:
    """Return `[=====>    ]`, `width` characters between the brackets."""
    filled = min(width, int(fraction * width))
    head = ">" if filled < width else ""
    return f"[{'=' * filled + head:<{width}}]"


def moving(still: str, seconds: float) -> str:
    """Return a bar with a mark in it that goes back and forth: work that nobody counts."""
    room = len(still) - len(f"[{_MARK}]")
    step = int(seconds * _STEPS) % (2 * room)
    at = 1 + min(step, 2 * room - step)
    return f"{still[:at]}{_MARK}{still[at + len(_MARK) :]}"


class _LogMeter(Meter):
    """Writes a line each minute."""

    def __init__(self, label: str, stream: TextIO) -> None:
        super().__init__(label)
        self._stream = stream
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        super().__call__(done, total)
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS:
            self._last = now
            self._stream.write(f"{self.label} {', '.join(self.facts(with_bytes=True))}\n")
            self._stream.flush()


class _LiveLine:
    """The live line for rich, as much of it as fits the width."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        yield Text(self.line(options.max_width), no_wrap=True, overflow="crop")

    def line(self, width: int) -> str:
        """Return label, bar and facts, in at most `width` columns if possible."""
        meter = self._meter
        facts = meter.facts(with_bytes=width >= _ROOM_FOR_BYTES)
        widths = [w for w in _FACT_WIDTHS if width >= _ROOM_FOR_BYTES or w != _BYTES_WIDTH]
        cells = [f"{fact:>{w}}" for fact, w in zip_longest(facts, widths, fillvalue="")]
        behind = "  ".join(cells)
        room = width - len(meter.label) - len(behind) - len(" [] ") - 1
        if room < _BAR_WIDTHS.start:
            while len(facts) > 1 and len(f"{meter.label} {'  '.join(facts)}") >= width:
                facts = facts[:-1]
            shown = "  ".join(facts)
            return f"{meter.label[: max(0, width - len(shown) - 2)]} {shown}"
        length = min(room, _BAR_WIDTHS.stop - 1)
        shown = bar(meter.fraction, length) if meter.total else f"[{'':{length}}]"
        if not meter.total or meter.idle_seconds > _PATIENCE:
            shown = moving(shown, meter.idle_seconds)
        return f"{meter.label} {shown} {behind}"


@contextmanager
def metered(label: str, stream: TextIO) -> Iterator[Meter]:
    """Show progress on `stream` while the block runs; the meter is the callback to feed.

    On a terminal the line is gone afterwards.
    """
    if not is_terminal(stream):
        yield _LogMeter(label, stream)
        return
    meter = Meter(label)
    with _live(meter, stream):
        yield meter


def _live(meter: Meter, stream: TextIO) -> Live:
    from rich.console import Console
    from rich.live import Live

    return Live(
        _LiveLine(meter),
        console=Console(file=stream, highlight=False),
        refresh_per_second=10,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Show a mark that moves on a terminal, for work that nobody counts, after half a second."""
    context = click.get_current_context(silent=True)
    asked = context.params if context is not None else {}
    if asked.get("quiet") or asked.get("as_json") or not is_terminal(sys.stderr):
        yield
        return
    done = Event()

    def show() -> None:
        if not done.wait(_PATIENCE):
            with _live(Meter(label), sys.stderr):
                done.wait()

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
