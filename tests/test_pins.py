"""What is written in two places is the same in both: versions, requirements."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import anamnesis

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


def test_conda_recipe_says_what_pyproject_says() -> None:
    recipe = (PROJECT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
    pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    listed = [line.strip(" -") for line in recipe.splitlines()]
    assert f'version: "{anamnesis.__version__}"' in listed
    assert set(project["license-files"]) <= set(listed)
    required = project["dependencies"] + pyproject["build-system"]["requires"]
    pinned = {f"{name} {bound}" for name, bound in re.findall(r"^ +- (\w+) (>=\S+)$", recipe, re.M)}
    # conda-forge spells one of them otherwise
    assert pinned == {re.sub("(>=)", r" \1", item.lower().replace("-", "_")) for item in required}


def test_every_folder_of_the_package_is_installed() -> None:
    """All folders are found, not listed, and setuptools finds those with an `__init__.py`."""
    pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    found = {"find": {"include": ["anamnesis*"], "namespaces": False}}
    assert pyproject["tool"]["setuptools"]["packages"] == found
    folders = {path.parent for path in (PROJECT / "anamnesis").rglob("*.py")}
    assert len(folders) > 10
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []
