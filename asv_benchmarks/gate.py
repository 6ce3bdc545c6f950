"""Fail if a kernel or the header parser has become far slower, measured against its neighbour.

    python -m asv_benchmarks.gate            # a few seconds; builds nothing
    python -m asv_benchmarks.gate --record   # keep what this machine measures as the new bounds

Each figure is a ratio of two times that were taken in turns in this run: a kernel's and that of
memcpy of as many bytes, the header parser's and that of Python's json module. A busy machine slows
both down, so that a ratio moves little; bounds.json has those of a quiet one. A figure fails if it
is more than FACTOR times its bound in each of several tries: what this finds is a loop that is no
longer vectorised, not a few percent.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import anamnesis as an
from anamnesis import _core

from .benchmarks.figures import Work, slowed, times_another
from .benchmarks.kernels import (
    PackedArrays,
    absmax_call,
    block_call,
    convert_call,
    memcpy_call,
    packed_call,
    scaled_call,
)
from .benchmarks.models import header_text, write_many

BOUNDS = Path(__file__).with_name("bounds.json")
FACTOR = 3.0
TRIES = 4
TURNS = 15
ROWS, COLS = 1024, 4096
N_TENSORS = 5_000

Ratio = Callable[[], float]
Call = tuple[Work, int]

# One of each kind of inner loop, to bfloat16; to float32, what goes by way of it.
KERNELS: dict[str, Callable[[], Call]] = {
    "FP8 E4M3, 128x128": lambda: scaled_call("F8_E4M3", "block128", "BF16", "best", ROWS, COLS),
    "FP8 E5M2, rows": lambda: scaled_call("F8_E5M2", "row", "BF16", "best", ROWS, COLS),
    "MXFP8": lambda: scaled_call("F8_E4M3", "mxfp8", "F32", "best", ROWS, COLS),
    "NF4": lambda: absmax_call("NF4", 64, "BF16", "best", ROWS * COLS),
    "INT8": lambda: absmax_call("INT8", COLS, "BF16", "best", ROWS * COLS),
    "F32 to BF16": lambda: convert_call("F32", "BF16", "best", ROWS * COLS),
    **{
        name: partial(block_call, name, "BF16", "best", ROWS * COLS)
        for name in ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ2_XXS", "IQ3_S", "TQ1_0", "MXFP4")
    },
    **{
        name: partial(packed_call, PackedArrays(name, ROWS, COLS, 128, False), "BF16", "best")
        for name in ("GPTQ3", "GPTQ4", "AWQ4")
    },
}


def ratios(folder: Path) -> Iterator[tuple[str, Ratio]]:
    """Yield the figures' names, and what measures each."""
    for name, make in KERNELS.items():
        work, moved = make()
        yield name, partial(times_another, slowed(work), memcpy_call(moved), TURNS)
    path = folder / "model.safetensors"
    write_many(path, N_TENSORS)
    parse = slowed(lambda: an.parse(path).close())
    yield "header, json = 1", partial(times_another, parse, lambda: json.loads(header_text(path)))


def measure(folder: Path, bounds: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Yield each figure: the first within its bound, or the least of all tries."""
    for name, ratio in ratios(folder):
        least = ratio()
        for _ in range(TRIES - 1):
            if name in bounds and least <= FACTOR * bounds[name]:
                break
            least = min(least, ratio())
        yield name, least


def main() -> int:
    """Measure, print, and compare or record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write bounds; compare with none")
    parser.add_argument("--bounds", type=Path, default=BOUNDS)
    options = parser.parse_args()
    level = _core.supported_levels()[-1]
    by_level = json.loads(options.bounds.read_text()) if options.bounds.exists() else {}
    if options.record:
        by_level[level] = {}
    elif level not in by_level:
        print(f"no bounds for level {level}; --record takes them, on a quiet machine")
        return 0
    bounds, measured, slow = by_level[level], {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, ratio in measure(Path(folder), bounds):
            measured[name] = round(ratio, 2)
            print(f"{name:<20} {ratio:6.2f}   bound {bounds.get(name, '-')}", flush=True)
            if not options.record and ratio > FACTOR * bounds.get(name, 0):
                slow.append(name)
    if options.record:
        by_level[level] = measured
        options.bounds.write_text(json.dumps(by_level, indent=2) + "\n")
    if slow:
        found = f"over {FACTOR:g} times their bounds in {options.bounds.name}, or without one"
        print(f"{found}: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
