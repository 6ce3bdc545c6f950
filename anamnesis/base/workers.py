"""Run jobs on a few threads, the caller's among them; the first failure stops all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

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
