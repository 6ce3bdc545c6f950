"""The ending of an output says its container: one rule for every verb."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from anamnesis.formats.written import WRITERS
from helpers.handmade import Entry, write_index, write_safetensors

WriteModel = Callable[..., Path]
VALUES = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
MODEL: dict[str, Entry] = {"q_proj.weight": ("F32", VALUES.shape, VALUES.tobytes())}
VERBS = {
    "remember": ["remember"],
    "remember to a dtype": ["remember", "--to", "f32"],
    "convert": ["convert"],
    "convert to a dtype": ["convert", "--to", "f32"],
    "convert to an encoding": ["convert", "--to", "int8"],
    "forget": ["forget", "--to", "int8"],
}
ENDINGS = {ending: written.id for written in WRITERS.values() for ending in written.endings}
ENDINGS |= {".sft": "safetensors", ".BIN": "torch", ".Safetensors": "safetensors"}


@pytest.fixture
def model(tmp_path: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_model(MODEL, name="model.safetensors")


def run(*args: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [*map(str, args)])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_ending(model: Path, verb: str, ending: str) -> None:
    if ending == ".npy" and ("encoding" in verb or verb == "forget"):
        pytest.skip("not a case: an array alone, where codes have scales")
    out = f"out{ending}"
    run(*VERBS[verb], model, "-o", out)
    with an.parse(out) as made:
        assert made.format_id == ENDINGS[ending]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("verb", ["remember", "convert"])
def test_a_directory_becomes_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, ending: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_safetensors(Path("m/model.safetensors"), MODEL)
    write_index(Path("m"), dict.fromkeys(MODEL, "model.safetensors"))
    out = f"out{ending}"
    run(verb, "m", "-o", out)
    with an.parse(out) as made:
        assert made.format_id == ENDINGS[ending]
    assert Path(out).is_file()


@pytest.mark.parametrize("ending", ENDINGS)
def test_arrays_are_saved_by_the_same_rule(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out{ending}"
    an.save({"w": VALUES}, out)
    with an.parse(out) as made:
        assert made.format_id == ENDINGS[ending]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("verb", ["remember", "convert"])
def test_another_container_than_the_ending_is_refused(model: Path, verb: str, ending: str) -> None:
    to = "npz" if ENDINGS[ending] != "npz" else "gguf"
    told = run(verb, model, "--to", to, "-o", f"out{ending}", code=1)
    assert f"has the extension of {WRITERS[ENDINGS[ending]].title}, but the target is {to}" in told


@pytest.mark.parametrize("ending", [".gguf", ".bin", ".pth"])
def test_one_file_is_none_for_several_inputs(model: Path, ending: str) -> None:
    other = write_safetensors(Path("other.safetensors"), MODEL)
    told = run("remember", model, other, "-o", f"out{ending}", code=1)
    assert f"out{ending}: is the name of one file, for 2 inputs; name a directory" in told


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_only_read_is_refused(model: Path, verb: str) -> None:
    told = run(*VERBS[verb], model, "-o", "out.jit", code=1)
    assert "out.jit: .jit files cannot be written; name one that ends in" in told
