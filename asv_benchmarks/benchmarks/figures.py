"""What a figure of asv's is, and how it is taken.

asv takes a rise for a regression, so every figure is one that should fall: a time, a multiple of
another's time, or memory. A benchmark with `peer_` in its name measures something else than this
package; asv.conf.json keeps it out of the regressions.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

TURNS = 9
SLOWDOWN = "ANAMNESIS_BENCH_SLOWDOWN"  # a test's: how often a kernel is run where once is due

Work = Callable[[], object]
Function = TypeVar("Function", bound=Callable[..., object])


def figure(pretty_name: str, unit: str | None = None) -> Callable[[Function], Function]:
    """Return a decorator that says what asv's pages call a benchmark, and its unit."""

    def mark(function: Function) -> Function:
        function.pretty_name = pretty_name  # type: ignore[attr-defined]
        if unit is not None:  # asv knows that of its own kinds
            function.unit = unit  # type: ignore[attr-defined]
        return function

    return mark


# What a thread spends, whoever else is at work; Windows counts that in 64ths of a second.
_clock = time.perf_counter if sys.platform == "win32" else time.thread_time


def best_time(work: Work, turns: int = TURNS) -> float:
    """Seconds of CPU time of the fastest of some turns, on this thread."""
    best = float("inf")
    for _ in range(turns):
        start = _clock()
        work()
        best = min(best, _clock() - start)
    return best


def times_another(work: Work, another: Work, turns: int = TURNS) -> float:
    """How many times as long as another some work takes: the fastest of each, in turns."""
    ours = others = float("inf")
    for _ in range(turns):
        others = min(others, best_time(another, 1))
        ours = min(ours, best_time(work, 1))
    return ours / others


def slowed(work: Work) -> Work:
    """Return the work, done as often as ANAMNESIS_BENCH_SLOWDOWN says."""
    times = int(os.environ.get(SLOWDOWN, "1"))
    return work if times == 1 else lambda: [work() for _ in range(times)]


@contextmanager
def skipped_if_missing() -> Iterator[None]:
    """Let asv skip what the commit that it measures does not have: a module, a kernel, a level."""
    try:
        yield
    except (ImportError, AttributeError, KeyError, TypeError) as missing:
        raise NotImplementedError(f"this commit has it not: {missing}") from missing
