"""Pickles of torchao's tensors, made by torchao: what it dequantises them to, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import quiet
from helpers.torchao_cases import CASES, DTYPES, dequantized, make

pytestmark = pytest.mark.against("torchao")

NAME = "layers.0.weight"


def saved(tensors: dict[str, Any], path: Path, *, legacy: bool = False) -> Path:
    torch.save(tensors, path, _use_new_zipfile_serialization=not legacy)
    return path


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_has_the_librarys_values(case: str, dtype: Any, legacy: bool, tmp_path: Path) -> None:
    weight = make(case, DTYPES[dtype])
    path = saved({NAME: weight, "norm.weight": torch.ones(4)}, tmp_path / "m.pt", legacy=legacy)
    exact, own = quiet(dequantized(weight, torch.float32)), quiet(dequantized(weight))
    with an.parse(path) as model:
        assert not model.problems
        assert sorted(model) == [NAME, "norm.weight"]
        assert model[NAME].shape == tuple(weight.shape)
        for level in supported_levels():
            assert model[NAME].numpy("f32", level=level).tobytes() == exact
            found = model[NAME].numpy(dtype, level=level, math="reference")
            assert found.tobytes() == own


@pytest.mark.parametrize("case", CASES)
def test_is_read_as_its_safetensors_are(case: str, tmp_path: Path) -> None:
    """The same tensors under the same names, and the same in the metadata."""
    weight = make(case, torch.bfloat16)
    if type(weight).__name__ == "PrototypeFloat8Tensor":
        return  # torchao does not save it so
    tensors, metadata = flatten_tensor_state_dict({NAME: weight})
    with an.parse(saved({NAME: weight}, tmp_path / "m.pt")) as model:
        told = dict(model.metadata)
        stored = model._ledger.stored
        assert {n: (t.shape, t.dtype.torch_name) for n, t in stored.items()} == {
            n: (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for n, t in tensors.items()
        }
        for name, tensor in tensors.items():
            raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            assert bytes(stored[name].read()) == raw
    assert told.keys() == {NAME}
    assert json.loads(told[NAME]) == json.loads(metadata[NAME])


@pytest.mark.parametrize("case", CASES)
def test_safetensors_have_the_same_values(case: str, tmp_path: Path) -> None:
    weight = make(case, torch.bfloat16)
    if type(weight).__name__ == "PrototypeFloat8Tensor":
        return
    tensors, metadata = flatten_tensor_state_dict({NAME: weight})
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, tmp_path / "m.safetensors", metadata)
    with an.parse(tmp_path / "m.safetensors") as model:
        assert not model.problems
        assert model[NAME].numpy("f32").tobytes() == quiet(dequantized(weight, torch.float32))


def test_remembers_a_directory_of_shards(tmp_path: Path) -> None:
    """config.json and an index that names weights, and shards that hold their parts."""
    folder = tmp_path / "model"
    folder.mkdir()
    weights = {f"layers.{i}.weight": make(case, torch.bfloat16) for i, case in enumerate(CASES)}
    weights["lm_head.weight"] = torch.randn(3, 5)
    names = list(weights)
    shards = {"pytorch_model-00001-of-00002.bin": names[::2]}
    shards["pytorch_model-00002-of-00002.bin"] = names[1::2]
    for shard, held in shards.items():
        saved({name: weights[name] for name in held}, folder / shard)
    index = {name: shard for shard, held in shards.items() for name in held}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    config = {"model_type": "llama", "quantization_config": {"quant_method": "torchao"}}
    (folder / "config.json").write_text(json.dumps(config))
    with an.parse(folder) as model:
        model.remember(tmp_path / "out", "bf16")
    found: dict[str, torch.Tensor] = {}
    for path in (tmp_path / "out").glob("*.safetensors"):
        found |= load_file(path)
        with an.parse(path) as model:
            assert not any("_type" in str(value) for value in model.metadata.values())
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        if name != "lm_head.weight":
            wanted = dequantized(weight, torch.float32).to(torch.bfloat16)
            assert quiet(found[name]) == quiet(wanted), name
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())


@pytest.mark.parametrize("name", ["weight", "a.weight", "experts.gate_up_proj", "a.b.w1"])
def test_weights_of_any_name(name: str, tmp_path: Path) -> None:
    for case in ("float8-row", "int8-row", "int4", "mxfp8", "mxfp4", "nvfp4-second"):
        weight = make(case, torch.bfloat16)
        with an.parse(saved({name: weight}, tmp_path / "m.pt")) as model:
            assert not model.problems
            assert list(model) == [name]
            assert model[name].numpy("f32").tobytes() == quiet(dequantized(weight, torch.float32))


def test_parameters_and_models(tmp_path: Path) -> None:
    """As parameters, shared by two names, in a dictionary of something else, beside a bias."""
    weight = torch.nn.Parameter(make("int8-row", torch.bfloat16), requires_grad=False)
    tree = {"model": {"a.weight": weight, "b.weight": weight, "a.bias": torch.ones(3)}, "step": 7}
    with an.parse(saved(tree, tmp_path / "m.pt")) as model:
        assert not model.problems
        for name in ("model.a.weight", "model.b.weight"):
            exact = quiet(dequantized(weight.data, torch.float32))
            assert model[name].numpy("f32").tobytes() == exact
