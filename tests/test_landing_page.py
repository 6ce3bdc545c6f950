"""Each row of the landing page's table is run as it stands, on what `amn demo --all` makes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from helpers.page_inputs import make_inputs

PAGE = Path(__file__).parents[1] / "docs" / "index.md"
TABLE = re.compile(r"<!-- rows -->\n(.*?)<!-- /rows -->", re.S)
COMMAND = re.compile(r"`(amn [^`]+)` \|$", re.M)
# An attack is among the uploads, and one of the many files was cut short.
FINDS = {"amn scan uploads": "attack.pkl", "amn convert -r mixed": "lora-30"}


def rows() -> list[str]:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return COMMAND.findall(found[1])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inputs")
    make_inputs(made)
    return made


def test_there_are_fourteen_rows() -> None:
    assert len(rows()) == 14


@pytest.mark.sampled(3)
@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: needs a shell")
@pytest.mark.parametrize("line", rows())
def test_a_row_runs(line: str, inputs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(inputs, tmp_path / "models")
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    found = next((told for start, told in FINDS.items() if line.startswith(start)), "")
    assert done.returncode == (1 if found else 0), done.stderr
    assert found in done.stdout + done.stderr
