"""Reading all arrays of an NPZ archive, beside bare reads and numpy.load, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import anamnesis as an

from .figures import figure
from .models import output_bytes, peak_memory_of, temporary_folder, write_npz, write_npz_deflated

TURNS = 5
Arrays = dict[str, Any]


class Contest:
    """One archive, and those who read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with an.parse(path) as model:
            listed = list(model.stored.values())
        # Where the bytes lie as they are.
        self.places = [(t.name, t.offset, t.shape) for t in listed if t.source.shows_base]
        self.works: dict[str, Callable[[], Arrays]] = {
            "anamnesis": self.ours,
            "anamnesis, 1 thread": lambda: self.ours(1),
            "numpy.load": self.numpy,
        }
        if self.places and hasattr(os, "preadv"):
            self.works["bare reads"] = self.bare_reads

    def ours(self, threads: int | None = None) -> Arrays:
        """Read all with this package."""
        with an.parse(self.path) as model:
            return {name: tensor.numpy(threads=threads) for name, tensor in model.items()}

    def numpy(self) -> Arrays:
        """Read all with numpy."""
        with np.load(self.path) as loaded:
            return {name: loaded[name] for name in loaded}

    def bare_reads(self) -> Arrays:
        """Read the bytes into new arrays."""
        arrays: Arrays = {}
        with open(self.path, "rb", buffering=0) as file:
            for name, offset, shape in self.places:
                arrays[name] = np.empty(shape, np.float32)
                done, view = 0, memoryview(arrays[name]).cast("B")
                while done < len(view):
                    done += os.preadv(file.fileno(), [view[done:]], offset + done)
        return arrays


def turns(contest: Contest, n_turns: int) -> dict[str, list[float]]:
    """Return the seconds that each took, turn by turn, after one for nothing."""
    times: dict[str, list[float]] = {what: [] for what in contest.works}
    for turn in range(n_turns + 1):
        for what, work in contest.works.items():
            start = time.perf_counter()
            arrays = work()
            if turn:
                times[what].append(time.perf_counter() - start)
            del arrays
    return times


class Read:
    """All arrays of one archive; its size is that of the other benchmarks' outputs."""

    params = ("stored", "deflated")
    param_names = ("members",)
    timeout = 300

    def setup(self, members: str) -> None:
        self.folder = temporary_folder()
        path = Path(self.folder.name) / "model.npz"
        (write_npz if members == "stored" else write_npz_deflated)(path, output_bytes())
        self.contest = Contest(path)

    def teardown(self, members: str) -> None:
        self.folder.cleanup()

    @figure("arrays of an NPZ: time")
    def time_read(self, members: str) -> None:
        self.contest.ours()

    @figure("arrays of an NPZ: time, numpy.load = 1", "times numpy.load's time")
    def track_beside_numpy(self, members: str) -> float:
        return self._beside("numpy.load")

    @figure("arrays of an NPZ: time, bare reads = 1", "times the bare reads' time")
    def track_beside_bare_reads(self, members: str) -> float:
        return self._beside("bare reads")

    def _beside(self, whom: str) -> float:
        if whom not in self.contest.works:
            return float("nan")
        times = turns(self.contest, TURNS)
        return median(a / b for a, b in zip(times["anamnesis"], times[whom], strict=True))

    @figure("remember an NPZ: memory added", "MiB")
    def track_memory(self, members: str) -> float:
        """Over what the process has before."""

        def remember() -> None:
            with an.parse(self.contest.path) as model:
                model.remember(self.contest.path.with_name("out.safetensors"), force=True)

        return peak_memory_of(remember) / (1 << 20)
