"""Output heads, tied to an embedding or not: transformers makes no quantised layers of them.

A tied one is in no file. A program that makes a quantised layer of it waits for scales in vain.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    FineGrainedFP8Config,
    LlamaConfig,
    PretrainedConfig,
    Qwen3MoeConfig,
)
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import anamnesis as an
from helpers.tiny_models import save

pytestmark = pytest.mark.filterwarnings("default")

SMALL: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 128,
    "num_key_value_heads": 1,
    "vocab_size": 256,
}


def llama(tied: bool) -> PretrainedConfig:
    return LlamaConfig(**SMALL, tie_word_embeddings=tied)


def experts(tied: bool) -> PretrainedConfig:
    moe = {"moe_intermediate_size": 128, "num_experts": 4, "num_experts_per_tok": 2}
    return Qwen3MoeConfig(**SMALL, **moe, tie_word_embeddings=tied)


def saved(config: PretrainedConfig, folder: Path) -> Path:
    return save(lambda: AutoModelForCausalLM.from_config(config), folder)


def loaded(folder: Path, **how: Any) -> Any:
    """Load a model; nothing of it may be missing or left over."""
    model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **how)
    assert not any(told.values()), told
    return model


@pytest.fixture
def no_gpu_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantising is plain torch: transformers only asks for a GPU to run the layers on."""
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)


@pytest.mark.against("transformers")
@pytest.mark.usefixtures("no_gpu_asked")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("to", "settings"),
    [
        ("fp8-block", {}),
        ("fp8-block-ue8m0", {"scale_fmt": "ue8m0"}),
        ("fp8-tensor", {"weight_block_size": None}),
    ],
)
def test_fp8_is_what_transformers_makes(
    to: str, settings: dict[str, Any], tied: bool, tmp_path: Path
) -> None:
    dense = saved(llama(tied), tmp_path / "dense")
    how = FineGrainedFP8Config(**settings)
    AutoModelForCausalLM.from_pretrained(dense, quantization_config=how).save_pretrained(
        tmp_path / "theirs"
    )
    with an.parse(dense) as model:
        model.forget(tmp_path / "ours", to, verify=True)
    theirs, ours = (load_file(tmp_path / w / "model.safetensors") for w in ("theirs", "ours"))
    assert ours.keys() == theirs.keys()
    assert ("lm_head.weight" in ours) != tied
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        if to == "fp8-tensor" and name.endswith("_inv"):  # as the layer has it, not as it is saved
            assert (ours[name].shape, tensor.shape) == ((), (1, 1))
        else:
            assert ours[name].shape == tensor.shape, name
        assert ours[name].view(-1).view(torch.uint8).equal(tensor.view(-1).view(torch.uint8)), name
    told = [json.loads((tmp_path / w / "config.json").read_text()) for w in ("theirs", "ours")]
    kinds = [config["quantization_config"] for config in told]
    left = kinds[1].pop("modules_to_not_convert")
    assert left == [*["lm_head"] * (not tied), "model.embed_tokens", *["lm_head"] * tied]
    assert kinds[0].pop("modules_to_not_convert") is None
    assert kinds[0] == kinds[1]
    classes = [
        {name: type(layer).__name__ for name, layer in loaded(tmp_path / w).named_modules()}
        for w in ("theirs", "ours")
        if (to, w) != ("fp8-tensor", "theirs")
    ]
    assert classes[0] == classes[-1]
    assert classes[-1]["lm_head"] == "Linear"
    assert "FP8Linear" in classes[-1].values()


@pytest.mark.usefixtures("no_gpu_asked")
@pytest.mark.parametrize("tied", [True, False])
def test_experts(tied: bool, tmp_path: Path) -> None:
    """Routers are no nn.Linear there; each expert is quantised, and they are stacked as loaded."""
    dense = saved(experts(tied), tmp_path / "dense")
    with an.parse(dense) as model:
        report = model.forget(tmp_path / "ours", "fp8-block")
        assert "model.layers.0.mlp.gate.weight" in report.plain
    classes = {name: type(m).__name__ for name, m in loaded(tmp_path / "ours").named_modules()}
    assert classes["lm_head"] == "Linear"
    assert classes["model.layers.0.mlp.experts"] == "FP8Experts"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "to",
    ["fp8-block", "fp8-channel", "fp8-tensor-ct", "int8", "int4", "bnb-nf4", "bnb-int8"],
)
def test_heads_are_loaded_as_they_are(to: str, tied: bool, tmp_path: Path) -> None:
    dense = saved(llama(tied), tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "ours", to)
    found = loaded(tmp_path / "ours", dtype=torch.bfloat16)
    assert type(found.lm_head) is torch.nn.Linear
    assert (found.lm_head.weight is found.model.embed_tokens.weight) == tied
    want = loaded(dense).lm_head.weight
    assert torch.equal(found.lm_head.weight, want)
