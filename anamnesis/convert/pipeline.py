"""Decode a plan's weights band by band on a few threads, and hand each band to a sink at once.

Peak memory is a few megabytes a thread: no tensor is ever held whole, and a band is still in cache
when it is written.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

from anamnesis.base.workers import run
from anamnesis.convert.plan import Job, Plan
from anamnesis.convert.sinks import Sink
from anamnesis.convert.staging import Done
from anamnesis.schemes.base import Scratch

__all__ = ["Progress", "count_overflows", "decode_plan"]

Progress = Callable[[int, int], None]  # bytes done, bytes in all


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
