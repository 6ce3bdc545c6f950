"""A slow-down is reported as one: on asv's pages, by its `compare`, and by the gate."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[1]
KERNEL = "'F8_E4M3', 'tensor', 'BF16', 'best'"
FIGURES = ("kernels.Scaled.track_time", "kernels.Scaled.track_beside_memcpy")
N_COMMITS = 8


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass
class Dashboard:
    """Results of a repository that has some commits and no code."""

    folder: Path

    def __post_init__(self) -> None:
        self.git("init", "-q", "-b", "main")
        for day in range(1, N_COMMITS + 1):
            date = f"2026-01-{day:02}T00:00:00"
            self.git("commit", "-q", "--allow-empty", "-m", date, GIT_COMMITTER_DATE=date)
        self.commits = self.git("rev-list", "--reverse", "main").split()
        shutil.copy(PROJECT / "asv_benchmarks/asv.conf.json", self.folder / "asv.conf.json")
        text = (self.folder / "asv.conf.json").read_text()
        text = text.replace('"repo": ".."', '"repo": "."').replace("../.asv", "asv")
        benchmarks = json.dumps(str(PROJECT / "asv_benchmarks" / "benchmarks"))
        text = text.replace('"benchmark_dir": "benchmarks"', f'"benchmark_dir": {benchmarks}')
        (self.folder / "asv.conf.json").write_text(text)
        self.asv("machine", "--yes", "--machine", "any")

    def git(self, *arguments: str, **environment: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        return subprocess.run(
            ["git", *name, *arguments],
            cwd=self.folder,
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def asv(self, *arguments: str, **environment: str) -> str:
        config = ("--config", str(self.folder / "asv.conf.json"))
        home = {"HOME": str(self.folder)}  # where asv keeps what it knows of machines
        done = run("asv", *arguments, *config, **home, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def measure(self, commits: list[str], slowdown: int) -> None:
        """Measure this checkout once, as if it were each of some commits."""
        which = ("--python=same", "--set-commit-hash", commits[0], "--machine", "any")
        bench = ("--quick", "--bench", KERNEL)
        self.asv("run", *which, *bench, ANAMNESIS_BENCH_SLOWDOWN=str(slowdown))
        (result,) = (self.folder / "asv/results/any").glob(f"{commits[0][:8]}*.json")
        for commit in commits[1:]:
            dated = json.loads(result.read_text())
            dated["commit_hash"] = commit
            result.with_name(result.name.replace(commits[0][:8], commit[:8])).write_text(
                json.dumps(dated)
            )

    def marks(self) -> dict[str, str]:
        """What `asv compare` says of the last commit beside the first: + is worse."""
        table = self.asv("compare", self.commits[0], self.commits[-1], "--machine", "any")
        rows = [line.strip("| ").split("|") for line in table.splitlines() if KERNEL in line]
        return {row[-1].strip().partition("(")[0]: row[0].strip() for row in rows}

    def regressions(self) -> set[str]:
        """The figures that the page of regressions lists."""
        self.asv("publish")
        page = json.loads((self.folder / "asv/html/regressions.json").read_text())
        return {row[0].partition("(")[0] for row in page["regressions"]}


@pytest.mark.weekly
@pytest.mark.oracle
def test_asv_reports_a_slow_kernel_and_no_fast_one(tmp_path: Path) -> None:
    """The kernel is run eight times where once is due, on the later or on the earlier commits."""
    half = N_COMMITS // 2
    dashboard = Dashboard(tmp_path)
    dashboard.measure(dashboard.commits[:half], slowdown=1)
    dashboard.measure(dashboard.commits[half:], slowdown=8)
    assert dashboard.marks() == dict.fromkeys(FIGURES, "+")
    assert dashboard.regressions() == set(FIGURES)
    dashboard.measure(dashboard.commits[:half], slowdown=8)
    dashboard.measure(dashboard.commits[half:], slowdown=1)
    assert dashboard.marks() == dict.fromkeys(FIGURES, "-")
    assert dashboard.regressions() == set()


@pytest.mark.weekly
def test_gate_fails_for_slow_kernels_alone(tmp_path: Path) -> None:
    gate = ("asv_benchmarks.gate", "--bounds", str(tmp_path / "bounds.json"))
    assert run(*gate, "--record").returncode == 0
    usual = run(*gate)
    assert usual.returncode == 0, usual.stdout + usual.stderr
    slow = run(*gate, ANAMNESIS_BENCH_SLOWDOWN="8")
    assert slow.returncode == 1
    assert "header" in slow.stderr


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmarks of kernels, on little data."""
    monkeypatch.syspath_prepend(PROJECT)
    module = importlib.import_module("asv_benchmarks.benchmarks.kernels")
    monkeypatch.setattr(module, "ROWS", 128)
    monkeypatch.setattr(module, "LAYER_ROWS", 128)
    return module


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["Scaled", "Convert", "Block", "Packed", "Absmax"])
def test_every_kernel_of_this_checkout_is_measured(kernels: ModuleType, name: str) -> None:
    """None is skipped, which is for commits that do not have it."""
    benchmark = getattr(kernels, name)
    for parameters in itertools.product(*benchmark.params):
        measured = benchmark()
        measured.setup(*parameters)
        assert measured.elements == 128 * kernels.COLS, parameters


def test_every_encoder_of_blocks_is_measured(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoders = importlib.import_module("asv_benchmarks.benchmarks.encoders")
    monkeypatch.setattr(encoders, "BAND_ROWS", 1)
    for parameters in itertools.product(*encoders.EncodeBlocks.params):
        measured = encoders.EncodeBlocks()
        measured.setup(*parameters)
        assert measured.elements == kernels.COLS, parameters


def test_encoders_are_measured_as_soon_as_there_are_any(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = importlib.import_module("asv_benchmarks.benchmarks.arrays")
    monkeypatch.setattr(arrays, "ENCODED_ROWS", 128)
    there, measured = set(), set()
    for encoding, (function, _) in arrays.ENCODERS.items():
        module, name = function.split(".")
        if hasattr(importlib.import_module(f"anamnesis.schemes.{module}"), name):
            there.add(function)
        with contextlib.suppress(NotImplementedError):
            arrays.Quantize().setup(encoding, "best")
            measured.add(function)
    assert measured == there
