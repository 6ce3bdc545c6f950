"""Files of an output made by an executor: a pool of processes, Dask, or any other."""

from __future__ import annotations

import os
import pickle
import signal
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
from anamnesis.convert.resume.journal import boot_id
from anamnesis.convert.resume.protocol import Run
from anamnesis.convert.write.tally import Tally

_SECONDS = 30  # until a scheduler counts as gone
_OF_THREAD = threading.local()  # the plan that it has made last


def make_all(where: Destination, planning: Callable[[], Destination]) -> Tally:
    """Let an executor make all files that are not made, and commit them.

    `planning` returns the destination anew, in any process.
    """
    parts, request = Parts(where), where.request
    if request.resume and where.is_local and not parts.folder.names():
        run = Run(where)
        if run.is_finished():
            return run.there
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
