"""Convert a directory of shards to BF16, with progress and an account at the end.

python examples/convert_directory.py Qwen3-8B-FP8 Qwen3-8B-bf16
"""

from __future__ import annotations

import sys

import anamnesis as an


def show(done: int, total: int) -> None:
    """Overwrite one line of the terminal with the part that is done."""
    if sys.stderr.isatty():
        print(f"\r{done / max(total, 1):4.0%}", end="", file=sys.stderr)


def main(source: str, out: str) -> None:
    """Convert `source`; finish what an earlier run of the same conversion left."""
    with an.parse(source) as model:
        for name, problem in model.problems.items():
            print(f"{name}: {problem}", file=sys.stderr)
        report = model.remember(out, dtype="bf16", progress=show, resume=True)
    print(report)
    for dropped in report.dropped:
        print(f"dropped {dropped.name}: {dropped.reason}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except an.AnamnesisError as error:
        sys.exit(f"refused: {error}")
