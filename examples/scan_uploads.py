"""Decide which files of a folder may go on: no code in them, and not too costly to parse.

python examples/scan_uploads.py uploads; exit code 1 if any file is refused
"""

from __future__ import annotations

import sys
from pathlib import Path

import anamnesis as an
from anamnesis import scan

LIMITS = an.ParseLimits(
    max_single_alloc=100_000_000,  # bytes
    max_total_bytes=200_000_000,
    max_item_count=1_000_000,  # tensors, metadata entries
    max_decompression_ratio=100,
)


def refusal(path: Path) -> str | None:
    """Return why a file is refused; None if it is not."""
    try:
        found = scan(path, limits=LIMITS)
        if found.verdict != "safe":
            return found.verdict
        with an.parse(path, limits=LIMITS) as model:
            return next((str(problem) for problem in model.problems.values()), None)
    except an.AnamnesisError as error:
        return str(error)


def main(folder: str) -> int:
    """Print a line for each file; return how many are refused."""
    n_refused = 0
    for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
        reason = refusal(path)
        n_refused += reason is not None
        print(f"{path.relative_to(folder)}: {'accepted' if reason is None else reason}")
    return n_refused


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
