"""One conversion to a path: what is there is found once, and decides what is done.

All is written in the partial folder, of which `staging` is the mechanism; this is its protocol.

                plan.json is there        all is written         all names are given
      NOTHING ---------------------> PARTIAL ----------> COMMITTING -----------> FINISHED
                                        |                    |
                       the machine is   |                    | and a file is neither staged
                       started anew     v                    v nor at its final name
                                     NOTHING   SYNCED       LOST

A run that was killed leaves PARTIAL or COMMITTING behind. With `resume`, the next one goes by what
it finds (without, it begins anew, as at NOTHING):

    NOTHING     checks OUT and begins: there is no partial run, or none that can be relied on
    OTHER       checks OUT and refuses: the partial run is of another source, version or request
    PARTIAL     checks OUT and makes the bands that the journal does not list
    COMMITTING  gives the other files their final names; OUT is half made, and not checked
    SYNCED      the same, but OUT is checked
    LOST        begins anew; OUT may be half made, and is not checked
    FINISHED    has nothing to write; the output is there, no older than the source, and what it
                would write, byte for byte, for another run may have left it

The journal of a killed process can be relied on, for what it wrote is in the page cache. After a
power cut it cannot: `plan.json` holds the id of the boot, and a partial run of another boot counts
as NOTHING, unless all of it was synced and only names were to be given.

That last state, SYNCED, can be forged: who ships a folder with a model in it can ship a partial run
of it too, with all its files, but no boot id of this machine. So it replaces nothing without
`force`. Where OUT is not there yet its files are taken as they are, which is accepted: they are as
good as the model, for they are from the same hand.

What is there is looked at twice: before the folder is made and locked, so that what is refused
leaves no trace, and then once more, for another run may have ended meanwhile. The second counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum, auto

from anamnesis.base.errors import AnamnesisError, OutputError
from anamnesis.base.source import Source
from anamnesis.convert.plan.files import Job, OutputFile, Slice
from anamnesis.convert.resume.destination import Destination
from anamnesis.convert.resume.identity import identity
from anamnesis.convert.resume.partial import NO_ROOM
from anamnesis.convert.resume.staging import ANEW, Staging
from anamnesis.convert.write.pipeline import make_surveys, run_plan
from anamnesis.convert.write.sinks import Sink
from anamnesis.convert.write.tally import Made, Tally
from anamnesis.convert.write.verify import Differs, compared, verify
from anamnesis.schemes.core.codes import Loss
from anamnesis.sources.open import open_source


class State(Enum):
    """What a run finds where its output goes."""

    NOTHING = auto()
    OTHER = auto()
    PARTIAL = auto()
    COMMITTING = auto()
    SYNCED = auto()
    LOST = auto()
    FINISHED = auto()


class Run:
    """One run, which writes what is planned to where it goes."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.request = destination.request
        self.plan = destination.plan
        self.made = Made(self.plan)
        self.staging = Staging(
            destination.out,
            sync=self.request.sync,
            record_bytes=self.made.record.size,
            check=self.request.how.check,
        )
        self.identity = identity(self.destination.checkpoint, self.plan, self.made.record.format)
        self.found: dict[int, bytes] = {}  # by surveys
        self.there = Tally(self.plan)  # what bands come to of an output that is finished

    def perform(self) -> Tally:
        """Write the output, or what is missing of it; return what bands came to."""
        if self._admitted() is State.FINISHED and not self._is_leftover():
            return self.there
        with self.staging:
            try:
                return self._act(self._admitted())
            except OSError as error:
                if error.errno in NO_ROOM:
                    self.staging.discard()
                    if error.filename is None:  # of a call by descriptor
                        error.filename = str(self.destination.out)
                raise
            except OutputError:
                self.staging.discard_new()
                raise
            except AnamnesisError:  # the source is broken: to resume would end here again
                self.staging.discard()
                raise

    # --- what is there -------------------------------------------------------------------------

    def _admitted(self) -> State:
        """Find the state, and refuse an output that must not be written in it."""
        state = self._find_partial() if self.request.resume else State.NOTHING
        if state in (State.COMMITTING, State.LOST):  # the output is half made
            return state
        there = finished(self.destination, self.found) if self.request.resume else None
        if there is not None:
            self.there = there
            return State.FINISHED
        self.destination.check()
        return state

    def _find_partial(self) -> State:
        notes = self.staging.look(self.identity)
        if notes is None or notes.plan is None:
            return State.NOTHING
        if not notes.is_of(self.identity):
            return State.OTHER
        if not (notes.is_of_this_boot or notes.synced):
            return State.NOTHING
        self.found.update(notes.surveys)
        if not notes.committing:
            return State.PARTIAL
        make_surveys(self.plan, self.found, self.found.__setitem__, self.request.how)
        is_whole = self.destination.is_whole(self.staging)
        if notes.is_of_this_boot:
            return State.COMMITTING if is_whole else State.LOST
        return State.SYNCED if is_whole else State.NOTHING

    def _is_leftover(self) -> bool:
        """Tell whether there is a partial run, but none that could be of another plan."""
        notes = self.staging.look(self.identity)
        return notes is not None and (notes.plan is None or notes.is_of(self.identity))

    # --- what is done --------------------------------------------------------------------------

    def _act(self, state: State) -> Tally:
        """Go by the state, with the folder locked."""
        staging = self.staging
        if state is State.FINISHED:
            if self._is_leftover():
                staging.discard()
            return self.there
        if state is State.OTHER:
            raise OutputError(
                f"{staging.out}: the partial run in {staging.folder} belongs to a different source,"
                " version or options",
                remedy=ANEW,
            )
        if state in (State.NOTHING, State.LOST):
            staging.begin(self.identity)
        else:
            staging.resume(self.identity, self.destination.names())
        if state in (State.COMMITTING, State.SYNCED):
            tally, done = self._take_up()
            if not all(done):
                raise staging.damaged("commit")
        else:
            try:
                tally = self._stage()
            except BaseException:
                if not self.request.is_resumable:
                    staging.discard()
                raise
        self.destination.commit(staging)
        return tally

    def _stage(self) -> Tally:
        """Write everything but the final names."""
        staging, destination = self.staging, self.destination
        if self.identity["surveys"]:
            staging.check_room(self.plan.n_bytes + destination.sidecar_bytes())
            for index, found in self.found.items():
                staging.survey_found(index, found)
            make_surveys(self.plan, self.found, staging.survey_found, self.request.how)
        sizes = {f.name: f.n_bytes for f in self.plan.files}
        staging.reserve(sizes, destination.sidecar_bytes())
        tally, done = self._take_up()
        destination.add_sidecars(staging)  # what cannot be copied fails before the work
        for file in self.plan.files:
            for offset, raw in file.fixed:
                staging.write(file.name, offset, raw)
        was_begun = any(done)
        run_plan(self.plan, StagingSink(staging, self.made), tally, self.request.how, done)
        if was_begun:  # bands that an earlier run has read, maybe without seeing the end
            for made in self.plan.weights():
                for part in made.weight.parts:
                    part.source.check()
        for name, offset, raw in tally.patches():
            staging.write(name, offset, raw)
        if self.request.verify:
            written = {file.name: staging.files / file.name for file in self.plan.files}
            try:
                verify(self.plan, written, self.request, destination.config)
            except AnamnesisError:  # what differs is not to be resumed
                staging.discard()
                raise
        destination.checkpoint.check_unchanged()
        return tally

    def _take_up(self) -> tuple[Tally, bytearray]:
        """Return what an earlier run has made: what it came to, and a flag for each band."""
        tally = Tally(self.plan)
        done = bytearray(self.identity["bands"])
        for ordinal, record in self.staging.done():
            loss, sums = self.made.unpack(record)
            if not done[ordinal]:
                done[ordinal] = 1
                tally.add(ordinal, loss, sums)
        return tally, done


