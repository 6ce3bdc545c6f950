"""Layers that inference runs as one have one second scale of NVFP4, as their libraries write it."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import pytest
import torch
from safetensors.torch import load_file, save_file

import anamnesis as an
from anamnesis.schemes import nvfp4
from helpers.whole_libraries import different_bytes, llm_compressor, modelopt, saved_uneven

pytestmark = pytest.mark.filterwarnings("default")

# What vLLM 0.32 and SGLang 0.5.23 merge, by the parent: some layers of each kind of model.
MERGED = {
    "model.layers.0.self_attn": ("q_proj", "k_proj", "v_proj"),
    "model.layers.1.self_attn": ("q_a_proj", "kv_a_proj_with_mqa"),
    "model.layers.2.self_attn": ("q_proj", "k_proj"),
    "model.layers.0.mlp": ("gate_proj", "up_proj"),
    "model.layers.0.mlp.shared_expert": ("gate_proj", "up_proj"),
    "model.layers.1.mlp.shared_experts": ("gate_proj", "up_proj"),
    "model.layers.0.feed_forward": ("gate_proj", "up_proj"),
    "model.layers.0.feed_forward.shared_expert": ("gate_proj", "up_proj"),
    "model.layers.0.mlp.experts.11": ("gate_proj", "up_proj"),
    "model.layers.0.block_sparse_moe.experts.3": ("w1", "w3"),
    "model.layers.3.feed_forward": ("w1", "w3"),
    "model.layers.0.attn": ("wq_a", "wkv"),
    "model.layers.0.linear_attn": ("in_proj_qkv", "in_proj_z"),
    "model.layers.1.linear_attn": ("in_proj_b", "in_proj_a"),
    "model.layers.4.self_attn": ("q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "g_a_proj"),
    "model.layers.2.linear_attn": ("q_proj", "k_proj", "v_proj", "g_proj", "a_proj", "b_proj"),
    "model.layers.5.self_attn": ("q_a_proj", "kv_a_proj_with_mqa", "g_proj"),
    "model.decoder.layers.0.encoder_attn": ("k_proj", "v_proj"),
    "bert.encoder.layer.0.attention.self": ("query", "key", "value"),
    "visual.blocks.0.attn": ("q", "k", "v"),
    "transformer.h.0.mlp": ("c_fc_0", "c_fc_1"),
}


def layers() -> dict[str, torch.Tensor]:
    """Of largest magnitudes that are far apart."""
    generator = torch.Generator().manual_seed(1)
    names = [f"{parent}.{layer}.weight" for parent, all_ in MERGED.items() for layer in all_]
    return {
        name: (torch.randn(8, 64, generator=generator) * (1 + 7 * i % 11)).bfloat16()
        for i, name in enumerate(names)
    }


def test_a_loader_that_merges_layers_finds_their_values(tmp_path: Path) -> None:
    """It decodes all of a merged layer by the largest second scale that it finds, as vLLM does."""
    save_file(layers(), tmp_path / "model.safetensors")
    with an.parse(tmp_path / "model.safetensors") as model:
        model.convert(tmp_path / "out.safetensors", to="nvfp4", verify=True)
    stored = load_file(tmp_path / "out.safetensors")
    with an.parse(tmp_path / "out.safetensors") as model:
        for parent, members in MERGED.items():
            names = [f"{parent}.{layer}.weight" for layer in members]
            second = max(stored[f"{name}_global_scale"] for name in names)
            for name in names:
                codes, scales = stored[f"{name}_packed"], stored[f"{name}_scale"]
                values = nvfp4.dequantize(
                    codes.numpy(),
                    scales.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn),
                    second.numpy(),
                    dtype="f32",
                )
                assert (values == model[name].numpy("f32")).all(), name


def test_others_have_their_own(tmp_path: Path) -> None:
    """Layers of two parents, and those that nobody merges."""
    names = ["a.0.mlp.gate_proj", "a.1.mlp.up_proj", "a.0.mlp.down_proj", "a.0.attn.o_proj"]
    weights = {f"{name}.weight": torch.full((8, 64), i + 1.0) for i, name in enumerate(names)}
    save_file(weights, tmp_path / "model.safetensors")
    with an.parse(tmp_path / "model.safetensors") as model:
        model.convert(tmp_path / "out.safetensors", to="nvfp4")
    found = load_file(tmp_path / "out.safetensors")
    assert len({float(found[f"{name}.weight_global_scale"]) for name in names}) == 4


@pytest.mark.slow
@pytest.mark.against("llm-compressor")
@pytest.mark.parametrize("kind", ["qwen2_moe", "deepseek_v3", "llama"])
def test_llm_compressor_shares_the_same(kind: str, tmp_path: Path) -> None:
    dense = saved_uneven(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "ours", "nvfp4")
    left = ["re:.*lm_head", "re:.*gate$"]
    llm_compressor(dense, tmp_path / "theirs", "NVFP4A16", left)
    differ = different_bytes(tmp_path / "ours", tmp_path / "theirs")
    # transformers keeps that in float32, whatever it was saved in.
    assert [name for name in differ if not name.endswith("e_score_correction_bias")] == []


@pytest.mark.slow
@pytest.mark.against("ModelOpt")
@pytest.mark.parametrize("kind", ["bert", "phi", "cohere", "gptj", "deepseek_v3", "qwen2_moe"])
def test_modelopt_shares_among_layers_of_one_input(kind: str, tmp_path: Path) -> None:
    dense = saved_uneven(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "ours", "nvfp4-modelopt")
    modelopt(dense, tmp_path / "theirs")
    differ = different_bytes(tmp_path / "ours", tmp_path / "theirs")
    assert [name for name in differ if not name.endswith("e_score_correction_bias")] == []
