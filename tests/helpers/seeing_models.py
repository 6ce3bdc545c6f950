"""Tiny models of language that see images, of random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from helpers.tiny_models import DECODER

__all__ = ["SEEING"]

VISION: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 16,
}


def _llava() -> PreTrainedModel:
    text = LlamaConfig(**DECODER).to_dict()
    vision = CLIPVisionConfig(**VISION).to_dict()
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_index=150)
    return LlavaForConditionalGeneration(config)


def _gemma3() -> PreTrainedModel:
    vision = {**VISION, "model_type": "siglip_vision_model"}
    text = {**DECODER, "head_dim": 32}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    return Gemma3ForConditionalGeneration(config)


def _qwen2_5() -> PreTrainedModel:
    rope = {"rope_type": "default", "mrope_section": [4, 6, 6]}
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "patch_size": 4,
        "out_hidden_size": 128,
        "fullatt_block_indexes": [1],
    }
    config = Qwen2_5_VLConfig(text_config={**DECODER, "rope_scaling": rope}, vision_config=vision)
    return Qwen2_5_VLForConditionalGeneration(config)


SEEING: dict[str, Callable[[], PreTrainedModel]] = {
    "llava": _llava,
    "gemma3_vl": _gemma3,
    "qwen2_5_vl": _qwen2_5,
}