def finished(where: Destination, found: dict[int, bytes]) -> Tally | None:
    """Return what the bands of an output came to that is there already; None if it is not.

    No notes say of whose it is, once a run has ended: all of it is made once more, and compared.
    Its bytes may depend on what surveys find, which is added to what they have `found`.
    """
    plan = where.plan
    if not where.is_there():
        return None
    make_surveys(plan, found, found.__setitem__, where.request.how)
    if not where.is_finished():
        return None
    with ExitStack() as stack:
        written: dict[str, Source] = {}
        for file in plan.files:
            written[file.name] = stack.enter_context(open_source(where.place(file.name)))
            written[file.name].settle(0)
        try:
            tally = compared(plan, written, where.request)
        except Differs:
            return None
    where.checkpoint.check_unchanged()
    where.refuse_input()
    return tally


class StagingSink(Sink):
    """Writes at offsets of files in a staging folder, and journals."""

    def __init__(self, staging: Staging, made: Made) -> None:
        self._staging = staging
        self._made = made

    def write(self, job: Job, data: Sequence[memoryview], loss: Loss, sums: Sequence[int]) -> None:
        """Write, then note that it is written."""
        super().write(job, data, loss, sums)
        self._staging.finished(job.ordinal, self._made.pack(loss, sums))

    def take(self, file: OutputFile, piece: Slice, place: int, data: memoryview) -> None:
        self._staging.write(file.name, piece.begin + place, data)
