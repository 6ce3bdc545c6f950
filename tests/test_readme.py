"""Everything that README.md and the pages of docs/ show is run, and prints what the page says.

`console` and `python` blocks run in order, in a folder of the page's own where `amn demo` has run;
what else a page needs its own commands make. The `python` blocks run behind them, in one namespace;
those that import torch run with the oracles. `sh` blocks install and test the project itself:
`.ci/run` runs README's. `<!-- not run: REASON -->` above a block says why it cannot be run here;
`NOT_RUN` counts them, so that none is hidden unseen.

`python tests/test_readme.py` renews the outputs, and `python tools/tables.py` the tables.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helpers.page_inputs import run_demo
from helpers.pages import (
    BLOCK,
    COMMAND,
    NOT_RUN_MARK,
    PAGES,
    PROJECT,
    RUN,
    SECONDS,
    Block,
    blocks,
    called,
    commands,
    programs,
)
from helpers.range_server import serving

HOME = "/home/me/models"  # stands for the folder that the commands are run in

SHOWN = {"text", "json", "toml"}  # drawings and data: nothing that could be run
NOT_RUN = {
    "docs/command-line.md": 1,
    "docs/dashboards.md": 1,
    "docs/gguf-models.md": 1,
    "docs/index.md": 1,
    "docs/remote.md": 1,
    "docs/scale.md": 5,
    "docs/trainers.md": 2,
    "docs/validated.md": 1,
    "docs/tutorials/fp8-directory.md": 2,
    "docs/tutorials/gguf.md": 1,
    "docs/tutorials/notebook.md": 1,
}


def shell(line: str, folder: Path) -> str:
    """Run a line with this interpreter's commands first; return what a terminal would show.

    Of the hub there is a repository of each model in the folder.
    """
    if "hf://" in line and "HF_ENDPOINT" not in os.environ:
        with serving(folder, folder, owner="example") as hub, pytest.MonkeyPatch.context() as patch:
            patch.setenv("HF_ENDPOINT", hub.url)
            patch.setenv("HF_HOME", str(folder.parent / "hub"))
            return shell(line, folder)
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
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where `amn demo` has run."""
    made = tmp_path_factory.mktemp("inputs")
    run_demo(made)
    return made


@pytest.fixture
def folder(inputs: Path, tmp_path: Path) -> Path:
    """A copy of it for one page."""
    return shutil.copytree(inputs, tmp_path / "models")


def test_finds_the_blocks() -> None:
    readme = PROJECT / "README.md"
    assert sum(block.language == "sh" for block in blocks(readme)) == 2
    assert len(commands(readme)) >= 2
    assert len(programs(readme)) >= 1
    assert len(PAGES) >= 12


def test_the_readme_is_short_and_its_first_lines_run(folder: Path) -> None:
    lines = (PROJECT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 91
    assert max(map(len, lines)) <= 120
    rows = [line for line in lines[:30] if line.startswith("|")][2:]
    typed = [row.split("`")[1] for row in rows]
    assert len(typed) == 4
    for line in ("amn demo --all", *typed):
        done = subprocess.run(
            [Path(sysconfig.get_path("scripts"), "amn"), *line.split()[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert {"llama.gguf", "llama", "llama-tiny-bf16"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_every_fence_is_of_a_block(page: Path) -> None:
    fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(encoding="utf-8"), re.M)
    assert len(fences) == 2 * len(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks(page):
        if block.language in RUN | SHOWN:
            continue
        is_command = block.language == "sh" and block.comment.endswith(" command")
        assert is_command or block.comment.startswith(NOT_RUN_MARK), block.text


def test_no_block_is_hidden_unseen() -> None:
    marked = Counter(
        called(page)
        for page in PAGES
        for block in blocks(page)
        if block.comment.startswith(NOT_RUN_MARK)
    )
    assert dict(marked) == NOT_RUN


@pytest.mark.sampled(len(PAGES))  # README.md is the first
@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: needs a shell")
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=called)
def test_commands_print_what_the_page_says(page: Path, folder: Path) -> None:
    if called(page) == "docs/remote.md":
        pytest.importorskip("huggingface_hub")
    for command in commands(page):
        printed = SECONDS.sub("0.0s", shell(command.line, folder))
        assert printed == SECONDS.sub("0.0s", command.output), command.line


@pytest.mark.parametrize("page", [page for page in PAGES if programs(page)], ids=called)
def test_python_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    make_demos(page, folder)
    run([block for block in programs(page) if not block.needs_torch], page)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(b.needs_torch for b in programs(page))], ids=called
)
def test_python_runs_with_torch(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    make_demos(page, folder)
    run(programs(page), page)


def make_demos(page: Path, folder: Path) -> None:
    """Make the models that a page's commands make first."""
    for command in commands(page):
        if command.line.startswith("amn demo "):
            shell(command.line, folder)


def run(programs: list[Block], page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in programs:
        exec(compile(block.text, str(page), "exec"), namespace)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_to_files(name: str) -> None:
    """Those of docs/ are checked by `mkdocs build --strict`, which sees no other page."""
    text = (PROJECT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (PROJECT / link).exists()] == []


def test_tables_are_those_of_the_code() -> None:
    tool = runpy.run_path(str(PROJECT / "tools" / "tables.py"))
    for page in tool["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert text == tool["renewed"](text), f"{page}: python tools/tables.py"


def update() -> None:
    """Put what the commands print now into the pages."""
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        inputs = Path(made, "inputs")
        inputs.mkdir()
        run_demo(inputs)
        for page in PAGES:
            if commands(page):
                renew(page, shutil.copytree(inputs, Path(made, called(page), "models")))


def renew(page: Path, folder: Path) -> None:
    def rerun(found: re.Match[str]) -> str:
        return f"$ {found[1]}\n{shell(found[1], folder)}"

    def rewrite(found: re.Match[str]) -> str:
        block = Block(found[1] or "", *found.groups()[1:])
        is_shown = block.is_run and block.language == "console"
        return COMMAND.sub(rerun, found[0]) if is_shown else found[0]

    text = BLOCK.sub(rewrite, page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    update()
