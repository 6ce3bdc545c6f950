"""A file or a folder of up to 64 KB: what every verb of the command line costs.

Fails if a verb takes more than a second of CPU time or 100 MB, or says more on stderr than a line.
What is traced is slower, so that what seems too much is measured again without, by `meter.py`.
"""

from __future__ import annotations

import tempfile
import time
from functools import cache
from pathlib import Path

from bombs import MOST, Files
from meter import MOST_BYTES, MOST_SECONDS, VERBS, Meter, run, write
from structured import Choices
from structured_bombs import bomb_file
from traced import fuzz

NAMES = ("x.safetensors", "x.gguf", "x.npz", "x.npy", "x.pth", "x.pkl", "x-00001-of-00002.gguf")

meter = cache(Meter)


def files_from(data: bytes) -> Files:
    """Return the files that an input stands for: a byte for the name and one as it is, or built."""
    if data[:1] == b"S":
        return bomb_file(Choices(data[1:]))
    return {NAMES[data[0] % len(NAMES)] if data else NAMES[0]: data[1:MOST]}


def check(data: bytes) -> None:
    """Raise if an input costs too much, or if a command ends in another way than it may."""
    with tempfile.TemporaryDirectory(prefix="anamnesis-fuzz-") as folder:
        path = write(files_from(data), Path(folder, "in"))
        if _seems_too_much(path):
            excesses = meter().excesses(path)
            assert not excesses, excesses


def _seems_too_much(path: Path) -> bool:
    too_much = False
    for verb, args in VERBS.items():
        base, started = _reset_peak(), time.process_time()
        complaint = run(args, str(path))
        assert not complaint, f"{verb}: {complaint}"
        too_much |= time.process_time() - started > MOST_SECONDS
        too_much |= _memory("VmHWM") - base > MOST_BYTES
    return too_much


def _reset_peak() -> int:
    """Let the peak of resident memory begin anew; return what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(what: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024
    raise KeyError(what)


if __name__ == "__main__":
    meter()  # before anything is traced
    fuzz(check)
