"""Files of an output made by an executor: a pool of processes, Dask, or any other."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager
from typing import Any

from anamnesis.base.errors import AnamnesisError, OutputError, UnsupportedError
from anamnesis.base.version import __version__
from anamnesis.convert.parts.parts import Parts
from anamnesis.convert.request.request import How
from anamnesis.convert.resume.destination import Destination
from anamnesis.convert.resume.protocol import Run
from anamnesis.convert.resume.staging import boot_id
from anamnesis.convert.write.tally import Tally

Planning = Callable[[], Destination]  # makes the plan anew, wherever it is called

_SECONDS = 30  # until a scheduler counts as gone
_OF_THREAD = threading.local()  # the plan that it has made last


def make_all(parts: Parts, executor: Any, planning: Planning, how: How) -> Tally:
    """Let an executor make all files that are not made, and commit them."""
    if parts.where.request.resume and not parts.folder.names():
        run = Run(parts.where)
        if run.is_finished():
            return run.there
    try:
        payload = pickle.dumps(planning)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise UnsupportedError(
            f"the conversion cannot be sent to other processes: {error}",
            remedy="leave executor=... out",
        ) from None
    parts.begin()
    missing = parts.missing()
    try:
        with _opened(executor) as pool:
            _submit(pool, parts, missing, payload, how)
    except (AnamnesisError, OSError, MemoryError, ImportError):
        raise
    except Exception as error:  # the engine's own, of which each has others
        left, n = len(parts.missing()), len(parts.plan.files)
        raise OutputError(
            f"{parts.where.out}: a worker failed: {type(error).__name__}: {error}; {n - left:,} of"
            f" {n:,} files are made, and kept: run again to make the others"
        ) from error
    return parts.commit()


def _submit(pool: Any, parts: Parts, missing: list[int], payload: bytes, how: How) -> None:
    """Let a pool make some files, large ones first, and wait for all."""
    sizes = {i: parts.plan.files[i].n_bytes for i in missing}
    total = sum(file.n_bytes for file in parts.plan.files)
    done = total - sum(sizes.values())
    jobs = {
        pool.submit(_make, parts.identity, payload, i, boot_id()): i
        for i in sorted(missing, key=lambda i: -sizes[i])
    }
    how.tell(done, total)
    try:
        for job in as_completed(jobs):
            job.result()
            done += sizes[jobs[job]]
            how.tell(done, total)
    except BaseException:
        for job in jobs:
            job.cancel()
        raise


def _make(identity: dict[str, Any], payload: bytes, i: int, boot: str) -> None:
    """Make a file, in a worker, unless it is made; one of the same boot is as good as unsynced."""
    if identity["version"] != __version__:  # which may not be able to read the rest
        raise OutputError(
            f"a worker has version {__version__} of anamnesis, and this is {identity['version']}"
        )
    parts = _planned(identity, payload)
    if parts.made(i) is None:
        request = parts.where.request
        parts.make(i, request.how, sync=request.sync or boot != boot_id())


def _planned(identity: dict[str, Any], payload: bytes) -> Parts:
    """Return the parts of a plan that is made anew, once for each thread."""
    key = (identity, payload)
    if getattr(_OF_THREAD, "key", None) != key:
        _OF_THREAD.key = None
        _OF_THREAD.parts = Parts(pickle.loads(payload)())
        _OF_THREAD.parts.compare(identity)
        _OF_THREAD.key = key
    _OF_THREAD.parts.check()
    parts: Parts = _OF_THREAD.parts
    return parts


def _end_with_parent() -> None:
    """End a worker of a pool once its parent is killed; it would wait for ever."""
    from multiprocessing import parent_process

    def wait() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _opened(executor: Any) -> Iterator[Any]:
    """Yield an executor, which is closed behind it if it was named by a text."""
    if not isinstance(executor, str):
        yield executor
        return
    kind, _, where = executor.partition(":")
    if kind == "processes":
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_all_start_methods, get_context

        # One process imports all, and the workers are its copies; Windows has no such thing.
        can_copy = "forkserver" in get_all_start_methods()
        context: Any = get_context("forkserver" if can_copy else "spawn")
        context.set_forkserver_preload(
            ["numpy", "anamnesis.opening", "anamnesis.convert.conversion", __name__]
        )
        with ProcessPoolExecutor(int(where), context, _end_with_parent) as pool:
            yield pool
        return
    try:
        from distributed import Client
    except ImportError:
        raise UnsupportedError(
            f"{executor} needs Dask, which is not installed: pip install distributed"
        ) from None
    connect: Any = Client
    try:
        client = connect(f"tcp:{where}", set_as_default=False, timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise OutputError(f"{executor}: no scheduler answers there: {error}") from None
    with client:
        yield client.get_executor(pure=False)
