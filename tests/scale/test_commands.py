"""`amn convert --part I/N`, `amn commit` and `--executor`: as one command makes it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from anamnesis.cli.app import cli
from helpers.in_parts import left, write_model
from helpers.models import tree

FILE = "in/model.safetensors"
WORDS = ("--to", "fp8-block", "--max-shard-size", "18KB")


@pytest.fixture(autouse=True)
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("SLURM_", "JOB_")):
            monkeypatch.delenv(name)
    return write_model(tmp_path / "in")


def amn(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == code, done.output
    return done


def told(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(amn(*words, "--json").stdout)
    return {key: value for key, value in found.items() if key not in ("seconds", "output")}


@pytest.mark.parametrize("verb", ["convert", "forget"])
@pytest.mark.parametrize("place", [("-o", "out"), ("--output=out", "--")])
def test_parts_and_their_commit(verb: str, place: tuple[str, ...], tmp_path: Path) -> None:
    """The commit takes the words of a part, from whatever folder it is called."""
    expected = told(verb, "in", "-o", "want", *WORDS)
    words = ("in", *WORDS, *place) if place[-1] != "--" else (*WORDS, *place, "in")
    for part in ("3/3", "1/3", "2/3"):
        said = amn(verb, "--part", part, *words).stdout
        assert f"Part {part}: 4 files (" in said
    assert said.endswith("12 of 12 files made; commit: amn commit out\n")
    os.chdir("in")
    assert told("commit", "../out") == expected
    assert tree(tmp_path / "out") == tree(tmp_path / "want")
    assert not left(tmp_path)


def test_a_part_in_json(tmp_path: Path) -> None:
    found = told("convert", "in", "-o", "out", *WORDS, "--part", "2/4")
    assert found["part"] == "2/4"
    assert len(found["files"]) == 3
    assert len(found["missing"]) == 9
    assert found["n_files"] == 12


def test_numbers_of_a_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert told("convert", "in", "-o", "out", *WORDS, "--part", "auto/6")["part"] == "2/6"


def test_one_file_is_one_part(tmp_path: Path) -> None:
    words = ("convert", "in", "out.gguf", "--names", "keep", "--part")
    said = amn(*words, "2/4").stdout
    assert "Part 2/4: nothing, for there are fewer files than parts; " in said
    assert "0 of 1 file made; once all are, commit: amn commit out.gguf" in said
    amn(*words, "1/4")
    amn("commit", "out.gguf", "-q")
    amn("convert", "in", "want.gguf", "--names", "keep")
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "want.gguf").read_bytes()


def test_an_output_that_is_there(tmp_path: Path) -> None:
    amn("convert", "in", "-o", "out", *WORDS)
    said = amn("convert", "in", "-o", "out", *WORDS, "--part", "1/1", code=1)
    assert said.stderr == "amn: error: out: exists and is not empty; --force replaces its files\n"
    amn("convert", "in", "-o", "out", *WORDS, "--part", "1/1", "--force")
    amn("commit", "out")
    assert not left(tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["commit", "out"], 1, "out: has no parts to commit"),
        (["convert", "in", "-o", "in", "--part", "1/2"], 1, "in: is the input"),
        (["convert", "in", "-o", "out", "--part", "4/2"], 1, "--part: there is no process 4 of 2"),
        (["convert", "in", "-o", "out", "--part", "x"], 1, "--part: write I/N, such as 1/4"),
        (["convert", "in", "-o", "out", "--part", "auto"], 1, "--part: neither Slurm nor Kuber"),
        (["convert", "in", "-o", "out", "--executor", "x:2"], 1, "--executor: write processes:N"),
        (["convert", "in", FILE, "-o", "out", "--part", "1/2"], 2, "--part takes one model"),
        (["convert", "in", "-o", "-", "--part", "1/2"], 1, "leave --part out"),
        (["convert", "in", "-o", "o", "--part", "1/2", "--executor", "processes:2"], 1, "--execu"),
        (["convert", "in", "-o", "out", "--part", "1/2", "--expect-same", "in"], 1, "--part out"),
    ],
)
def test_what_is_refused_takes_one_line(words: list[str], code: int, message: str) -> None:
    said = amn(*words, *(WORDS if words[0] == "convert" else ()), code=code).stderr
    assert message in said
    assert said.rstrip("\n").rpartition("\n")[2].startswith("amn: error: ")


def test_a_commit_says_what_is_missing(tmp_path: Path) -> None:
    amn("convert", "in", "-o", "out", *WORDS, "--part", "1/12")
    said = amn("commit", "out", code=1).stderr
    assert said.startswith("amn: error: out: 11 of 12 files are not made: model-0000")
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "note",
    [
        *("", "[]", "{}", '{"arguments": []}', '{"arguments": ["convert"]}'),
        *('{"arguments": "convert", "folder": "."}', '{"arguments": [1], "folder": "."}'),
        *('{"arguments": ["convert"], "folder": 1}', '{"arguments": ["--help"], "folder": "."}'),
        *(
            '{"arguments": ["convert", "--list"], "folder": "."}',
            '{"arguments": [], "folder": "."}',
        ),
        *('{"arguments": ["commit"], "folder": "."}', '{"arguments": ["xx"], "folder": "."}'),
    ],
)
def test_a_note_that_is_no_command_is_refused(note: str, tmp_path: Path) -> None:
    amn("convert", "in", "-o", "out", *WORDS, "--part", "1/12")
    (tmp_path / "out.amn-parts" / "parts" / "command.json").write_text(note)
    said = amn("commit", "out", code=1).stderr
    assert said.startswith(f"amn: error: {tmp_path}/out.amn-parts: its note 'command' is not a com")
    assert said.count("\n") == 1


def test_parts_of_other_options(tmp_path: Path) -> None:
    amn("convert", "in", "-o", "out", *WORDS, "--part", "1/2")
    said = amn("convert", "in", "-o", "out", "--to", "int8", "--part", "2/2", code=1).stderr
    assert "out: the parts in " in said
    assert "out.amn-parts are of other options, or another model; remove them" in said


def test_a_pipeline_is_made_model_by_model(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "model_index.json").write_text('{"unet": ["diffusers", "UNet"]}')
    write_model(tmp_path / "pipe" / "unet", layers=1)
    said = amn("convert", "pipe", "-o", "out", "--to", "f16", "--part", "1/2", code=2).stderr
    assert "--part takes one model, and no pipeline" in said
