"""How far a conversion is, and how fast: what every picture of its progress shows."""

from __future__ import annotations

import time

from anamnesis.base.printable import format_size


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
            facts += [f"{format_size(round(self.rate))}/s", f"{_coarse(left)} left"]
        return facts


def _coarse(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 59.5 else format_duration(seconds)
