"""Names that no safetensors file can hold, and text that UTF-8 has not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import Part
from anamnesis.formats.safetensors.write import SafetensorsWriter
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import write_safetensors

ONES = np.ones(32, np.float32)
RESERVED = "__metadata__"


def write_pth(path: Path, name: str) -> None:
    torch.save({name: torch.ones(32), "x": torch.ones(2)}, path)


def write_npz(path: Path, name: str) -> None:
    with path.open("wb") as file:
        np.savez(file, **{name: ONES, "x": ONES})  # type: ignore[arg-type]


def write_gguf(path: Path, name: str) -> None:
    tensors = {key: Tensor((32,), 0, ONES.tobytes()) for key in (name, "x")}
    path.write_bytes(gguf_bytes({}, tensors))


WRITERS = {"pth": write_pth, "npz": write_npz, "gguf": write_gguf}


@pytest.mark.parametrize("kind", list(WRITERS))
def test_name_of_the_metadata(kind: str, tmp_path: Path) -> None:
    """It can be read, but not be written: the header has that key for something else."""
    path, out = tmp_path / f"in.{kind}", tmp_path / "out.safetensors"
    WRITERS[kind](path, RESERVED)
    with an.parse(path) as model:
        assert set(model) == {RESERVED, "x"}
        assert model[RESERVED].numpy().tolist() == ONES.tolist()
        assert model.inspect().n_tensors == 2
        for allow in (False, True):
            with pytest.raises(an.UnsupportedError, match="'__metadata__', which safetensors keep"):
                model.remember(out, allow_unknown=allow)
            with pytest.raises(an.UnsupportedError, match="__metadata__"):
                model.remember_to_bytes(allow_unknown=allow)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def write_same(path: Path, name: str) -> None:
    write_safetensors(path, {key: ("F32", [32], ONES.tobytes()) for key in (name, "x")})


WRITERS["safetensors"] = write_same


ODD_NAMES = ["", " ", "a/b", "\u00e9", "\U0001f600", "a\0b", '"', "\\"]
OTHER_NAMES_THERE = {("npz", ""), ("npz", "a\0b"), ("pth", "")}
ODD = {(kind, name) for kind in ("pth", "npz", "safetensors") for name in ODD_NAMES}


@pytest.mark.parametrize(("kind", "name"), sorted(ODD - OTHER_NAMES_THERE))
def test_odd_names(kind: str, name: str, tmp_path: Path) -> None:
    """What JSON can spell is kept, and the reference implementation reads it."""
    WRITERS[kind](tmp_path / "in", name)
    with an.parse(tmp_path / "in") as model:
        model.remember(tmp_path / "out.safetensors")
    found = load_file(tmp_path / "out.safetensors")
    assert set(found) == {name, "x"}
    assert found[name].tolist() == ONES.tolist()


@pytest.mark.parametrize("name", ["a\ud800", "\udfff"])
def test_half_of_a_surrogate_pair_in_a_name(name: str, tmp_path: Path) -> None:
    write_pth(tmp_path / "in.pth", name)
    with an.parse(tmp_path / "in.pth") as model:
        assert name in model
        with pytest.raises(an.UnsupportedError, match="half of a surrogate pair"):
            model.remember(tmp_path / "out.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["in.pth"]


def test_half_of_a_surrogate_pair_in_metadata(tmp_path: Path) -> None:
    """It is escaped; where the result is a key that is taken, it is another."""
    said = {"s": "\ud800x", "k\udfff": "v", "k\\udfff": "w", "items": ["\ud800"]}
    torch.save({"a": torch.ones(2), **said}, tmp_path / "in.pth")
    with an.parse(tmp_path / "in.pth") as model:
        model.remember(tmp_path / "out.safetensors")
    with an.parse(tmp_path / "out.safetensors") as out:
        metadata = dict(out.metadata)
    assert load_file(tmp_path / "out.safetensors").keys() == {"a"}
    assert metadata["s"] == "\\ud800x"
    assert metadata["k\\udfff"] == "w"
    assert metadata["k\\udfff_"] == "v"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
@pytest.mark.parametrize("verb", [["parse"], ["parse", "--metadata"], ["inspect"], ["remember"]])
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_commands_on_such_a_file(
    verb: list[str], json_flag: list[str], encoding: str, tmp_path: Path
) -> None:
    torch.save({"a\ud800\u4e2d": torch.ones(2), "k\udfff": "\ud800"}, tmp_path / "in.pth")
    run = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-m", "anamnesis", *verb, *json_flag, "in.pth"],
        cwd=tmp_path,
        capture_output=True,
        env={"PYTHONIOENCODING": encoding, "PYTHONPATH": str(Path(an.__file__).parents[1])},
        check=False,
    )
    refused = verb == ["remember"]
    assert run.returncode == refused, run.stderr
    assert b"internal error" not in run.stderr
    assert (b"half of a surrogate pair" in run.stderr) == refused
    if json_flag:
        assert "path" in json.loads(run.stdout)


@pytest.mark.parametrize("where", ["config.json", "model.safetensors.index.json"])
def test_half_of_a_surrogate_pair_in_json(where: str, tmp_path: Path) -> None:
    root = tmp_path / "in"
    write_safetensors(root / "model.safetensors", {"a": ("F32", [1], bytes(4))})
    told: dict[str, Any] = {"weight_map": {"a": "model.safetensors"}, "\udfff": "\ud800"}
    (root / where).write_text(json.dumps(told))
    with an.parse(root) as model:
        model.remember(tmp_path / "out")
    written = json.loads((tmp_path / "out" / where).read_bytes())
    assert where != "config.json" or written["\udfff"] == "\ud800"


# --- the header -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [{}, {"format": "pt"}])
@pytest.mark.parametrize(
    "names", [["x", RESERVED], [RESERVED], ["a", "b", "a"], ["\ud800"], ["", ""]], ids=ascii
)
def test_header_never_overwrites(names: list[str], metadata: dict[str, str]) -> None:
    with pytest.raises(an.UnsupportedError, match="a tensor is called"):
        SafetensorsWriter().lay_out([Part(name, DTYPES["U8"], (1,)) for name in names], metadata)


def test_what_is_passed_on_never_has_a_weights_name(tmp_path: Path) -> None:
    """A weight of codes comes out under a name that a tensor nobody can read has already."""
    write_same(tmp_path / "in", "a")
    with an.parse(tmp_path / "in") as model:
        model._ledger.problems["a"] = an.UnsupportedError("is odd")
        with pytest.raises(an.UnsupportedError, match="passed on are 'a'"):
            model.remember(tmp_path / "out.safetensors", allow_unknown=True)
