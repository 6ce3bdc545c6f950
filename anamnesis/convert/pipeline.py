"""Make a plan's weights band by band on a few threads, and hand each band to a sink at once.

Peak memory is a few megabytes a thread: no tensor is ever held whole, and a band is still in cache
when it is written. Where the bytes of a weight depend on all of it, it is passed over once before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anamnesis.base.crc import crc32, share
from anamnesis.base.workers import run
from anamnesis.convert.plan import Job, OutputWeight, Plan
from anamnesis.convert.request import Progress
from anamnesis.convert.sinks import Sink
from anamnesis.convert.tally import Tally
from anamnesis.schemes.base import Band, Scratch, decode_run
from anamnesis.schemes.encoding import VALUES_SLOT, Survey

__all__ = ["Progress", "make_surveys", "run_plan"]


def run_plan(
    plan: Plan,
    sink: Sink,
    tally: Tally,
    *,
    threads: int,
    level: int,
    progress: Progress | None = None,
    done: bytearray | None = None,
) -> None:
    """Make all bands of a plan, but those that are `done`, and hand them to a sink.

    Parameters
    ----------
    plan : Plan
    sink : Sink
    tally : Tally
        Where bands are counted; those that are done are, but for their bytes.
    threads, level : int
    progress : function, optional
    done : bytearray, optional
        For each band 1 if it is written.
    """
    total = plan.n_tensor_bytes

    def report(_: object = None) -> None:
        if progress is not None:
            progress(tally.n_bytes, total)

    # Where bands wait for each other, a run in one thread would keep the others waiting.
    runs = ([job] for job in plan.jobs()) if sink.in_order else plan.runs()
    report()
    run(
        _pending(runs, tally, done),
        lambda: _Worker(sink, tally, level, measure=plan.measures),
        threads,
        report,
        sink.abandon,
    )
    report()


def _pending(
    runs: Iterator[list[Job]], tally: Tally, done: bytearray | None
) -> Iterator[list[Job]]:
    """Yield what an earlier run has not done; count the bytes of what it has."""
    if done is None:
        yield from runs
        return
    for jobs in runs:
        left = [job for job in jobs if not done[job.ordinal]]
        tally.count_bytes(sum([job.n_bytes for job in jobs if done[job.ordinal]]))
        if left:
            yield left


class _Worker:
    """One thread's part: its scratch, and a buffer that bands are made in."""

    def __init__(self, sink: Sink, tally: Tally, level: int, *, measure: bool) -> None:
        self._sink = sink
        self._tally = tally
        self._level = level
        self._measure = measure
        self._scratch = Scratch()
        self._buffer = bytearray()

    def __call__(self, jobs: list[Job]) -> None:
        for job in jobs:
            outs = self._outs(job)
            made = job.weight
            loss = made.encoding.take(
                made.weight,
                job.band,
                made.found,
                self._scratch,
                outs,
                self._level,
                measure=self._measure,
            )
            sums = _shares(job, outs) if job.file.writer.wants_sums else []
            self._sink.write(job, outs, loss, sums)
            self._tally.add(job.ordinal, loss, sums)
            self._tally.count_bytes(job.n_bytes)

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


def _shares(job: Job, outs: list[memoryview]) -> list[int]:
    """Return what a band adds to the CRC-32 of each part."""
    shares = []
    for piece, raw in zip(job.slices, outs, strict=True):
        crc = 0
        for place, some in piece.places(raw):
            crc ^= share(crc32(some), piece.part.n_bytes - place - len(some))
        shares.append(crc)
    return shares


# --- the first pass -----------------------------------------------------------------------------


def make_surveys(
    plan: Plan,
    known: dict[int, bytes],
    note: Callable[[int, bytes], None],
    *,
    threads: int,
    level: int,
    progress: Progress | None = None,
) -> None:
    """Pass over the weights whose bytes depend on all of them, and lay the plan out for good.

    Parameters
    ----------
    plan : Plan
    known : dict of int to bytes
        What an earlier run has found, by the index of the weight.
    note : function
        Called with the index of a weight and what was found, once it is.
    threads, level : int
    progress : function, optional
        Called now and then with no bytes done.
    """
    found = dict(known)
    for made in plan.to_survey:
        if made.index not in found:
            found[made.index] = _survey(plan, made, threads, level, progress)
            note(made.index, found[made.index])
    if found:
        plan.settle(found)


def _survey(
    plan: Plan, made: OutputWeight, threads: int, level: int, progress: Progress | None
) -> bytes:
    survey = made.encoding.survey(made.weight.shape)
    assert survey is not None

    def report(_: object = None) -> None:
        if progress is not None:
            progress(0, plan.n_tensor_bytes)

    run(made.bands().runs(), lambda: _Surveyor(made, survey, level), threads, report)
    return survey.found()


class _Surveyor:
    """One thread's part of a first pass."""

    def __init__(self, made: OutputWeight, survey: Survey, level: int) -> None:
        self._made = made
        self._survey = survey
        self._level = level
        self._scratch = Scratch()

    def __call__(self, bands: list[Band]) -> None:
        dtype = self._made.encoding.values
        for band in bands:
            values = self._scratch.room(VALUES_SLOT, dtype.n_bytes(band.stop - band.start))
            decode_run(self._made.weight, band, dtype, self._scratch, values, self._level)
            self._survey.see(values, band, self._level)
