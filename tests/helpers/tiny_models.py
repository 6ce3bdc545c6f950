"""Tiny models of many kinds, of random weights, as transformers saves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    CLIPConfig,
    CLIPModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    FalconConfig,
    Gemma2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MixtralConfig,
    MptConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

__all__ = ["MODELS", "loaded", "saved"]

WORDS: dict[str, Any] = {
    "vocab_size": 160,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "max_position_embeddings": 64,
}
ENCODER: dict[str, Any] = {
    **WORDS,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
DECODER: dict[str, Any] = {**ENCODER, "num_key_value_heads": 2}
EXPERTS: dict[str, Any] = {
    **DECODER,
    "moe_intermediate_size": 128,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
T5: dict[str, Any] = {
    "d_model": 128,
    "d_kv": 32,
    "d_ff": 256,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 160,
}


def _decoder(config: type[PretrainedConfig], **settings: Any) -> Callable[[], PreTrainedModel]:
    return lambda: AutoModelForCausalLM.from_config(config(**settings))


def _clip() -> PreTrainedModel:
    sizes = {k: v for k, v in ENCODER.items() if k not in WORDS}
    text = {**sizes, **WORDS, "projection_dim": 128}
    vision = {**sizes, "image_size": 32, "patch_size": 16, "projection_dim": 128}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=128))


def _whisper() -> PreTrainedModel:
    sizes = {f"{half}_{n}": 2 for half in ("encoder", "decoder") for n in ("layers",)}
    heads = {f"{half}_attention_heads": 4 for half in ("encoder", "decoder")}
    wide = {f"{half}_ffn_dim": 256 for half in ("encoder", "decoder")}
    places = {"max_source_positions": 32, "max_target_positions": 32, "num_mel_bins": 16}
    words = {k: v for k, v in WORDS.items() if not k.startswith("max")}
    return WhisperForConditionalGeneration(
        WhisperConfig(
            d_model=128, decoder_start_token_id=1, **sizes, **heads, **wide, **places, **words
        )
    )


# Heads: untied, tied, tied under other names; experts, routers, Conv1D, two stacks of blocks.
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": _decoder(LlamaConfig, **DECODER, tie_word_embeddings=False),
    "qwen2": _decoder(Qwen2Config, **DECODER, tie_word_embeddings=True),
    "gemma2": _decoder(Gemma2Config, **DECODER, head_dim=32),
    "gpt_neox": _decoder(GPTNeoXConfig, **ENCODER),
    "falcon": _decoder(FalconConfig, **{**ENCODER, "intermediate_size": 512}),
    "mpt": _decoder(MptConfig, d_model=128, n_layers=2, n_heads=4, vocab_size=160, max_seq_len=64),
    "mixtral": _decoder(
        MixtralConfig, **DECODER, num_local_experts=4, num_experts_per_tok=2, head_dim=32
    ),
    "qwen2_moe": _decoder(Qwen2MoeConfig, **EXPERTS, shared_expert_intermediate_size=128),
    "qwen3_moe": _decoder(Qwen3MoeConfig, **EXPERTS, head_dim=32),
    "bert": lambda: BertModel(BertConfig(**ENCODER)),
    "bert_mlm": lambda: BertForMaskedLM(BertConfig(**ENCODER)),
    "roberta_mlm": lambda: RobertaForMaskedLM(RobertaConfig(**ENCODER)),
    "distilbert_mlm": lambda: DistilBertForMaskedLM(
        DistilBertConfig(dim=128, hidden_dim=256, n_layers=2, n_heads=4, **WORDS)
    ),
    "t5": lambda: T5ForConditionalGeneration(T5Config(**T5)),
    "t5_gated": lambda: T5ForConditionalGeneration(
        T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    ),
    "whisper": _whisper,
    "clip": _clip,
}


def saved(kind: str, folder: Path) -> Path:
    """Write a model in BF16."""
    return save(MODELS[kind], folder)


def save(make: Callable[[], Any], folder: Path) -> Path:
    """Write in BF16 what is made, its weights random but always the same."""
    torch.manual_seed(0)
    make().to(torch.bfloat16).save_pretrained(folder)
    return folder


def loaded(folder: Path, **how: Any) -> Any:
    """Load a model as what it says it is; nothing of it may be missing or left over."""
    (name,) = transformers.AutoConfig.from_pretrained(folder).architectures
    kind = getattr(transformers, name)
    model, told = kind.from_pretrained(folder, output_loading_info=True, **how)
    assert not any(told.values()), told
    return model


def dense_for_mlx(kind: str, folder: Path) -> Path:
    """Write a model whose config has the keys that mlx-lm asks for, as older versions wrote it."""
    path = saved(kind, folder) / "config.json"
    config = json.loads(path.read_text())
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    config.setdefault("num_experts", config.get("num_local_experts"))
    path.write_text(json.dumps(config))
    return folder
