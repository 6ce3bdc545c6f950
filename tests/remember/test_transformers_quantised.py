"""What transformers itself loads of its own quantised directories has the weights that we read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig
from torchao.quantization.granularity import PerGroup
from transformers import AutoModelForCausalLM, TorchAoConfig
from transformers.integrations import bitnet

import anamnesis as an
from helpers.as_transformers_load import tiny_llama

pytestmark = pytest.mark.against("transformers, torchao")

N_LINEAR = 7  # in one layer of a Llama

TORCHAO = {
    "int8": Int8WeightOnlyConfig(version=2),
    "float8": Float8WeightOnlyConfig(),
    "int4 in groups": IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
    "int3 in groups": IntxWeightOnlyConfig(torch.int3, PerGroup(64)),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "llama"
    tiny_llama(n_layers=1).save_pretrained(folder)
    return folder


def loaded(folder: Path) -> Any:
    model, told = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True
    )
    assert not any(told.values()), told
    return model


def layers(model: Any) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            yield f"{name}.weight", module


def assert_equal(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    assert len(expected) == N_LINEAR
    with an.parse(folder) as model:
        for name, values in expected.items():
            ours = torch.from_numpy(model[name].numpy("bf16").view(np.int16)).view(torch.bfloat16)
            assert torch.equal(ours, values.to(torch.bfloat16)), name


@pytest.mark.parametrize("case", TORCHAO)
def test_torchao(case: str, plain: Path, tmp_path: Path) -> None:
    how = TorchAoConfig(TORCHAO[case])
    quantised = AutoModelForCausalLM.from_pretrained(
        plain, dtype=torch.bfloat16, quantization_config=how
    )
    quantised.save_pretrained(tmp_path / "model")
    model = loaded(tmp_path / "model")
    assert_equal(
        tmp_path / "model", {name: layer.weight.dequantize() for name, layer in layers(model)}
    )


def test_bitnet(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers divides what a layer gives by the scale."""
    monkeypatch.setattr(torch._dynamo.config, "disable", True)  # compiling takes a minute
    folder = tmp_path / "model"
    folder.mkdir()
    tensors = load_file(plain / "model.safetensors")
    for i, name in enumerate([name for name in tensors if name.endswith("_proj.weight")]):
        weight = tensors[name]
        ternary = torch.randint(-1, 2, weight.shape, dtype=torch.int8)
        tensors[name] = bitnet.pack_weights(ternary)
        tensors[f"{name}_scale"] = torch.tensor([1.5 + i], dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "bitnet",
        "linear_class": "bitlinear",
        "quantization_mode": "offline",
    }
    (folder / "config.json").write_text(json.dumps(config))
    expected = {
        name: bitnet.unpack_weights(layer.weight, torch.bfloat16) / layer.weight_scale
        for name, layer in layers(loaded(folder))
    }
    assert_equal(folder, expected)
