"""One table: `parse` of torch files beside torch.load, in turns, in one process.

    python -m asv_benchmarks.torch_files [--mb 400] [--turns 7] [--dir D]

`parse` reads names, shapes and offsets, and no data; so does torch.load with mmap=True, nearly.
Without it, it reads everything. What counts is the fastest turn of each. (How fast whole files are
converted is for `endtoend`, with --family pth.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import anamnesis as an
from asv_benchmarks.benchmarks.models import temporary_folder

Work = Callable[[], Any]
N_TENSORS = 100


def save(path: Path, n_tensors: int, n_bytes: int, *, zipped: bool = True) -> None:
    """Write a state dictionary of square weights."""
    side = max(1, int((n_bytes / 4 / n_tensors) ** 0.5))
    state = {f"layers.{i}.weight": torch.randn(side, side) for i in range(n_tensors)}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)


def contestants(path: Path, *, zipped: bool) -> dict[str, Work]:
    """Return what is compared: ours first."""
    works: dict[str, Work] = {
        "parse": lambda: an.parse(path).close(),
        "torch.load": lambda: torch.load(path, weights_only=True),
    }
    if zipped:  # torch maps no other files
        works["torch.load mmap"] = lambda: torch.load(path, weights_only=True, mmap=True)
    return works


def measure(works: dict[str, Work], turns: int) -> dict[str, float]:
    """Seconds of each contestant's fastest turn, after one that does not count."""
    best = dict.fromkeys(works, float("inf"))
    for turn in range(turns + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def rows(folder: Path, mb: int, turns: int) -> list[str]:
    """Return the table."""
    lines = ["| file | what | ms | parse = 1 |", "| --- | --- | ---: | ---: |"]
    for n_tensors, n_bytes, more in ((N_TENSORS, mb * 1_000_000, 1), (2, 2_000, 50)):
        for zipped in (True, False):
            path = folder / "model.pth"
            save(path, n_tensors, n_bytes, zipped=zipped)
            best = measure(contestants(path, zipped=zipped), turns * more)
            size = path.stat().st_size / 1e6
            kind = "ZIP" if zipped else "before 1.6"
            for what, seconds in best.items():
                ratio = seconds / best["parse"]
                label = f"{kind}, {n_tensors} tensors, {size:.3g} MB"
                lines.append(f"| {label} | {what} | {seconds * 1e3:.2f} | {ratio:.1f} |")
    return lines


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=400, help="size of the larger file")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--dir", help="where to put the files")
    options = parser.parse_args()
    with temporary_folder(options.dir) as folder:
        print("\n".join(rows(Path(folder), options.mb, options.turns)))


if __name__ == "__main__":
    main()
