"""Everything that README.md shows is run, and prints what README.md says.

`console` blocks and `python` blocks run in order, in a folder where `amn demo` has run. `sh` blocks
install and test the project itself: `.ci/run` runs those.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

README = Path(__file__).parents[1] / "README.md"
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", re.M)  # a line after a prompt, its output
HOME = "/home/me/models"  # stands for the folder that the commands are run in
SECONDS = re.compile(r"\b\d+\.\d+s\b")


class Command(NamedTuple):
    """A line after a prompt, and what it prints."""

    line: str
    output: str


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
    return [text for found, text in fenced if found == language]


def commands() -> list[Command]:
    found = (match for text in blocks("console") for match in COMMAND.finditer(text))
    return [Command(match[1], match[2]) for match in found]


def shell(line: str, folder: Path) -> str:
    """Run a line with this interpreter's commands first; return what a terminal would show."""
    scripts = sysconfig.get_path("scripts")
    environment = {key: value for key, value in os.environ.items() if key != "ANAMNESIS_LEVEL"}
    environment["PATH"] = scripts + os.pathsep + environment["PATH"]
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout.replace(str(folder.resolve()), HOME)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where `amn demo` has run."""
    made = tmp_path_factory.mktemp("readme")
    assert "equal what numpy and ml_dtypes compute" in shell("amn demo", made)
    return made


def test_finds_the_blocks() -> None:
    assert len(blocks("sh")) == 2
    assert len(commands()) >= 5
    assert len(blocks("python")) >= 3


@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: needs a shell")
def test_commands_print_what_the_readme_says(folder: Path) -> None:
    for command in commands():
        printed = SECONDS.sub("0.0s", shell(command.line, folder))
        assert printed == SECONDS.sub("0.0s", command.output), command.line


@pytest.mark.parametrize("text", blocks("python"), ids=lambda text: text.split("\n")[0])
def test_python_runs(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    exec(compile(text, str(README), "exec"), {"__name__": "__main__"})


def update() -> None:
    """Put what the commands print now into README.md; run this file, then read what it did."""
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        shell("amn demo", Path(made))

        def run(found: re.Match[str]) -> str:
            return f"$ {found[1]}\n{shell(found[1], Path(made))}"

        def renew(fenced: re.Match[str]) -> str:
            return COMMAND.sub(run, fenced[0])

        text = README.read_text(encoding="utf-8")
        text = re.sub(r"^```console\n.*?^```$", renew, text, flags=re.M | re.S)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    update()
