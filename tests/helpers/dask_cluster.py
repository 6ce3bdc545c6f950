"""A cluster of Dask: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Cluster", "cluster"]

_SECONDS = 60


class Cluster:
    """A scheduler, and workers that can be killed and started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes = folder / "scheduler.json"
        self._processes = [self._start("scheduler", "--port", "0", "--host", "127.0.0.1")]
        self.workers: list[subprocess.Popen[bytes]] = []
        end = time.monotonic() + _SECONDS
        while not (self._notes.exists() and self._notes.read_text()):
            assert time.monotonic() < end, "no scheduler"
            time.sleep(0.05)
        self.address: str = json.loads(self._notes.read_text())["address"]

    def _start(self, kind: str, *args: str) -> subprocess.Popen[bytes]:
        quiet = {
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000",
            "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false",
        }
        words = ["distributed.cli.dask_" + kind, "--scheduler-file", str(self._notes)]
        return subprocess.Popen(
            [sys.executable, "-m", *words, "--no-dashboard", *args],
            cwd=self._folder,
            env={**os.environ, **quiet},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start_worker(self) -> None:
        """Start a worker of one thread, without a nanny that would start it anew."""
        self.workers.append(self._start("worker", "--no-nanny", "--nthreads", "1"))
        self._processes.append(self.workers[-1])

    def kill(self, i: int) -> None:
        """Kill a worker, and start another."""
        worker = self.workers.pop(i)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        self.start_worker()

    def close(self) -> None:
        """Kill all that was started."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Yield a cluster of so many workers."""
    made = Cluster(folder)
    try:
        for _ in range(workers):
            made.start_worker()
        yield made
    finally:
        made.close()
