"""The parts of an output: files made whole by anyone, committed by one process.

They are made by shares, or by an executor: a pool of processes, Dask, or any other.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import contextmanager, suppress
from functools import partial
from heapq import heapreplace
from typing import Any

from anamnesis.base.errors import AnamnesisError, OutputError, UnsupportedError
from anamnesis.base.printable import abbreviate
from anamnesis.base.version import __version__
from anamnesis.convert.request.request import How
from anamnesis.convert.request.share import Share
from anamnesis.convert.resume.destination import Destination
from anamnesis.convert.resume.identity import boot_id, difference, identity
from anamnesis.convert.resume.parts_folder import PLAN
from anamnesis.convert.resume.protocol import finished
from anamnesis.convert.write.one_file import write_file
from anamnesis.convert.write.pipeline import make_surveys
from anamnesis.convert.write.tally import Made, Tally
from anamnesis.sources.retries import at_once

_AT_ONCE = 8  # notes that are read
_SECONDS = 30  # until a scheduler counts as gone
_OF_THREAD = threading.local()  # the plan that it has made last


class Parts:
    """All files of a plan, and which of them are made."""

    def __init__(self, where: Destination) -> None:
        self.where, self.plan = where, where.plan
        self.identity = identity(where.checkpoint, self.plan, Made(self.plan).record.format)
        self.folder = where.parts()
        self.sizes = [file.n_bytes for file in self.plan.files]
        digest = hashlib.sha256(json.dumps(self.identity).encode()).hexdigest()
        self._own = f"{PLAN}{digest[:16]}"

    def begin(self) -> None:
        """Say what the parts are of; refuse an output that is there, and parts of another plan."""
        self.check()
        if not self.folder.is_committing:
            self.where.check()
        self.folder.begin()
        self.folder.note(self._own, self.identity)
        self.check()  # once more: others may have begun meanwhile

    def check(self) -> None:
        """Refuse parts of another plan."""
        for name in self.folder.names():
            self.compare(self.folder.read(name) if name.startswith(PLAN) else None)

    def check_begun(self) -> None:
        """Refuse to go on behind another run, which has removed the notes."""
        if self.folder.read(self._own) is None:
            raise OutputError(
                f"{self.where.shown}: another run ended meanwhile and removed the notes in"
                f" {self.folder.path}"
            )

    def compare(self, theirs: Mapping[str, Any] | None) -> None:
        """Refuse what is of another plan."""
        other = difference(self.identity, theirs) if theirs else ""
        if other:
            raise OutputError(
                f"{self.where.shown}: the parts in {self.folder.path} are of {other}; remove them,"
                " or name another output"
            )

    def made(self, i: int) -> dict[str, Any] | None:
        """Return what a file came to, by its place in the plan; None if it is not made.

        What was not synced is relied on by the boot alone in which it was written.
        """
        note = self.folder.read(_stem(i))
        if note is None or note.get("boot") not in (None, boot_id()):
            return None
        is_here = self.folder.size(self.plan.files[i].name) == note.get("n_bytes")
        return note if is_here or self.folder.is_committing else None

    def missing(self) -> list[int]:
        """Return the places of the files that are not made."""
        return [i for i, note in enumerate(self._notes()) if note is None]

    def _notes(self) -> list[dict[str, Any] | None]:
        return list(at_once(self.made, range(len(self.sizes)), _AT_ONCE))

    def make(self, i: int, how: How, *, sync: bool) -> None:
        """Make a file; its bytes depend on nobody else's work."""
        self.check_begun()
        where, file = self.where, self.plan.files[i]
        own = {made.index for made in file.weights}
        found: dict[int, bytes] = {}
        make_surveys(self.plan, {}, found.__setitem__, how, file)
        part = self.plan.only(file)
        with self.folder.room(_stem(i), file, sync=sync) as room:
            tally = write_file(part, room, where.request, how, where.config)
            where.checkpoint.check_unchanged()
        note = {
            "n_bytes": file.n_bytes,
            "boot": None if sync or not where.is_local else boot_id(),
            "found": {str(index): raw.hex() for index, raw in found.items() if index in own},
            "odd_scales": part.scales.counts(),
            **tally.account(),
        }
        self.folder.note(_stem(i), note)
        try:
            self.check_begun()
        except OutputError:
            self.folder.forget(_stem(i))  # it came too late
            raise

    def make_share(self, share: Share, how: How) -> list[int]:
        """Make a share of the files, and return their places; all shares take about as long."""
        mine = _places(share, self.sizes)
        total, done = sum([self.sizes[i] for i in mine]), 0
        self.begin()
        for i in mine:
            if self.made(i) is None:
                self.make(i, how._replace(progress=partial(_tell, how, done, total)), sync=True)
            done += self.sizes[i]
            how.tell(done, total)
        return mine

    def commit(self) -> Tally:
        """Give all files their final names; return what all bands came to."""
        tally: Tally = self.folder.commit(self.where, self._joined)
        return tally

    def _joined(self) -> Tally:
        """Return what all files came to, and lay the plan out by it; refuse if one is missing."""
        if not self.folder.names():
            none = f"{self.where.shown}: has no parts to commit"
            raise OutputError(none, remedy="make them first")
        self.check()
        notes = self._notes()
        pairs = zip(self.plan.files, notes, strict=True)
        left = [file.name for file, note in pairs if note is None]
        if left:
            self.check_begun()
            n = f"{len(left):,} of {len(notes):,} files"
            what = f"{self.where.shown}: {n} are not made: {abbreviate(left)}"
            raise OutputError(what, remedy="make them first")
        try:
            made = [note for note in notes if note]
            found = {
                int(i): bytes.fromhex(raw) for note in made for i, raw in note["found"].items()
            }
            self.plan.settle(found)
            tally = Tally(self.plan)
            seen = {part.name for of in self.plan.weights() for part in of.weight.parts}
            for note in made:
                tally.take(note)
                self.plan.scales.take(seen, note["odd_scales"])
            return tally
        except (KeyError, TypeError, ValueError, AttributeError):
            raise OutputError(
                f"{self.where.shown}: what {self.folder.path} says of the files is damaged; remove"
                " it, and begin anew"
            ) from None


