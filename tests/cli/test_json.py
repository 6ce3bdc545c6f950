"""What --json writes is JSON, whatever the files hold: read back by a parser that takes no NaN."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.cli_runs import SMALL, strict
from helpers.gguf_handmade import F32, F64, Array, Tensor, gguf_bytes
from helpers.handmade import safetensors_bytes
from helpers.pickle_handmade import RUN, torch_saved

ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
NAMED = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def torch_file(**others: Any) -> bytes:
    return torch_saved({"w": torch.ones(2), **others})


def gguf_file() -> bytes:
    keys: dict[str, Any] = {f"x.{name}": (F32, value) for name, value in ODD.items()}
    keys |= {f"d.{name}": (F64, value) for name, value in ODD.items()}
    nested = Array(9, [Array(F32, [math.nan, 1.5]), Array(F64, [-math.inf])])
    keys |= {"list": Array(F64, [0.5, math.nan, math.inf]), "nested": nested}
    return gguf_bytes(keys, {"w": Tensor((1,), 0, bytes(4))})


FILES = {
    "floats.pth": torch_file(**ODD, list=[0.5, math.nan, math.inf]),
    "floats.gguf": gguf_file(),
    "int.pth": torch_file(n=10**2000),
    "keys.pth": torch_file(**{"\udfff": 1}),
    "objects.pth": torch_saved({"w": torch.ones(2), 1: b"bytes", (2, 3): {4}, None: 1j, 2.5: []}),
    "small.safetensors": safetensors_bytes(SMALL, {"a": "NaN", "\x1b": "\0"}),
    "run.pkl": RUN,
    "text.safetensors": b"no model at all",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["parse", "inspect", "scan", "remember"])
def test_output_is_json(tmp_path: Path, name: str, command: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    done = CliRunner().invoke(cli, [command, "--json", str(path)])
    assert strict(done.stdout)["path"] == str(path)


@pytest.mark.parametrize("name", FILES)
def test_to_dict_is_json(name: str) -> None:
    try:
        model = an.parse(FILES[name])
    except an.AnamnesisError:
        assert name in ("run.pkl", "text.safetensors")
        return
    with model:
        assert strict(json.dumps(model.inspect().to_dict()))


def test_infinities_have_names(tmp_path: Path) -> None:
    path = tmp_path / "floats.pth"
    path.write_bytes(FILES["floats.pth"])
    for command in ("parse", "inspect"):
        told = strict(CliRunner().invoke(cli, [command, "--json", str(path)]).stdout)
        assert told["metadata"] == {**NAMED, "list": [0.5, "NaN", "Infinity"]}


def test_infinities_of_gguf_have_names(tmp_path: Path) -> None:
    path = tmp_path / "floats.gguf"
    path.write_bytes(FILES["floats.gguf"])
    told = strict(CliRunner().invoke(cli, ["parse", "--json", str(path)]).stdout)["metadata"]
    assert {name: told[f"x.{name}"] for name in NAMED} == NAMED
    assert {name: told[f"d.{name}"] for name in NAMED} == NAMED
    assert told["list"] == [0.5, "NaN", "Infinity"]
    assert told["nested"] == [["NaN", 1.5], ["-Infinity"]]


@pytest.mark.parametrize("name", ["floats.pth", "floats.gguf"])
def test_carried_metadata_has_the_same_names(name: str) -> None:
    with an.parse(FILES[name]) as model:
        out = model.remember_to_bytes()
    (n_header,) = struct.unpack_from("<Q", out)
    carried = strict(out[8 : 8 + n_header].decode())["__metadata__"]
    prefix = "" if name.endswith(".pth") else "x."
    assert {key: carried[prefix + key] for key in NAMED} == NAMED
    assert strict(carried["list"]) == [0.5, "NaN", "Infinity"]


def test_a_config_keeps_its_infinities(tmp_path: Path) -> None:
    """transformers writes them into config.json, and reads them, as Python's json does."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors_bytes(SMALL))
    (folder / "config.json").write_text('{"limit": [0.0, Infinity], "rope": -Infinity, "x": NaN}')
    with an.parse(folder) as model:
        model.remember(tmp_path / "out")
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert told["limit"] == [0.0, math.inf]
    assert told["rope"] == -math.inf
    assert math.isnan(told["x"])
