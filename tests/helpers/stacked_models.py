"""Tiny models whose experts transformers saves as stacks, of random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    Gemma4TextConfig,
    GptOssConfig,
    GraniteMoeConfig,
    Llama4Config,
    Llama4ForConditionalGeneration,
    OpenAIPrivacyFilterConfig,
    PreTrainedModel,
    Qwen3_5MoeTextConfig,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

from helpers.tiny_models import DECODER, EXPERTS, loaded, saved

__all__ = ["STACKED", "saved_stacked"]

SIZES: dict[str, Any] = {**DECODER, "head_dim": 32, "intermediate_size": 128}
LOCAL: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
UNTIED: dict[str, Any] = {"tie_word_embeddings": False}


def _llama4() -> PreTrainedModel:
    text = {
        **SIZES,
        **UNTIED,
        **LOCAL,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 256,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 32,
    }
    vision = {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "image_size": 16,
        "patch_size": 8,
        "vision_output_dim": 64,
        "projector_input_dim": 64,
        "projector_output_dim": 64,
        "pixel_shuffle_ratio": 0.5,
    }
    return Llama4ForConditionalGeneration(Llama4Config(text_config=text, vision_config=vision))


def _qwen3_vl() -> PreTrainedModel:
    rope = {"rope_type": "default", "mrope_section": [8, 4, 4], "mrope_interleaved": True}
    text = {**EXPERTS, "head_dim": 32, "rope_scaling": rope}
    vision = {
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 128,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    return Qwen3VLMoeForConditionalGeneration(
        Qwen3VLMoeConfig(text_config=text, vision_config=vision)
    )


def _qwen3_5() -> PreTrainedModel:
    config = Qwen3_5MoeTextConfig(
        **EXPERTS,
        head_dim=32,
        shared_expert_intermediate_size=128,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        layer_types=["linear_attention", "full_attention"],
    )
    return AutoModelForCausalLM.from_config(config)


def _gpt_oss() -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(GptOssConfig(**SIZES, **LOCAL, **UNTIED))


def _gemma4() -> PreTrainedModel:
    config = Gemma4TextConfig(
        **SIZES,
        moe_intermediate_size=128,
        num_experts=4,
        top_k_experts=2,
        enable_moe_block=True,
        hidden_size_per_layer_input=0,
        global_head_dim=32,
        layer_types=["sliding_attention", "full_attention"],
        num_kv_shared_layers=0,
    )
    return AutoModelForCausalLM.from_config(config)


def _granite() -> PreTrainedModel:
    sizes = {name: size for name, size in SIZES.items() if name != "head_dim"}
    return AutoModelForCausalLM.from_config(GraniteMoeConfig(**sizes, **LOCAL, **UNTIED))


def _privacy_filter() -> PreTrainedModel:
    config = OpenAIPrivacyFilterConfig(**SIZES, **LOCAL)
    return AutoModelForTokenClassification.from_config(config)


# Stacks that are [experts, out, in] and [experts, in, out]; with biases; whose gates alternate.
STACKED: dict[str, Callable[[], PreTrainedModel]] = {
    "llama4": _llama4,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5_moe": _qwen3_5,
    "gpt_oss": _gpt_oss,
    "gemma4": _gemma4,
    "granitemoe": _granite,
    "openai_privacy_filter": _privacy_filter,
}


def saved_stacked(kind: str, folder: Path) -> Path:
    """Write a model in BF16, with the stacks that transformers has, also where it saves none."""
    if kind not in STACKED:
        model = loaded(saved(kind, folder), dtype=torch.bfloat16)
    else:
        torch.manual_seed(0)
        model = STACKED[kind]().to(torch.bfloat16)
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if name.endswith("_bias"):  # which are zeros
                    tensor.normal_()
        model.save_pretrained(folder)
    if kind in ("qwen3_moe", "qwen3_5_moe"):
        state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(state, folder / "model.safetensors", {"format": "pt"})
    return folder
