"""What ModelOpt and llm-compressor make of whole tiny models, of weights that differ in size."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    CohereConfig,
    DeepseekV3Config,
    GemmaConfig,
    GPTJConfig,
    LlamaConfig,
    LlamaForTokenClassification,
    OPTConfig,
    PhiConfig,
    PreTrainedModel,
)

from helpers.linearising import _llm_compressor
from helpers.tiny_models import DECODER, ENCODER, EXPERTS, MODELS, WORDS, _decoder, loaded

__all__ = ["WHOLE", "different_bytes", "encoded", "llm_compressor", "modelopt", "saved_uneven"]

Stored = dict[str, torch.Tensor]

WHOLE: dict[str, Callable[[], PreTrainedModel]] = {
    **MODELS,
    "llama_tied": _decoder(LlamaConfig, **DECODER, tie_word_embeddings=True),
    "gemma": _decoder(GemmaConfig, **DECODER, head_dim=32),
    "phi": _decoder(PhiConfig, **ENCODER),
    "cohere": _decoder(CohereConfig, **DECODER),
    "gptj": _decoder(
        GPTJConfig, n_embd=128, n_layer=2, n_head=4, n_positions=64, rotary_dim=16, vocab_size=160
    ),
    "opt": _decoder(
        OPTConfig,
        hidden_size=128,
        word_embed_proj_dim=128,
        ffn_dim=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        **{k: v for k, v in WORDS.items() if k != "pad_token_id"},
    ),
    "deepseek_v3": _decoder(
        DeepseekV3Config,
        **{**EXPERTS, "num_key_value_heads": 4},
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        n_shared_experts=1,
        first_k_dense_replace=1,
        q_lora_rank=64,
        kv_lora_rank=64,
        qk_rope_head_dim=16,
        qk_nope_head_dim=32,
        v_head_dim=32,
    ),
    "bert_classes": lambda: BertForSequenceClassification(BertConfig(**ENCODER, num_labels=64)),
    "llama_classes": lambda: LlamaForTokenClassification(LlamaConfig(**DECODER, num_labels=64)),
}


def saved_uneven(kind: str, folder: Path) -> Path:
    """Write a model in BF16, whose matrices have largest magnitudes that are far apart."""
    torch.manual_seed(0)
    model = WHOLE[kind]().to(torch.bfloat16)
    with torch.no_grad():
        for i, weight in enumerate(model.parameters()):
            if weight.ndim > 1:
                weight.mul_(1 + i * 7 % 11 / 3)
    model.save_pretrained(folder)
    return folder


def modelopt(dense: Path, folder: Path, to: str = "W4A16_NVFP4_CFG") -> Path:
    """Quantise a model's weights, and save it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import modelopt.torch.quantization as mtq
        from modelopt.torch.export import export_hf_checkpoint

        model = loaded(dense, dtype=torch.bfloat16).eval()
        mtq.quantize(model, getattr(mtq, to), lambda _: None)
        export_hf_checkpoint(model, export_dir=folder)
    return folder


def llm_compressor(dense: Path, folder: Path, scheme: str, ignore: list[str]) -> Path:
    """Quantise a model's linear layers, without data, and save it."""
    oneshot, linearize_moe, modifier = _llm_compressor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = loaded(dense, dtype=torch.bfloat16)
        linearize_moe(model)
        recipe = modifier(targets=["Linear"], scheme=scheme, ignore=ignore)
        oneshot(model=model, recipe=recipe, pipeline="datafree")
        model.save_pretrained(folder, save_compressed=True)
    return folder


def stored(folder: Path) -> Stored:
    """All tensors of a directory."""
    found: Stored = {}
    for file in folder.glob("*.safetensors"):
        found |= load_file(file)
    return found


def different_bytes(ours: Path, theirs: Path) -> list[str]:
    """The names of tensors that are in one of them only, or not the same in both."""
    one, other = stored(ours), stored(theirs)
    names = [name for name in one if name in other and not _equal(one[name], other[name])]
    return sorted([*(one.keys() ^ other.keys()), *names])


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    def raw(tensor: torch.Tensor) -> Any:
        return tensor.contiguous().reshape(-1).view(torch.uint8)

    is_alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    return is_alike and torch.equal(raw(one), raw(other))


def encoded(folder: Path) -> set[str]:
    """The names of all scales in a folder."""
    found: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            found |= {name for name in opened.keys() if name.endswith("weight_scale")}  # noqa: SIM118
    return found
