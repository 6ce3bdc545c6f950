"""Models with drafting layers, as their libraries load them and match their lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.utils.match import is_match
from compressed_tensors.utils.mtp import save_mtp_tensors_to_checkpoint
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Glm4MoeConfig,
    PretrainedConfig,
    Qwen3NextConfig,
)

import anamnesis as an
from helpers.tiny_models import DECODER, EXPERTS

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

MOE: dict[str, Any] = {
    **DECODER,
    "moe_intermediate_size": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "tie_word_embeddings": False,
}
LATENT = {"q_lora_rank": 64, "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32}


def _qwen3_next() -> PretrainedConfig:
    return Qwen3NextConfig(
        **EXPERTS,
        head_dim=32,
        shared_expert_intermediate_size=128,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        layer_types=["linear_attention", "full_attention"],
    )


def _deepseek_v3() -> PretrainedConfig:
    heads = {"num_key_value_heads": 4, "v_head_dim": 32}
    return DeepseekV3Config(**{**MOE, **heads}, **LATENT, num_nextn_predict_layers=1)


def _glm4_moe() -> PretrainedConfig:
    return Glm4MoeConfig(**MOE, head_dim=32, num_nextn_predict_layers=1)


CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "qwen3_next": _qwen3_next,
    "deepseek_v3": _deepseek_v3,
    "glm4_moe": _glm4_moe,
}
ROOTS = {"qwen3_next": "mtp", "deepseek_v3": "model.layers.2", "glm4_moe": "model.layers.2"}
# Modules of vLLM's own classes, beside those by the names of files.
BUILT = {
    "qwen3_next": ("mtp.fc", "mtp.layers.0.mlp.experts.3.down_proj"),
    "deepseek_v3": (
        "model.layers.2.mtp_block.self_attn.o_proj",
        "model.layers.2.mlp.experts.0.gate_proj",
    ),
    "glm4_moe": (
        "model.layers.2.mtp_block.self_attn.q_proj",
        "model.layers.2.shared_head.head",
    ),
}
FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


def saved_with_drafts(kind: str, folder: Path) -> tuple[Path, set[str]]:
    """A model whose last layer is there twice: as its own, and as what drafts tokens."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind]()).to(torch.bfloat16)
    model.save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    root, last = ROOTS[kind], "model.layers.1."
    inside = f"{root}.layers.0." if root == "mtp" else f"{root}."
    drafts = {
        name.replace(last, inside): tensor.clone()
        for name, tensor in state.items()
        if name.startswith(last)
    }
    joined = "fc" if root == "mtp" else "eh_proj"
    drafts[f"{root}.{joined}.weight"] = torch.randn(128, 256).bfloat16()
    drafts[f"{root}.norm.weight" if root == "mtp" else f"{root}.enorm.weight"] = torch.ones(128)
    if root != "mtp":
        drafts[f"{root}.shared_head.head.weight"] = torch.randn(160, 128).bfloat16()
    save_file({**state, **drafts}, folder / "model.safetensors", {"format": "pt"})
    return folder, set(drafts)


def loaded_with(folder: Path) -> tuple[Any, dict[str, Any]]:
    found: tuple[Any, dict[str, Any]] = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True
    )
    return found


@pytest.mark.against("transformers")
@pytest.mark.parametrize("to", ["fp8-block", "fp8-channel", "int4"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_transformers_loads_the_rest(kind: str, to: str, tmp_path: Path) -> None:
    """It misses nothing, and leaves over what it has no class for, which is there to the bit."""
    source, drafts = saved_with_drafts(kind, tmp_path / "in")
    with an.parse(source) as model:
        model.forget(tmp_path / "out", to)
    _, told = loaded_with(tmp_path / "out")
    assert not told["missing_keys"]
    assert not told["mismatched_keys"]
    root = f"{ROOTS[kind]}."  # whose experts it has stacked by then
    assert [name for name in told["unexpected_keys"] if not name.startswith(root)] == []
    before, after = (load_file(at / "model.safetensors") for at in (source, tmp_path / "out"))
    assert [name for name in drafts if not torch.equal(after[name], before[name])] == []


@pytest.mark.against("compressed-tensors")
@pytest.mark.parametrize("to", ["int8", "nvfp4"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_compressed_tensors_matches_them(kind: str, to: str, tmp_path: Path) -> None:
    """Its own function, which vLLM has too, finds each drafting layer in the list, and no other."""
    source, drafts = saved_with_drafts(kind, tmp_path / "in")
    with an.parse(source) as model:
        model.forget(tmp_path / "out", to, force=True)
    told = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    linear = torch.nn.Linear(1, 1)

    def is_left(name: str) -> bool:
        return is_match(name, linear, told["ignore"], fused=FUSED)

    for name in (*(name.removesuffix(".weight") for name in drafts), *BUILT[kind]):
        assert is_left(name), name
    with an.parse(tmp_path / "out") as model:
        coded = [tensor.name for tensor in model.values() if tensor.is_quantized]
    assert coded
    assert not [name for name in coded if is_left(name.removesuffix(".weight"))]


@pytest.mark.against("compressed-tensors")
@pytest.mark.parametrize("kind", CONFIGS)
def test_as_compressed_tensors_copies_them(kind: str, tmp_path: Path) -> None:
    """What its own tool copies and lists, for these layers' prefix, is what is here already."""
    source, drafts = saved_with_drafts(kind, tmp_path / "in")
    with an.parse(source) as model:
        model.forget(tmp_path / "out", "int8")
    told = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    ours = load_file(tmp_path / "out" / "model.safetensors")
    save_mtp_tensors_to_checkpoint(str(source), str(tmp_path / "out"), mtp_prefix=ROOTS[kind])
    theirs = load_file(tmp_path / "out" / "model_mtp.safetensors")
    assert theirs.keys() == drafts
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    more = set(config["ignore"]) - set(told["ignore"])
    assert more == {f"re:^{ROOTS[kind]}.*"}  # the same names, but for the dots


@pytest.mark.parametrize("kind", CONFIGS)
def test_modelopt_lists_them(kind: str, tmp_path: Path) -> None:
    """By the pattern that its export appends for their prefix."""
    source, drafts = saved_with_drafts(kind, tmp_path / "in")
    with an.parse(source) as model:
        report = model.forget(tmp_path / "out", "nvfp4-modelopt")
    told = json.loads((tmp_path / "out" / "hf_quant_config.json").read_text())["quantization"]
    assert f"{ROOTS[kind]}*" in told["exclude_modules"]
    for name in (*(name.removesuffix(".weight") for name in drafts), *BUILT[kind]):
        assert any(fnmatch(name, one) for one in told["exclude_modules"]), name
    assert report.n_encoded
