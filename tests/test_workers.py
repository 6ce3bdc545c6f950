"""Threads that do jobs: no more of them than there is work for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from anamnesis.base.workers import run


@pytest.mark.parametrize("n_jobs", [0, 1, 5])
def test_threads_without_work_are_not_started(n_jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Counted(threading.Thread):
        def start(self) -> None:
            started.append(1)
            super().start()
            self.join()  # so that the jobs are done when the next would start

    monkeypatch.setattr(threading, "Thread", Counted)
    done: list[Any] = []
    run(iter(range(1, n_jobs + 1)), lambda: done.append, threads=10_000)
    assert done == list(range(1, n_jobs + 1))
    assert len(started) == 1
