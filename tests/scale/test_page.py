"""The recipes of docs/scale.md for schedulers, run with the variables that these set."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

from helpers.models import tree
from helpers.page_inputs import run_demo
from helpers.pages import PROJECT, blocks

PAGE = PROJECT / "docs" / "scale.md"


def run(line: str, folder: Path, **variables: str) -> None:
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    environment = {**os.environ, "PATH": path, **variables}
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    run_demo(made, "llama")
    run("amn convert llama-tiny --to fp8-block --max-shard-size 300KB -o want", made)
    return made


@pytest.mark.slow
def test_slurm(folder: Path) -> None:
    script, chain = (block.text for block in blocks(PAGE) if block.language == "sh")
    first, last = map(int, re.search(r"--array=(\d+)-(\d+)", script).groups())  # type: ignore[union-attr]
    array = {"MIN": first, "MAX": last, "COUNT": last - first + 1, "STEP": 1}
    variables = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in array.items()}
    for i in range(first, last + 1):
        run(script, folder, **variables, SLURM_ARRAY_TASK_ID=str(i), SLURM_PROCID="0")
    run(re.search(r'--wrap "(.*)"', chain)[1], folder)  # type: ignore[index]
    assert tree(folder / "by-slurm") == tree(folder / "want")


@pytest.mark.slow
def test_kubernetes(folder: Path) -> None:
    (text,) = (block.text for block in blocks(PAGE) if block.language == "yaml")
    command = json.loads(re.search(r"command: (\[.*\])", text)[1])  # type: ignore[index]
    n = int(re.search(r"completions: (\d+)", text)[1])  # type: ignore[index]
    assert command[-1] == f"auto/{n}"
    for i in range(n):
        run(shlex.join(command), folder, JOB_COMPLETION_INDEX=str(i))
    run(re.search(r"`(amn commit by-kubernetes)`", PAGE.read_text())[1], folder)  # type: ignore[index]
    assert tree(folder / "by-kubernetes") == tree(folder / "want")
