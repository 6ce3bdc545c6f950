"""Whether one commit is slower than another: python tools/compare.py main [HEAD] [-k PATTERN]

Both are built, and one process of each times the same work in turns: old, new, new, old. What is
compared is the ratio of the two times of a turn: what slows the machine down slows both. A work is
settled when the interval in which the median of its ratios lies, with 95 %, is on one side of the
threshold: it is faster, slower, or the same. Without a second commit, the working tree is the new
one. Exits with 1 if something is slower.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from math import comb
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

__all__ = ["Verdict", "interval", "verdict"]

PROJECT = Path(__file__).parents[1]
PACKAGE = ("anamnesis", "csrc", "setup.py", "pyproject.toml", "README.md", ":(glob)LICENSE-*")
FEWEST, MOST = 6, 60  # turns


class Verdict(NamedTuple):
    """What the ratios of new to old times say."""

    says: str  # faster, slower, same, not settled
    ratio: float
    low: float
    high: float


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return between which of at least six ratios their median lies, with 95 %.

    The median of what they are drawn from is above each with a chance of a half, whatever they are
    distributed like: so many of them may be cut off at both ends that less than 5 % is lost.
    """
    ordered, n = sorted(ratios), len(ratios)
    cut, lost = 0, 2 / 2**n
    while lost + 2 * comb(n, cut + 1) / 2**n < 0.05:
        cut += 1
        lost += 2 * comb(n, cut) / 2**n
    return ordered[cut], ordered[n - 1 - cut]


def verdict(ratios: Sequence[float], threshold: float) -> Verdict:
    """Return what is known after some turns."""
    low, high = interval(ratios)
    says = "not settled"
    if low > 1 + threshold:
        says = "slower"
    elif high < 1 - threshold:
        says = "faster"
    elif low >= 1 - threshold and high <= 1 + threshold:
        says = "same"
    return Verdict(says, median(ratios), low, high)


def built(commit: str | None, tree: Path) -> Path:
    """Build the package of a commit, or of the working tree, in a folder of its own."""
    tree.mkdir()
    if commit is None:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PACKAGE]
        names = subprocess.run(listed, cwd=PROJECT, check=True, capture_output=True).stdout
        copy = ["xargs", "-0", "cp", "--parents", "-t", str(tree)]
        subprocess.run(copy, cwd=PROJECT, check=True, input=names)
    else:
        archive = ["git", "archive", commit, *PACKAGE]
        packed = subprocess.run(archive, cwd=PROJECT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", str(tree)], check=True, input=packed)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=tree, check=True, stdout=sys.stderr)
    (tree / "asv_benchmarks").symlink_to(PROJECT / "asv_benchmarks")
    return tree


class Worker:
    """A process that times what it is asked for, with the package of a build."""

    def __init__(self, tree: Path) -> None:
        command = [sys.executable, "-m", "asv_benchmarks.worker"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=tree, stdin=pipe, stdout=pipe, text=True)

    def time(self, name: str) -> float | None:
        """Return seconds, or None if the build does not have it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        if not answer:
            raise SystemExit(f"{name}: the process that measures it has ended")
        return None if answer.startswith("missing") else float(answer)

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


def compared(old: Worker, new: Worker, name: str, threshold: float) -> Verdict | None:
    """Return what turns say of a work, or None if one of both does not have it."""
    if old.time(name) is None or new.time(name) is None:  # the first is for the caches
        return None
    ratios: list[float] = []
    while len(ratios) < MOST:
        order = (old, new) if len(ratios) % 2 == 0 else (new, old)
        took = {worker: worker.time(name) or 0.0 for worker in order}
        ratios.append(took[new] / took[old])
        if len(ratios) >= FEWEST and verdict(ratios, threshold).says != "not settled":
            break
    return verdict(ratios, threshold)


def names(tree: Path, pattern: str) -> list[str]:
    """Return the names of all works that a pattern is found in."""
    command = [sys.executable, "-m", "asv_benchmarks.worker", "--list"]
    listed = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if re.search(pattern, name)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", nargs="?", help="a commit (default: the working tree)")
    parser.add_argument("-k", default="", metavar="PATTERN", help="only what this is found in")
    parser.add_argument("--threshold", type=float, default=0.03, help="default: 0.03")
    parser.add_argument("--json", action="store_true", help="a JSON object for each row")
    asked = parser.parse_args(arguments)
    worse = 0
    with TemporaryDirectory() as folder:
        trees = built(asked.old, Path(folder, "old")), built(asked.new, Path(folder, "new"))
        rows = names(trees[1], asked.k)
        old, new = map(Worker, trees)
        width = max(map(len, rows), default=0)
        for name in rows:
            found = compared(old, new, name, asked.threshold)
            if asked.json:
                print(json.dumps({"name": name, **(found._asdict() if found else {})}), flush=True)
            elif found is None:
                print(f"{name:{width}}  of one alone", flush=True)
            else:
                said, ratio, low, high = found
                print(
                    f"{name:{width}}  {said:11} {ratio:6.3f}  {low:.3f} to {high:.3f}", flush=True
                )
            worse += found is not None and found.says == "slower"
        old.end()
        new.end()
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
