"""tools/compare.py: what it says of ratios, and that it builds, runs and compares two commits."""

from __future__ import annotations

import random
from statistics import median

import pytest

from helpers.kernel_calls import load_by_path

compare = load_by_path("tools/compare.py")


@pytest.mark.parametrize("n", [6, 7, 12, 25, 60])
def test_the_median_lies_in_the_interval_as_often_as_is_said(n: int) -> None:
    chance, trials = random.Random(n), 2000
    held = 0
    for _ in range(trials):
        low, high = compare.interval([chance.lognormvariate(0, 0.05) for _ in range(n)])
        held += low <= 1 <= high
    assert held >= 0.94 * trials


def test_the_interval_of_six_is_all_of_them() -> None:
    assert compare.interval([1.2, 0.9, 1.0, 1.1, 1.05, 0.95]) == (0.9, 1.2)


@pytest.mark.parametrize(
    ("ratio", "says"), [(1.0, "same"), (1.06, "slower"), (0.94, "faster"), (1.03, "not settled")]
)
def test_verdicts(ratio: float, says: str) -> None:
    chance = random.Random(4)
    ratios = [ratio * chance.uniform(0.99, 1.01) for _ in range(12)]
    said = compare.verdict(ratios, 0.03)
    assert said.says == says
    assert said.low <= said.ratio == median(ratios) <= said.high


@pytest.mark.weekly
def test_a_commit_is_as_fast_as_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["HEAD", "HEAD", "-k", "^Convert F32 (BF16|F32)$"]) == 0
    rows = capfd.readouterr().out.splitlines()
    assert [row.split()[:3] for row in rows] == [
        ["Convert", "F32", "BF16"],
        ["Convert", "F32", "F32"],
    ]
    assert not any("of one alone" in row for row in rows)
