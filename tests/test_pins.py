"""A version that is written in two places is the same in both."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
HOOKS = {
    "ruff-pre-commit": "ruff",
    "mirrors-mypy": "mypy",
    "mirrors-clang-format": "clang-format",
    "cython-lint": "cython-lint",
    "codespell": "codespell",
}


def test_pre_commit_and_ci_lint_alike() -> None:
    lint = (PROJECT / "requirements/lint.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", lint, re.M))
    config = (PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    hooks = re.findall(r"repo: \S+/(\S+)\n\s+rev: v(\S+)", config)
    assert {HOOKS[repository]: version for repository, version in hooks} == pins