def _stem(i: int) -> str:
    return f"{i:05}"


def _tell(how: How, before: int, total: int, done: int, _: int) -> None:
    how.tell(before + done, total)


def _places(share: Share, sizes: list[int]) -> list[int]:
    loads, mine = [(0, number) for number in range(1, share.of + 1)], []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, number = loads[0]
        heapreplace(loads, (load + sizes[i] + 1, number))  # so that empty files are shared, too
        mine += [i] if number == share.number else []
    return sorted(mine)


def make_all(parts: Parts, planning: Callable[[], Destination]) -> Tally:
    """Make all files that are not made, here or by an executor, and commit them.

    `planning` returns the destination anew, in any process.
    """
    where, request = parts.where, parts.where.request
    if request.resume and not parts.folder.names():
        there = finished(where, {})
        if there is not None:
            return there
    if request.executor is None:
        parts.make_share(Share(1, 1), request.how)
        return parts.commit()
    try:
        payload = pickle.dumps(planning)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        what = f"the conversion cannot be sent to other processes: {error}"
        raise UnsupportedError(what, remedy="leave executor=... out") from None
    parts.begin()
    with _opened(request.executor) as pool:
        _submit(pool, parts, payload, request.how)
    return parts.commit()


def _submit(pool: Any, parts: Parts, payload: bytes, how: How) -> None:
    """Let a pool make what is missing, large files first, and wait for all."""
    missing = sorted(parts.missing(), key=lambda i: -parts.sizes[i])
    total = sum(parts.sizes)
    done = total - sum([parts.sizes[i] for i in missing])
    how.tell(done, total)
    with _failing(parts):
        jobs = {pool.submit(_make, parts.identity, payload, i, boot_id()): i for i in missing}
    try:
        for job in as_completed(jobs):
            with _failing(parts):
                job.result()
            done += parts.sizes[jobs[job]]
            how.tell(done, total)
    finally:
        for job in jobs:
            with suppress(NotImplementedError):  # parsl's futures cannot
                job.cancel()


@contextmanager
def _failing(parts: Parts) -> Iterator[None]:
    """Make one error of those of engines, of which each has others."""
    try:
        yield
    except (AnamnesisError, OSError, MemoryError):
        raise
    except Exception as error:
        n, left = len(parts.sizes), len(parts.missing())
        raise OutputError(
            f"{parts.where.shown}: a worker failed: {type(error).__name__}: {error};"
            f" {n - left:,} of {n:,} files are made, and kept: run again to make the others"
        ) from error


def _make(identity: dict[str, Any], payload: bytes, i: int, boot: str) -> None:
    """Make a file, in a worker, unless it is made; one of the parent's boot needs no sync."""
    if identity["version"] != __version__:  # which may not be able to read the rest
        raise OutputError(
            f"a worker has version {__version__} of anamnesis, and this is {identity['version']}"
        )
    key, parts = getattr(_OF_THREAD, "last", (None, None))
    if parts is None or key != (identity, payload):  # the plan is made anew, once for each thread
        parts = Parts(pickle.loads(payload)())
        parts.compare(identity)
        _OF_THREAD.last = (identity, payload), parts
    if parts.made(i) is None:
        request = parts.where.request
        parts.make(i, request.how, sync=request.sync or boot != boot_id())


@contextmanager
def _opened(executor: Any) -> Iterator[Any]:
    """Yield an executor; one that a text names is closed behind it."""
    if not isinstance(executor, str):
        yield executor
        return
    kind, _, where = executor.partition(":")
    with _pool(int(where)) if kind == "processes" else _dask(executor, where) as pool:
        yield pool if kind == "processes" else pool.get_executor(pure=False)


def _pool(n: int) -> Any:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_all_start_methods, get_context

    # One process imports all, and the workers are its copies; Windows has no such thing.
    can_copy = "forkserver" in get_all_start_methods()
    context: Any = get_context("forkserver" if can_copy else "spawn")
    context.set_forkserver_preload(
        ["numpy", "anamnesis.opening", "anamnesis.convert.conversion", __name__]
    )
    return ProcessPoolExecutor(n, context, _end_with_parent)


def _end_with_parent() -> None:
    """End a worker of a pool once its parent is killed; it would wait for ever."""
    from multiprocessing import parent_process

    def wait() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _dask(executor: str, where: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        what = f"{executor} needs Dask, which is not installed: pip install distributed"
        raise UnsupportedError(what) from None
    connect: Any = Client
    try:
        return connect(f"tcp:{where}", set_as_default=False, timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise OutputError(f"{executor}: no scheduler answers there: {error}") from None
