"""Files that hold a model a second time, in another format or under other names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import anamnesis as an
from helpers.checkpoints import A, B, left_out, two_shards
from helpers.handmade import Entry, write_safetensors


def write_torch(path: Path, **tensors: torch.Tensor) -> None:
    torch.save(tensors, path)


def test_second_copy_in_torchs_format(root: Path) -> None:
    write_safetensors(root / "model.safetensors", {**A, **B})
    one = torch.ones(1)
    write_torch(root / "pytorch_model.bin", a=one, tied=one, b=one + 1, position_ids=torch.ones(9))
    model = an.parse(root)
    assert set(model) == {"a", "b"}
    reason = "a second copy of the model in PyTorch's format"
    assert left_out(model) == {"pytorch_model.bin": reason}


@pytest.mark.parametrize(
    "tensors",
    [{"lora": torch.ones(1)}, {"a": torch.ones(1), "c": torch.ones(3)}, {"a": torch.ones(2)}],
    ids=["others", "one more", "another shape"],
)
@pytest.mark.parametrize("name", ["model.safetensors", "x.safetensors"])
def test_torch_file_that_is_no_copy(root: Path, name: str, tensors: dict[str, Any]) -> None:
    write_safetensors(root / name, A)
    write_torch(root / "pytorch_model.bin", **tensors)
    lacking = next(t for t in tensors if t != "a" or len(tensors) == 1)
    with pytest.raises(
        an.ParseError, match=rf"pytorch_model\.bin is not a second copy.*'{lacking}'"
    ):
        an.parse(root)


def test_torch_file_that_cannot_be_compared(root: Path) -> None:
    """Not downloaded: the model is what transformers would load, if it would load one."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (root / "pytorch_model.bin").write_bytes(pointer)
    write_safetensors(root / "x.safetensors", A)
    with pytest.raises(an.ParseError, match=r"pytorch_model\.bin: this is a Git LFS pointer"):
        an.parse(root)
    (root / "x.safetensors").rename(root / "model.safetensors")
    (reason,) = left_out(an.parse(root)).values()
    assert reason.startswith("cannot be read: ")
    assert "Git LFS pointer" in reason


@pytest.mark.parametrize("usual", [False, True])
def test_index_of_torch_files_that_are_not_there(root: Path, usual: bool) -> None:
    write_safetensors(root / ("model.safetensors" if usual else "x.safetensors"), A)
    index = "pytorch_model.bin.index.json"
    (root / index).write_text('{"weight_map": {"a": "p-1.bin", "tied": "p-2.bin"}}')
    if usual:
        assert list(left_out(an.parse(root))) == [index]
    else:
        with pytest.raises(an.ParseError, match=r"p-2\.bin is missing"):
            an.parse(root)


@pytest.mark.parametrize("extra", [False, True])
def test_mistral_names_by_their_shapes(root: Path, extra: bool) -> None:
    ours: dict[str, Entry] = {"q": ("F32", [2, 3], bytes(24)), "norm": ("F32", [3], bytes(12))}
    theirs: dict[str, Entry] = {"wq": ours["q"], "s": ("F32", [1], bytes(4))}
    if extra:
        theirs["vision"] = ("F32", [3, 3], bytes(36))
    write_safetensors(root / "model.safetensors", ours)
    write_safetensors(root / "consolidated.safetensors", theirs)
    if extra:
        with pytest.raises(an.ParseError, match=r"consolidated\.safetensors is not a second copy"):
            an.parse(root)
    else:
        assert list(left_out(an.parse(root))) == ["consolidated.safetensors"]


def test_mistral_names_with_experts_one_by_one(root: Path) -> None:
    stacked: dict[str, Entry] = {"experts": ("F32", [2, 2, 3], bytes(48))}
    singly: dict[str, Entry] = {f"experts.{i}.w": ("F32", [2, 3], bytes(24)) for i in range(2)}
    write_safetensors(root / "model.safetensors", stacked)
    write_safetensors(root / "consolidated.safetensors", singly)
    index = "consolidated.safetensors.index.json"
    weight_map = dict.fromkeys(singly, "consolidated.safetensors")
    (root / index).write_text(json.dumps({"weight_map": weight_map}))
    assert set(left_out(an.parse(root))) == {"consolidated.safetensors", index}


def test_files_of_second_copies_are_closed(root: Path) -> None:
    write_safetensors(root / "model.safetensors", A)
    write_torch(root / "pytorch_model.bin", a=torch.ones(1))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        an.parse(root).close()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_mistral_names_beside_shards(root: Path) -> None:
    two_shards(root)
    write_safetensors(root / "consolidated.safetensors", {"other.a": A["a"]})
    write_safetensors(root / "consolidated-00001-of-00001.safetensors", A)
    model = an.parse(root)
    assert set(model) == {"a", "b"}
    assert set(left_out(model)) == {
        "consolidated.safetensors",
        "consolidated-00001-of-00001.safetensors",
    }


def test_mistral_names_alone(root: Path) -> None:
    write_safetensors(root / "consolidated.safetensors", A)
    model = an.parse(root)
    assert list(model) == ["a"]
    assert left_out(model) == {}
