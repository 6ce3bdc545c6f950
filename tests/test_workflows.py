"""What runs on GitHub: every action is pinned, and nothing that is built or installed may write."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[1]
WORKFLOWS = sorted((PROJECT / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
# What a job that may write can use: none of these runs code of ours or of what was installed.
TRUSTED = {
    "actions/attest-build-provenance",
    "actions/download-artifact",
    "pypa/gh-action-pypi-publish",
}
COMMANDS = {"touch", "git"}


def jobs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
        yield f"{path.name}: {name}", job


JOBS = [job for path in WORKFLOWS for job in jobs(path)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    used = [line.strip(" -") for line in lines if "uses:" in line]
    assert used
    assert [line for line in used if not PINNED.match(line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_tokens_only_read(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("name", "job"), JOBS, ids=[name for name, _ in JOBS])
def test_no_checkout_keeps_credentials(name: str, job: dict[str, Any]) -> None:
    steps = [step for step in job["steps"] if "actions/checkout" in step.get("uses", "")]
    assert [s for s in steps if s["with"]["persist-credentials"] is not False] == []


def test_what_may_write_runs_nothing_of_ours() -> None:
    may_write = dict(item for item in JOBS if "permissions" in item[1])
    assert set(may_write) == {"benchmarks.yml: dashboard", "wheels.yml: publish"}
    for job in may_write.values():
        used = {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step}
        assert used <= TRUSTED
        ran = [
            line.split()[0] for step in job["steps"] for line in step.get("run", "").splitlines()
        ]
        assert set(ran) <= COMMANDS


def check_tag(tag: str, root: Path = PROJECT) -> str:
    command = [sys.executable, str(root / ".ci/check_tag.py"), tag]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == (1 if done.stdout.strip() else 0), done.stderr
    return done.stdout


def test_a_tag_needs_its_section(tmp_path: Path) -> None:
    for name in (".ci/check_tag.py", "anamnesis/base/version.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((PROJECT / name).read_bytes())
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## [0.1.0] - 2027-01-31\n", encoding="utf-8")
    assert check_tag("v0.1.0", tmp_path) == "\n"
    changes.write_text("# Changelog\n\n## [0.1.0] - unreleased\n", encoding="utf-8")
    assert "no section ## [0.1.0] with a date" in check_tag("v0.1.0", tmp_path)
    assert "the tag is v9.0.0" in check_tag("v9.0.0", tmp_path)
