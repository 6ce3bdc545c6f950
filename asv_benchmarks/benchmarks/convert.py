"""remember from file to file, beside cp, a bare writer and memcpy, in turns in the same process.

The files lie in the folder that ANAMNESIS_BENCH_DIR names and
take ANAMNESIS_BENCH_MB (256) as BF16; they are in the page cache, and nothing waits for the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import anamnesis as an

from .figures import figure
from .models import (
    bare_write,
    cp,
    output_bytes,
    peak_memory_of,
    settle,
    temporary_folder,
    write_fp8,
)

TURNS = 5
DTYPES = ("bf16", "f16", "f32")
THREADS = (1, 2)


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one turn."""
    settle()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class _Files:
    """A generated model, and a name for the output."""

    def setup(self, *_parameters: object) -> None:
        self.folder = temporary_folder()
        self.source = Path(self.folder.name) / "fp8.safetensors"
        self.out = Path(self.folder.name) / "out.safetensors"
        write_fp8(self.source, output_bytes())

    def teardown(self, *_parameters: object) -> None:
        self.folder.cleanup()

    def remember(self, dtype: Any, threads: int) -> int:
        """Convert; return the bytes written."""
        self.out.unlink(missing_ok=True)
        with an.parse(self.source) as model:
            return model.remember(self.out, dtype, threads=threads).n_bytes

    def bare_write(self, n_bytes: int) -> None:
        self.out.unlink(missing_ok=True)
        bare_write(self.out, n_bytes)


class Remember(_Files):
    """One FP8 file to one plain file."""

    params = (DTYPES, THREADS)
    param_names = ("dtype", "threads")
    timeout = 300

    @figure("remember a file: time", "seconds")
    def track_time(self, dtype: str, threads: int) -> float:
        self.remember(dtype, threads)
        return median(seconds(lambda: self.remember(dtype, threads)) for _ in range(TURNS))

    @figure("remember a file: time, bare writer = 1", "times the bare writer's time")
    def track_beside_bare_writer(self, dtype: str, threads: int) -> float:
        n_bytes = self.remember(dtype, threads)
        turns = [
            (
                seconds(lambda: self.bare_write(n_bytes)),
                seconds(lambda: self.remember(dtype, threads)),
            )
            for _ in range(TURNS)
        ]
        bare, ours = zip(*turns, strict=True)
        return median(ours) / median(bare)

    @figure("remember a file: peak memory of the process")
    def peakmem_remember(self, dtype: str, threads: int) -> None:
        self.remember(dtype, threads)

    @figure("remember a file: memory added", "MiB")
    def track_memory(self, dtype: str, threads: int) -> float:
        """Over what the process has before, where peakmem_remember counts it in."""
        return peak_memory_of(lambda: self.remember(dtype, threads)) / (1 << 20)


class Limits(_Files):
    """What the machine takes for as many bytes; no converter can do without."""

    timeout = 300

    def setup(self, *_parameters: object) -> None:
        super().setup()
        self.n_bytes = self.remember("bf16", 2)
        self.copied = Path(self.folder.name) / "copy.safetensors"

    @figure("cp of the output", "seconds")
    def track_peer_cp(self) -> float:
        times = []
        for _ in range(TURNS):
            self.copied.unlink(missing_ok=True)
            times.append(seconds(lambda: cp(self.out, self.copied)))
        return median(times)

    @figure("bare writer of the output", "seconds")
    def track_peer_bare_writer(self) -> float:
        return median(seconds(lambda: self.bare_write(self.n_bytes)) for _ in range(TURNS))

    @figure("memcpy of the output", "seconds")
    def track_peer_memcpy(self) -> float:
        source, target = np.ones(self.n_bytes, np.uint8), np.zeros(self.n_bytes, np.uint8)
        return median(seconds(lambda: np.copyto(target, source)) for _ in range(TURNS))
