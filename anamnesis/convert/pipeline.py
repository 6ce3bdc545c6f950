"""Make a plan's weights band by band on a few threads, and hand each band to a sink at once.

Peak memory is a few megabytes a thread: no tensor is ever held whole, and a band is still in cache
when it is written.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from anamnesis.base.workers import run
from anamnesis.convert.plan import Job, Plan
from anamnesis.convert.request import Progress
from anamnesis.convert.sinks import Sink
from anamnesis.convert.staging import Done
from anamnesis.schemes.base import Scratch

__all__ = ["Progress", "count_overflows", "run_plan"]


def run_plan(
    plan: Plan,
    sink: Sink,
    *,
    threads: int,
    level: int,
    progress: Progress | None = None,
    done: Done | None = None,
) -> Counter[str]:
    """Make all bands of a plan, but those that are `done`, and hand them to a sink.

    Returns
    -------
    Counter
        For each weight's name how many values became infinite by the rounding, where any did.
    """
    tally = _Tally(plan, progress, done)
    # Where bands wait for each other, a run in one thread would keep the others waiting.
    runs = ([job] for job in plan.jobs()) if sink.in_order else plan.runs()
    tally.report()
    run(
        tally.pending(runs),
        lambda: _Worker(sink, tally, level),
        threads,
        tally.report,
        sink.abandon,
    )
    tally.report()
    return tally.overflows


class _Tally:
    """What is done of a plan; counted by several threads."""

    def __init__(self, plan: Plan, progress: Progress | None, done: Done | None) -> None:
        self.overflows: Counter[str] = Counter()
        self._n_bytes = 0
        self._total = plan.n_tensor_bytes
        self._progress = progress
        self._done = done
        self._lock = threading.Lock()

    def count(self, job: Job, n_overflows: int) -> None:
        """Count a band."""
        with self._lock:
            self._n_bytes += job.n_bytes
            if n_overflows:
                self.overflows[job.weight.name] += n_overflows

    def pending(self, runs: Iterator[list[Job]]) -> Iterator[list[Job]]:
        """Yield what an earlier run has not done; count what it has."""
        done = self._done
        if done is None:
            yield from runs
            return
        for jobs in runs:
            left = [job for job in jobs if not done.flags[job.ordinal]]
            for job in jobs:
                if done.flags[job.ordinal]:
                    self.count(job, done.overflows.get(job.ordinal, 0))
            if left:
                yield left

    def report(self, _: list[Job] | None = None) -> None:
        """Tell whoever wants to know how far it is."""
        if self._progress is not None:
            self._progress(self._n_bytes, self._total)


class _Worker:
    """One thread's part: its scratch, and a buffer that bands are made in."""

    def __init__(self, sink: Sink, tally: _Tally, level: int) -> None:
        self._sink = sink
        self._tally = tally
        self._level = level
        self._scratch = Scratch()
        self._buffer = bytearray()

    def __call__(self, jobs: list[Job]) -> None:
        for job in jobs:
            outs = self._outs(job)
            made = job.weight
            loss = made.encoding.take(made.weight, job.band, b"", self._scratch, outs, self._level)
            self._sink.write(job, outs, loss.overflows)
            self._tally.count(job, loss.overflows)

    def _outs(self, job: Job) -> list[memoryview]:
        """Return room for each slice of a band."""
        n_bytes = job.n_bytes
        if len(self._buffer) < n_bytes:
            self._buffer = bytearray()  # gone before the larger one is made
            self._buffer = bytearray(n_bytes)
        view = memoryview(self._buffer)
        outs = []
        begin = 0
        for piece in job.slices:
            outs.append(view[begin : begin + piece.total])
            begin += piece.total
        return outs


def count_overflows(plan: Plan, done: Done) -> Counter[str]:
    """Return what `run_plan` returned when all of a plan was done."""
    overflows: Counter[str] = Counter()
    if done.overflows:
        for job in plan.jobs():
            if job.ordinal in done.overflows:
                overflows[job.weight.name] += done.overflows[job.ordinal]
    return overflows
