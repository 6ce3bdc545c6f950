"""Tensors of torch in every container, beside torch.save and safetensors."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import load_file, save_file

import anamnesis as an

torch.manual_seed(3)
TENSORS: dict[str, Any] = {
    "matrix": torch.randn(3, 5),
    "bf16": torch.randn(4, 4).bfloat16(),
    "half": torch.randn(3).half(),
    "double": torch.tensor(2.5, dtype=torch.float64),
    "empty": torch.empty(0, 3),
    "bool": torch.tensor([True, False]),
    "complex": torch.randn(3, dtype=torch.complex64),
    "i64": torch.arange(7),
    "u16": torch.arange(4).to(torch.uint16),
    "e4m3": torch.randn(8, 8).to(torch.float8_e4m3fn),
    "e5m2": torch.randn(8).to(torch.float8_e5m2),
    "e8m0": torch.ones(3).to(torch.float8_e8m0fnu),
    "fp4": torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2),
    "parameter": torch.nn.Parameter(torch.randn(2, 2)),
}


def bits(tensor: torch.Tensor) -> Any:
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8).tolist()


def test_as_safetensors_writes(tmp_path: Path) -> None:
    an.save(TENSORS, tmp_path / "ours.safetensors")
    save_file(TENSORS, tmp_path / "theirs.safetensors")
    assert (tmp_path / "ours.safetensors").read_bytes() == (
        tmp_path / "theirs.safetensors"
    ).read_bytes()


def test_as_torch_saves(tmp_path: Path) -> None:
    """Member by member, but for the id, half of which torch makes of its C++ library's hashes."""
    tensors = OrderedDict((n, t.detach()) for n, t in TENSORS.items())
    an.save(TENSORS, tmp_path / "ours.pth")
    torch.save(tensors, tmp_path / "theirs.pth")
    with ZipFile(tmp_path / "ours.pth") as ours, ZipFile(tmp_path / "theirs.pth") as theirs:
        members = [m.filename.partition("/")[2] for m in ours.infolist()]
        assert members == [m.filename.partition("/")[2] for m in theirs.infolist()]
        for one, other in zip(ours.infolist(), theirs.infolist(), strict=True):
            assert ours.read(one) == theirs.read(other) or "serialization_id" in one.filename
    back = torch.load(tmp_path / "ours.pth", weights_only=True)
    assert all(bits(back[name]) == bits(tensor) for name, tensor in TENSORS.items())


def test_strides_and_lazy_bits(tmp_path: Path) -> None:
    tensors = {
        "turned": torch.randn(5, 3).t(),
        "bf16_turned": torch.randn(5, 3).bfloat16().t(),
        "e4m3_step": torch.randn(9, 4).to(torch.float8_e4m3fn)[::2, ::3],
        "expanded": torch.randn(3, 1).expand(3, 4),
        "conjugate": torch.randn(4, dtype=torch.complex64).conj(),
        "negated": torch.randn(4, dtype=torch.complex64).conj().imag,
        "bool": torch.tensor([[True, False, True]]).t()[::2],
    }
    an.save(tensors, tmp_path / "a.safetensors")
    loaded = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(loaded[name].to(t.dtype), t) for name, t in tensors.items())


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (torch.eye(3).to_sparse(), "'a' is a torch.sparse_coo, which has no plain values"),
        (torch.empty(3, device="meta"), "'a' lies on the device 'meta'"),
        (torch.ones(4, dtype=torch.uint8).view(torch.bits8), "'a' has the dtype torch.bits8"),
    ],
)
def test_no_plain_tensor(tmp_path: Path, tensor: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        an.save({"a": tensor}, tmp_path / "a.safetensors")


def test_shards_as_transformers_cuts_them(tmp_path: Path) -> None:
    """In the order of the state dict, so that the layers of a shard are neighbours."""
    tensors = {f"layers.{i}.{n}": torch.randn(20, i + 1) for i in range(30) for n in ("b", "a")}
    theirs = split_torch_state_dict_into_shards(
        tensors, filename_pattern="model{suffix}.safetensors", max_shard_size=5000
    )
    an.save(tensors, tmp_path, max_shard_size=5000)
    ours = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert ours == {"metadata": theirs.metadata, "weight_map": theirs.tensor_to_filename}
    for name, shard in theirs.tensor_to_filename.items():
        assert torch.equal(load_file(tmp_path / shard)[name], tensors[name])
