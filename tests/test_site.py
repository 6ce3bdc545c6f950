"""The site is built without a warning, or not at all."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import anamnesis as an
from anamnesis import schemes
from anamnesis.schemes.core.weight import Weight

PROJECT = Path(__file__).parents[1]
BUILT_FROM = ("anamnesis", "docs", "tools", "web", ".ci")


def build(project: Path, into: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(project / ".ci" / "build_site"), str(into)]
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the site is built from."""
    copy = tmp_path / "project"
    for name in BUILT_FROM:
        shutil.copytree(PROJECT / name, copy / name)
    shutil.copy(PROJECT / "mkdocs.yml", copy)
    return copy


def test_every_public_name_is_on_the_page_of_python() -> None:
    """Functions and classes; of the encodings' modules those for arrays in memory."""
    page = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: (\S+)$|^      heading: (\S+)$", page, re.M))
    names = {name for both in shown for name in both}
    modules: dict[str, Any] = {"anamnesis": an}
    modules |= {f"anamnesis.schemes.{name}": getattr(schemes, name) for name in schemes.__all__}
    for called, module in modules.items():
        section = page.partition(f"## {called}\n")[2].partition("\n## ")[0]
        for name in module.__all__:
            member = getattr(module, name)
            if isinstance(member, ModuleType | str) or name == "find_all":
                continue
            if isinstance(member, type) and issubclass(member, Weight):
                continue
            if not callable(member):  # a table: in words, if at all
                continue
            if getattr(member, "__name__", name) != name:  # another's second name
                continue
            home = module.__name__ if module is not an else "anamnesis"
            assert f"{home}.{name}" in names, f"{called}.{name}"
            assert module is an or f"::: {home}.{name}\n" in section


@pytest.mark.sampled(3)
@pytest.mark.oracle  # mkdocs is not among the requirements of the quick tests
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[nowhere](nosuch.md)", "nosuch.md"),
        ("[no such heading](formats.md#nosuch)", "#nosuch"),
        ("::: anamnesis.no_such_function", "no_such_function"),
    ],
)
def test_a_broken_page_fails_the_build(project: Path, tmp_path: Path, text: str, told: str) -> None:
    page = project / "docs" / "index.md"
    page.write_text(f"{page.read_text()}\n{text}\n")
    done = build(project, tmp_path / "site")
    assert done.returncode != 0
    assert told in done.stdout


@pytest.mark.oracle
@pytest.mark.slow
def test_the_site_needs_no_network(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = build(PROJECT, site)
    assert done.returncode == 0, done.stdout
    index = (site / "index.html").read_text()
    assert 'src="assets/iframe-worker-shim.js"' in index
    assert (site / "search" / "search_index.js").stat().st_size > 100_000
    assert (site / "inspect" / "anamnesis.zip").stat().st_size > 100_000


REAL = os.environ.get("ANAMNESIS_REAL")


@pytest.mark.oracle  # torch and safetensors read the libraries' output
@pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_the_tables_of_what_was_validated_are_true() -> None:
    tool = runpy.run_path(str(PROJECT / "tools" / "validated.py"))
    for page in tool["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert text == tool["renewed"](text, Path(REAL or "")), f"{page}: tools/validated.py"


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_one_other_bit_is_found(tmp_path: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import save_file

    tool = runpy.run_path(str(PROJECT / "tools" / "validated.py"))
    values = torch.randn(3, 5).to(getattr(torch, dtype))
    values[0, 0], values[1, 1] = float("nan"), -0.0
    save_file({"a": values}, tmp_path / "a.safetensors")
    with an.parse(tmp_path / "a.safetensors") as model:
        assert tool["compared"](model, {"a": values}) == (1, 15, 0)
        values[1, 1] = 0.0
        assert tool["compared"](model, {"a": values}) == (1, 15, 1)
        assert tool["compared"](model, {"a": values[:2]}) == (1, 10, 15)


def test_the_picture_is_of_the_tables() -> None:
    tool = runpy.run_path(str(PROJECT / "tools" / "proof_picture.py"))
    assert tool["PICTURE"].read_text(encoding="utf-8") == tool["drawn"]()
