"""One table: all arrays of an NPZ archive into memory, beside bare reads and numpy.load, in turns.

    python -m asv_benchmarks.reading [--mb 400] [--turns 9] [--deflated] [--dir D]

The bare reads fill new arrays of the same shapes with the same bytes of the file, in one call each:
what no reader can beat, and what is left undone is the check of the CRC. The file is in the page
cache; arrays are dropped after each turn, so that all have their pages to get anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from asv_benchmarks.benchmarks.models import temporary_folder, write_npz, write_npz_deflated
from asv_benchmarks.benchmarks.reading import Contest, turns


def table(contest: Contest, n_turns: int) -> str:
    """Return the table."""
    times = turns(contest, n_turns)
    base = "bare reads" if "bare reads" in times else "numpy.load"
    rows = [
        f"| what | least, ms | median, ms | least, {base} = 1 | median of turns, {base} = 1 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for what, taken in times.items():
        ratio = median(t / b for t, b in zip(taken, times[base], strict=True))
        least = min(taken)
        rows.append(
            f"| {what} | {1e3 * least:.0f} | {1e3 * median(taken):.0f}"
            f" | {least / min(times[base]):.2f} | {ratio:.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=400, help="size of the arrays")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--deflated", action="store_true")
    parser.add_argument("--dir", help="where to put the file")
    options = parser.parse_args()
    with temporary_folder(options.dir) as folder:
        path = Path(folder) / "model.npz"
        (write_npz_deflated if options.deflated else write_npz)(path, options.mb * 1_000_000)
        print(table(Contest(path), options.turns))


if __name__ == "__main__":
    main()
