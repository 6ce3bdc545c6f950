"""Weights below one name, as training checkpoints have them: told, and stripped by one option."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

import anamnesis as an
from anamnesis.checkpoint.open import wrapped_below
from anamnesis.cli.app import cli

WEIGHTS = {"layer.weight": torch.arange(6.0).reshape(2, 3), "norm.weight": torch.ones(3)}
SAID = "all weights lie below 'state_dict'; --select state_dict strips it"


def run(*args: str | Path) -> str:
    done = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sd.ckpt"
    optimizer = {"state": {0: {"exp_avg": torch.zeros(2)}}, "lr": 0.1}
    torch.save({"state_dict": WEIGHTS, "optimizer": optimizer, "epoch": 3}, path)
    return path


def test_it_is_told_and_stripped(path: Path) -> None:
    assert f"Note:        {SAID}; tensors of other things lie beside it: optimizer (1)" in run(
        "inspect", path
    )
    out = path.with_name("out.safetensors")
    assert SAID in run("convert", path, "-o", out)
    stripped = path.with_name("stripped.safetensors")
    assert "lie below" not in run("convert", path, "-o", stripped, "--select", "state_dict")
    loaded = load_file(stripped)
    assert loaded.keys() == WEIGHTS.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in WEIGHTS.items())
    assert SAID in run("inspect", out)


def test_from_python(path: Path) -> None:
    with an.parse(path) as model:
        (note,) = model.inspect().notes
        (warning,) = model.remember(path.with_name("out.safetensors")).warnings
    assert note == warning
    assert note.startswith("all weights lie below 'state_dict'; select='state_dict' strips it")
    with an.parse(path, select="state_dict") as model:
        assert set(model) == set(WEIGHTS)
        assert model.inspect().notes == ()


@pytest.mark.parametrize(
    ("names", "is_checkpoint", "below"),
    [
        (["model.a.weight", "model.b.weight"], True, "model"),
        (["model.a.weight", "model.b.weight"], False, None),  # a model whose head is tied
        (["module.a.weight", "module.b.weight"], False, "module"),
        (["model.a", "optimizer.state.0.exp_avg", "ema.a"], True, "model"),
        (["encoder.a", "decoder.a"], True, None),
        (["model.a", "head.a"], True, None),
        (["state_dict"], True, None),
        ([], True, None),
    ],
)
def test_by_names(names: list[str], is_checkpoint: bool, below: str | None) -> None:
    told = wrapped_below(names, is_checkpoint=is_checkpoint)
    assert told is None if below is None else f"below {below!r}" in (told or "")
