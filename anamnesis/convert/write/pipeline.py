"""A plan's weights, made band by band on a few threads and handed to a sink.

Peak memory is a few megabytes a thread: no tensor is ever held whole, and a band is still in cache
when it is written. Where the bytes of a weight depend on all of it, it is passed over once before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from anamnesis.base.crc import crc32, share
from anamnesis.base.workers import run
from anamnesis.convert.plan.files import Job, OutputFile, OutputWeight
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import How
from anamnesis.convert.write.sinks import Sink
from anamnesis.convert.write.tally import Tally
from anamnesis.schemes.core.bands import THREAD_BYTES, Band
from anamnesis.schemes.core.codes import VALUES_SLOT, Survey, Task
from anamnesis.schemes.core.weight import Scratch, decode_run

# Bytes of a band's values and of what they become; the rest is read.
_SHARE = THREAD_BYTES // 4 * 3


def run_plan(
    plan: Plan,
    sink: Sink,
    tally: Tally,
    how: How,
    done: bytearray | None = None,
) -> None:
    """Make all bands of a plan, but those that are `done`, and hand them to a sink."""
    total = plan.n_tensor_bytes

    def report(_: object = None) -> None:
        how.tell(tally.n_bytes, total)

    if done is not None and any(done):  # at once, for what is found done says nothing of the speed
        tally.count_bytes(sum(job.n_bytes for job in plan.jobs() if done[job.ordinal]))
    # Where bands wait for each other, a run in one thread would keep the others waiting.
    runs = ([job] for job in plan.jobs()) if sink.in_order else plan.runs()
    if done is not None:
        left = ([job for job in jobs if not done[job.ordinal]] for jobs in runs)
        runs = (jobs for jobs in left if jobs)
    room = None if plan.is_plain else _Room(how.threads)

    def abandon() -> None:
        if room is not None:
            room.abandon()
        sink.abandon()

    report()
    run(
        runs if room is None else room.admitted(runs),
        lambda: _Worker(sink, tally, room, how, plan),
        how.threads,
        report,
        abandon,
    )
    report()


class _Room:
    """Memory for encoders: as many shares as there are threads, of which most bands take one.

    Where an encoding wants many rows at once, a band may take several: then fewer threads work.
    Shares are given in the order of the bands, so that none that waits for its turn is in the way
    of one before it.
    """

    def __init__(self, threads: int) -> None:
        self._n_shares = self._free = threads
        self._change = threading.Condition()
        self._broken = False

    def shares(self, jobs: list[Job]) -> int:
        """Return how many shares some bands take, one after the other."""
        need = max([job.n_bytes + job.weight.values_bytes(job.band) for job in jobs])
        return min(self._n_shares, max(1, -(-need // _SHARE)))

    def admitted(self, runs: Iterator[list[Job]]) -> Iterator[list[Job]]:
        """Yield runs, each when there is room for it; one caller at a time may ask."""
        for jobs in runs:
            n = self.shares(jobs)
            with self._change:
                while self._free < n and not self._broken:
                    self._change.wait()
                self._free -= n
            yield jobs

    def leave(self, shares: int) -> None:
        with self._change:
            self._free += shares
            self._change.notify_all()

    def abandon(self) -> None:
        """Wake up what waits: there was a failure."""
        with self._change:
            self._broken = True
            self._change.notify_all()


class _Worker:
    """One thread's part: its scratch, and a buffer that bands are made in."""

    def __init__(self, sink: Sink, tally: Tally, room: _Room | None, how: How, plan: Plan) -> None:
        self._sink = sink
        self._tally = tally
        self._room = room
        self._how = how
        self._measure = plan.measures
        self._scales = plan.scales
        self._scratch = Scratch(how.level)
        self._buffer = bytearray()

    def __call__(self, jobs: list[Job]) -> None:
        shares = 0 if self._room is None else self._room.shares(jobs)
        for job in jobs:
            self._how.check()
            if len(self._buffer) < job.n_bytes:
                self._buffer = bytearray()  # gone before the larger one is made
                self._buffer = bytearray(job.n_bytes)
            view, outs, begin = memoryview(self._buffer), [], 0
            for piece in job.slices:
                outs.append(view[begin : begin + piece.total])
                begin += piece.total
            made = job.weight
            if job.band.start == 0:  # the bytes are soon read anyway
                self._scales.look_at(made.weight)
            task = Task(job.band, made.weight.shape, made.found, self._how.level, self._measure)
            loss = made.encoding.take(made.weight, task, self._scratch, outs)
            sums = _shares(job, outs) if job.file.writer.wants_sums else []
            self._sink.write(job, outs, loss, sums)
            self._tally.add(job.ordinal, loss, sums, job.n_bytes)
        if shares > 1:  # others need what is not needed here any more
            del view, outs
            self._scratch, self._buffer = Scratch(self._how.level), bytearray()
        if self._room is not None:
            self._room.leave(shares)


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
    how: How,
    file: OutputFile | None = None,
) -> None:
    """Pass over the weights whose bytes depend on all of them, and lay the plan out for good.

    Or one file of it alone.
    """
    found = dict(known)

    def report(_: object) -> None:
        how.tell(0, plan.n_tensor_bytes)

    for made in plan.to_survey if file is None else plan.surveyed_for(file):
        if made.index in found:
            continue
        survey, bands = made.encoding.encoder.survey(made.weight.shape), made.bands()
        assert survey is not None
        first = next(iter(bands), Band(0, 0))
        shares = max(1, -(-made.values_bytes(first) // _SHARE))
        runs = ([(band, band) for band in some] for some in bands.runs())
        few = how._replace(threads=max(1, how.threads // shares))
        found[made.index] = run_survey(made, survey, runs, few, report)
        note(made.index, found[made.index])
    if found:
        plan.settle(found)


def run_survey(
    made: OutputWeight,
    survey: Survey,
    runs: Iterator[list[tuple[Band, Band]]],
    how: How,
    after: Callable[[object], None] | None = None,
) -> bytes:
    """Let a survey see bands, each with its place among what it sees; return what it finds."""
    dtype = made.encoding.values

    def see(scratch: Scratch, bands: list[tuple[Band, Band]]) -> None:
        for band, place in bands:
            how.check()
            values = scratch.room(VALUES_SLOT, dtype.n_bytes(band.stop - band.start))
            decode_run(made.weight, band, dtype, scratch, values)
            survey.see(values, place, how.level)

    run(runs, lambda: partial(see, Scratch(how.level)), how.threads, after)
    return survey.found()
