"""Jobs on a few threads, the caller's among them, and how a long call is stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from anamnesis.base.errors import Cancelled
from anamnesis.base.printable import kind_of


class Cancel(Protocol):
    """What a caller sets to stop a call: a `threading.Event`, or anything that is like one."""

    def is_set(self) -> bool:
        """Return whether the call shall stop."""


def check_cancel(cancel: Any) -> None:
    """Refuse what nobody can ask whether it is set."""
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise TypeError(f"cancel must have is_set(), as threading.Event has, not {kind_of(cancel)}")


def stop_if(cancel: Cancel | None) -> None:
    """Stop if that is wished, or cannot be found out: nothing is left behind then either."""
    if cancel is None:
        return
    try:
        is_set = cancel.is_set()
    except Exception as error:
        raise Cancelled(f"stopped, for cancel.is_set() failed: {error!r}") from error
    if is_set:
        raise Cancelled("cancelled by the caller")


Job = TypeVar("Job")

MAX_DEFAULT_THREADS = 8  # the page cache takes no more; threads=N overrides


def default_threads() -> int:
    """Return the number of CPUs that this process may use, at most `MAX_DEFAULT_THREADS`."""
    affinity = getattr(os, "sched_getaffinity", None)
    n = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(n, MAX_DEFAULT_THREADS))


def run(
    jobs: Iterator[Job],
    worker: Callable[[], Callable[[Job], None]],
    threads: int,
    after: Callable[[Job], None] | None = None,
    on_failure: Callable[[], None] = lambda: None,
) -> None:
    """Do all jobs; each thread asks `worker` for its own function, which does one job at a time."""
    # If fewer threads can be started, or are needed, fewer do the jobs. Jobs are handed out in
    # order. `after` is called, on the caller's thread only, for the jobs that this thread did. An
    # exception in any job, a KeyboardInterrupt included, lets the other threads finish the job they
    # are at and is then raised; `on_failure` is called before, on the thread where it happened, to
    # wake up jobs that wait for another's.
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    lock = threading.Lock()
    failures: list[BaseException] = []
    is_spent = False

    def work(after: Callable[[Job], None] | None) -> None:
        nonlocal is_spent
        try:
            do = worker()
            while not failures:
                with lock:
                    job = next(jobs, None)
                if job is None:
                    is_spent = True
                    return
                do(job)
                if after is not None:
                    after(job)
        except BaseException as error:
            failures.append(error)
            on_failure()

    helpers: list[threading.Thread] = []
    try:
        while len(helpers) < threads - 1 and not is_spent:
            helpers.append(threading.Thread(target=work, args=(None,)))
            helpers[-1].start()
    except RuntimeError:  # no more threads to be had
        pass
    except BaseException as error:  # an interrupt between two
        failures.append(error)
        on_failure()
    work(after)
    for helper in helpers:
        while helper.is_alive():
            try:
                helper.join()
            except KeyboardInterrupt as interrupt:
                failures.append(interrupt)
                on_failure()
    if failures:
        raise failures[0]
