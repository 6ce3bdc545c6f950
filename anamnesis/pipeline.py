"""Decode a plan's weights band by band on a few threads, and hand each band to a sink at once.

Peak memory is a few megabytes a thread: no tensor is ever held whole, and a band is still in cache
when it is written.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from anamnesis.plan import Job, Plan
from anamnesis.schemes.weight import Scratch
from anamnesis.staging import Done, Staging
from anamnesis.workers import run

__all__ = [
    "Progress",
    "Sink",
    "StagingSink",
    "StreamSink",
    "Writable",
    "count_overflows",
    "decode_plan",
    "write_all",
]

Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Sink(Protocol):
    """Where decoded bands go; called from several threads.

    Attributes
    ----------
    in_order : bool
        Whether a band waits for those before it.
    """

    in_order: bool

    def write(self, job: Job, data: memoryview, n_overflows: int) -> None:
        """Take the bytes of one band; `data` is reused afterwards."""

    def abandon(self) -> None:
        """Let no band wait for another: there was a failure."""


class Writable(Protocol):
    """The least that is asked of an output stream."""

    def write(self, data: bytes, /) -> object:
        """Write `data`; return how much of it was written, if that may be less than all."""


def write_all(stream: Writable, data: bytes) -> None:
    """Write to a stream until it has taken all: one without a buffer may take less at a time."""
    while data:
        n = stream.write(data)
        if type(n) is not int or n >= len(data):
            return
        data = data[n:]


class StagingSink:
    """Writes at offsets of files in a staging folder, and journals."""

    in_order = False

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    def write(self, job: Job, data: memoryview, n_overflows: int) -> None:
        """Write, then note that it is written."""
        self._staging.write(job.file.name, job.offset, data)
        self._staging.finished(job.ordinal, n_overflows)

    def abandon(self) -> None:
        """Nothing waits here."""


class StreamSink:
    """Writes to a stream that cannot seek: bands wait for their turn."""

    in_order = True

    def __init__(self, stream: Writable) -> None:
        self._stream = stream
        self._turn = threading.Condition()
        self._next = 0
        self._broken = False

    def write(self, job: Job, data: memoryview, n_overflows: int) -> None:
        """Write once all bands before are written."""
        with self._turn:
            self._turn.wait_for(lambda: self._next == job.ordinal or self._broken)
            if self._broken:
                return
            write_all(self._stream, bytes(data))
            self._next += 1
            self._turn.notify_all()

    def abandon(self) -> None:
        """Wake up what waits for a band that will not come."""
        with self._turn:
            self._broken = True
            self._turn.notify_all()


def decode_plan(
    plan: Plan,
    sink: Sink,
    *,
    threads: int,
    level: int,
    progress: Progress | None = None,
    done: Done | None = None,
) -> Counter[str]:
    """Decode all bands of a plan, but those that are `done`, into a sink.

    Returns
    -------
    Counter
        For each tensor's name how many values became infinite by the rounding, where any did.
    """
    overflows: Counter[str] = Counter()
    written = [0]
    tally = threading.Lock()

    def count(job: Job, n_overflows: int) -> None:
        written[0] += job.n_bytes
        if n_overflows:
            overflows[job.tensor.name] += n_overflows

    def is_done(job: Job) -> bool:
        if done is None or not done.flags[job.ordinal]:
            return False
        with tally:
            count(job, done.overflows.get(job.ordinal, 0))
        return True

    def pending() -> Iterator[list[Job]]:
        # A run in one thread would keep the others waiting until all of it is written.
        runs = ([job] for job in plan.jobs()) if sink.in_order else plan.runs()
        for jobs in runs:
            left = [job for job in jobs if not is_done(job)]
            if left:
                yield left

    def worker() -> Callable[[list[Job]], None]:
        scratch = Scratch()
        buffer = bytearray()

        def decode_job(job: Job) -> None:
            nonlocal buffer
            if len(buffer) < job.n_bytes:
                buffer = bytearray()  # gone before the larger one is made
                buffer = bytearray(job.n_bytes)
            out = memoryview(buffer)[: job.n_bytes]
            n = job.tensor.weight.decode(job.band, job.tensor.dtype, scratch, out, level)
            sink.write(job, out, n)
            with tally:
                count(job, n)

        def decode_jobs(jobs: list[Job]) -> None:
            for job in jobs:
                decode_job(job)

        return decode_jobs

    def report(_: list[Job]) -> None:
        if progress is not None:
            progress(written[0], plan.n_tensor_bytes)

    if progress is not None:
        progress(0, plan.n_tensor_bytes)
    run(pending(), worker, threads, report, sink.abandon)
    if progress is not None:
        progress(written[0], plan.n_tensor_bytes)
    return overflows


def count_overflows(plan: Plan, done: Done) -> Counter[str]:
    """Return what `decode_plan` returned when all of a plan was done."""
    overflows: Counter[str] = Counter()
    if done.overflows:
        for job in plan.jobs():
            if job.ordinal in done.overflows:
                overflows[job.tensor.name] += done.overflows[job.ordinal]
    return overflows
