"""A tiny model of each architecture that becomes a GGUF, its names as transformers saves them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open

from helpers import tiny_files, vocabularies
from helpers.tiny_files import Tensor

__all__ = ["CASES", "Case", "files", "make", "tensors"]

Config = dict[str, Any]

CARD = """\
---
license: apache-2.0
language:
- en
- de
base_model: someone/Tiny-Base-1B
pipeline_tag: text-generation
tags:
- tiny
---

# Tiny
"""


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes
    ----------
    model : str
        The class of transformers; its config class is the one that it names.
    settings : dict
        Of the config.
    vocabulary : str
        A key of `vocabularies.CUTS`.
    edit : function, optional
        Changes what stands in config.json, after transformers has written it.
    extra : list of Tensor
        That published models have and transformers does not save.
    flags : tuple of str
        For llama.cpp's converter.
    dtype : str
        Of all tensors but those that the architecture keeps in float32.
    note : str
        What is unusual.
    drop : tuple of str
        Ends of names of tensors that published models do not have.
    more : function, optional
        Returns tensors that published models have too, from those that transformers saves.
    tokenizer : dict
        Put into tokenizer_config.json.
    """

    model: str
    settings: Config
    vocabulary: str
    edit: Callable[[Config], None] | None = None
    extra: tuple[Tensor, ...] = ()
    flags: tuple[str, ...] = ()
    dtype: str = "F32"
    n_shards: int = 1
    note: str = ""
    drop: tuple[str, ...] = ()
    more: Callable[[list[Tensor]], list[Tensor]] | None = None
    tokenizer: Config = field(default_factory=dict)


WORDS: Config = {"vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
BASE: Config = {
    **WORDS,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
WIDE: Config = {**BASE, "hidden_size": 256, "intermediate_size": 512}
MOE: Config = {
    **BASE,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
}
DEEPSEEK: Config = {
    **MOE,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "routed_scaling_factor": 2.5,
}
DEEPSEEK_2: Config = {**DEEPSEEK, "norm_topk_prob": False, "n_group": 1, "topk_group": 1}
ENCODER: Config = {
    **{k: v for k, v in BASE.items() if k not in ("num_key_value_heads", "tie_word_embeddings")},
    "bos_token_id": None,
    "eos_token_id": None,
    "type_vocab_size": 2,
}
T5: Config = {
    "vocab_size": 512,
    "d_model": 128,
    "d_ff": 256,
    "d_kv": 48,
    "num_heads": 4,
    "num_layers": 2,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
PLAIN = {"rope_type": "default", "rope_theta": 150000.0}
LINEAR: Config = {
    **BASE,
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "full_attention_interval": 4,
}
LINEAR_MOE: Config = {
    **LINEAR,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
GLM: Config = {
    **MOE,
    "num_hidden_layers": 3,
    "head_dim": 32,
    "attention_bias": True,
    "use_qk_norm": True,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
}
# Of Gemma: llama.cpp scales by the size of a head, but for the models of 27B.
HEADS_32: Config = {"head_dim": 32, "query_pre_attn_scalar": 32}
HEADS_64: Config = {"head_dim": 64, "query_pre_attn_scalar": 64}
ONE_LAYER: Config = {
    **BASE,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "tie_word_embeddings": True,
}
VISION: Config = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
}
VISION_QWEN: Config = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "patch_size": 14,
    "out_hidden_size": 128,
    "num_position_embeddings": 16,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "long_factor": [1.0 + 0.5 * i for i in range(16)],
    "short_factor": [1.0 + 0.01 * i for i in range(16)],
    "original_max_position_embeddings": 64,
}


def older(config: Config) -> None:
    """Write rope as transformers 4 does: rope_theta, and rope_scaling with `type` or rope_type."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type", "default")
    config["rope_scaling"] = None if kind == "default" else {**rope, "rope_type": kind}


def oldest(config: Config) -> None:
    """Write rope as the first releases do, its type called `type`."""
    older(config)
    if config["rope_scaling"]:
        config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")


def _set(**values: Any) -> Callable[[Config], None]:
    def edit(config: Config) -> None:
        for name, value in values.items():
            config[name] = value

    return edit


def _both(*edits: Callable[[Config], None]) -> Callable[[Config], None]:
    def edit(config: Config) -> None:
        for each in edits:
            each(config)

    return edit


def _drop(*names: str) -> Callable[[Config], None]:
    def edit(config: Config) -> None:
        for name in names:
            config.pop(name, None)

    return edit


def _nextn(i: int, like: int) -> Callable[[list[Tensor]], list[Tensor]]:
    """Return what makes a layer that predicts one more token: as another, and how it is fed."""

    def more(found: list[Tensor]) -> list[Tensor]:
        before, after = f"model.layers.{like}.", f"model.layers.{i}."
        layer = [(n.replace(before, after), t, s) for n, t, s in found if n.startswith(before)]
        norms = [
            (f"{after}{n}.weight", "F32", [128]) for n in ("enorm", "hnorm", "shared_head.norm")
        ]
        ends = [
            (f"{after}{n}.weight", "F32", [512, 128]) for n in ("embed_tokens", "shared_head.head")
        ]
        return [*layer, *norms, *ends, (f"{after}eh_proj.weight", "F32", [128, 256])]

    return more


def _qwen_mtp(found: list[Tensor]) -> list[Tensor]:
    """Return the layer that predicts one more token, as Qwen publishes it."""
    full = [(n, t, s) for n, t, s in found if ".layers.3." in n]
    layer = [(f"mtp.layers.0.{n.partition('.layers.3.')[2]}", t, s) for n, t, s in full]
    norms = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    return [
        *layer,
        *((f"mtp.{n}.weight", "F32", [128]) for n in norms),
        ("mtp.fc.weight", "F32", [128, 256]),
    ]


def _nomic() -> list[Tensor]:
    """Return the tensors of a nomic-embed-text-v1.5."""
    sizes = {
        "attn.Wqkv.weight": [384, 128],
        "attn.out_proj.weight": [128, 128],
        "mlp.fc11.weight": [256, 128],
        "mlp.fc12.weight": [256, 128],
        "mlp.fc2.weight": [128, 256],
    }
    sizes |= {f"{n}.{part}": [128] for n in ("norm1", "norm2") for part in ("weight", "bias")}
    ends = {
        "embeddings.word_embeddings.weight": [512, 128],
        "embeddings.token_type_embeddings.weight": [2, 128],
        "emb_ln.weight": [128],
        "emb_ln.bias": [128],
    }
    layers = {f"encoder.layers.{i}.{n}": s for i in range(2) for n, s in sizes.items()}
    return [(name, "F32", shape) for name, shape in (ends | layers).items()]


def _as_nomic(config: Config) -> None:
    """Write config.json as nomic-embed-text-v1.5 has it."""
    config.clear()
    config.update(
        architectures=["NomicBertModel"],
        model_type="nomic_bert",
        activation_function="swiglu",
        causal=False,
        dtype="float32",
        layer_norm_epsilon=1e-12,
        max_trained_positions=2048,
        mlp_fc1_bias=False,
        mlp_fc2_bias=False,
        hidden_size=128,
        intermediate_size=256,
        n_embd=128,
        n_head=4,
        n_inner=256,
        n_layer=2,
        n_positions=8192,
        num_attention_heads=4,
        num_hidden_layers=2,
        pad_vocab_size_multiple=64,
        prenorm=False,
        qkv_proj_bias=False,
        rotary_emb_base=1000,
        rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False,
        rotary_emb_scale_base=None,
        type_vocab_size=2,
        use_rms_norm=False,
        vocab_size=512,
    )


def _fused_experts(found: list[Tensor]) -> list[Tensor]:
    """Return experts as three-dimensional tensors, gate and up in one."""
    routers = [n.removesuffix("gate.weight") for n, _, _ in found if n.endswith("mlp.gate.weight")]
    shapes = {"gate_up_proj": [4, 128, 128], "down_proj": [4, 128, 64]}
    return [(f"{r}experts.{n}", "F32", s) for r in routers for n, s in shapes.items()]


def _decoder(kind: str, vocabulary: str, settings: Config, **more: Any) -> Case:
    return Case(f"{kind}ForCausalLM", settings, vocabulary, **more)


CASES: dict[str, Case] = {
    "llama": _decoder("Llama", "spm", BASE),
    "llama_llama3": _decoder(
        "Llama",
        "bpe_llama3",
        {**WIDE, "tie_word_embeddings": True, "rope_parameters": LLAMA3},
        dtype="BF16",
        n_shards=2,
        note="rope_freqs.weight; tied; BF16 in two shards",
    ),
    "llama_older": _decoder(
        "Llama",
        "bpe_llama3",
        {**BASE, "rope_parameters": LLAMA3},
        edit=older,
        note="rope_theta and rope_scaling",
    ),
    "llama_linear": _decoder(
        "Llama",
        "spm",
        {
            **BASE,
            "attention_bias": True,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        },
        edit=oldest,
        note="biases, permuted too; rope_scaling.type",
    ),
    "llama_yarn": _decoder(
        "Llama", "spm", {**BASE, "rope_parameters": YARN, "head_dim": 64}, edit=older
    ),
    "mistral": _decoder("Mistral", "spm", {**WIDE, "sliding_window": 4096}, dtype="BF16"),
    "mistral_tekken": _decoder("Mistral", "bpe_tekken", {**BASE, "head_dim": 64}),
    "mixtral": _decoder(
        "Mixtral", "spm", {**BASE, "num_local_experts": 4, "num_experts_per_tok": 2}, n_shards=3
    ),
    "qwen2": _decoder("Qwen2", "bpe_qwen2", {**WIDE, "tie_word_embeddings": True}, dtype="BF16"),
    "qwen2_yarn": _decoder("Qwen2", "bpe_qwen2", {**BASE, "rope_parameters": YARN}, edit=oldest),
    "qwen3": _decoder(
        "Qwen3", "bpe_qwen2", {**BASE, "head_dim": 64}, note="head_dim is not hidden / heads"
    ),
    "qwen3_tied": _decoder(
        "Qwen3",
        "bpe_qwen2",
        {**WIDE, "head_dim": 64, "tie_word_embeddings": True},
        edit=older,
        dtype="BF16",
    ),
    "qwen3moe": _decoder("Qwen3Moe", "bpe_qwen2", {**MOE, "head_dim": 64, "num_experts": 4}),
    "qwen2moe": _decoder(
        "Qwen2Moe",
        "bpe_qwen2",
        {
            **MOE,
            "norm_topk_prob": False,
            "num_experts": 4,
            "shared_expert_intermediate_size": 192,
        },
    ),
    "gemma2": _decoder(
        "Gemma2",
        "spm_gemma",
        {**BASE, **HEADS_64, "sliding_window": 64, "tie_word_embeddings": True},
    ),
    "gemma3": _decoder(
        "Gemma3",
        "spm_gemma",
        {
            **WIDE,
            "num_hidden_layers": 7,
            **HEADS_32,
            "sliding_window": 64,
            "tie_word_embeddings": True,
        },
        dtype="BF16",
        note="a full layer among six; rope_parameters by kind of layer",
    ),
    "gemma3_linear": _decoder(
        "Gemma3",
        "spm_gemma",
        {
            **BASE,
            "num_hidden_layers": 6,
            **HEADS_64,
            "sliding_window": 64,
            "tie_word_embeddings": True,
        },
        edit=lambda config: _older_gemma3(config),
        note="rope_theta, rope_local_base_freq and linear rope_scaling",
    ),
    "phi3": _decoder("Phi3", "spm_phi", {**BASE, "sliding_window": 100}),
    "phi3_long": _decoder(
        "Phi3",
        "spm_phi",
        {**BASE, "rope_parameters": LONG, "original_max_position_embeddings": 64},
        edit=_both(oldest, _set(original_max_position_embeddings=64)),
        note="rope_factors_long.weight and rope_factors_short.weight",
    ),
    "phi4": _decoder(
        "Phi3",
        "bpe_gpt2",
        {**BASE, "sliding_window": None},
        tokenizer={"tokenizer_class": "GPT2Tokenizer"},
        note="no sliding window; a byte-level vocabulary",
    ),
    "gpt_oss": _decoder(
        "GptOss",
        "bpe_gpt4o",
        {
            **BASE,
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 64,
            "intermediate_size": 128,
            "rope_parameters": PLAIN,
        },
        dtype="BF16",
        note="experts in BF16, transposed",
    ),
    "gpt_oss_mxfp4": _decoder(
        "GptOss",
        "bpe_gpt4o",
        {
            **BASE,
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 64,
            "intermediate_size": 128,
        },
        edit=_both(_set(quantization_config={"quant_method": "mxfp4"}), older),
        drop=("experts.gate_up_proj", "experts.down_proj"),
        extra=tuple(
            (f"model.layers.{i}.mlp.experts.{part}_{word}", "U8", shape)
            for i in range(2)
            for part, n, k in (("gate_up_proj", 256, 128), ("down_proj", 128, 128))
            for word, shape in (("blocks", [4, n, k // 32, 16]), ("scales", [4, n, k // 32]))
        ),
        dtype="BF16",
        note="experts in MXFP4, moved as they are",
    ),
    "deepseek2": _decoder(
        "DeepseekV2",
        "bpe_deepseek3",
        {**DEEPSEEK_2, "topk_method": "greedy"},
        edit=_set(scoring_func="softmax"),
        note="V2; transformers 5 does not save scoring_func",
    ),
    "deepseek2_lite": _decoder(
        "DeepseekV2",
        "bpe_deepseek3",
        {
            **DEEPSEEK_2,
            "q_lora_rank": None,
            "topk_method": "greedy",
            "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
        edit=_both(oldest, _set(scoring_func="softmax")),
        note="V2-Lite: no q_lora, yarn",
    ),
    "deepseek3": _decoder(
        "DeepseekV3",
        "bpe_deepseek3",
        {
            **DEEPSEEK,
            "n_group": 2,
            "topk_group": 1,
            "norm_topk_prob": True,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
        edit=_both(older, _set(scoring_func="sigmoid")),
        note="V3: groups, e_score_correction_bias, yarn",
    ),
    "glm4moe": _decoder("Glm4Moe", "bpe_glm4", GLM, edit=_set(num_nextn_predict_layers=0)),
    "granite": _decoder(
        "Granite",
        "bpe_starcoder",
        {
            **BASE,
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.015625,
            "residual_multiplier": 0.22,
            "logits_scaling": 8.0,
            "tie_word_embeddings": True,
        },
    ),
    "granitemoe": _decoder(
        "GraniteMoe",
        "bpe_starcoder",
        {
            **BASE,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.015625,
            "residual_multiplier": 0.22,
            "logits_scaling": 6.0,
        },
    ),
    "smollm3": _decoder(
        "SmolLM3",
        "bpe_llama3",
        {**BASE, "num_hidden_layers": 4, "tie_word_embeddings": True},
        note="each fourth layer without rope",
    ),
    "olmo2": _decoder("Olmo2", "bpe_dbrx", BASE),
    "olmo3": _decoder(
        "Olmo3",
        "bpe_dbrx",
        {**BASE, "num_hidden_layers": 4, "sliding_window": 64, "num_key_value_heads": 4},
    ),
    "seed_oss": _decoder("SeedOss", "bpe_seed", {**BASE, "head_dim": 64}),
    "ernie4_5": _decoder("Ernie4_5", "spm", {**BASE, "head_dim": 32, "tie_word_embeddings": True}),
    "cohere2": _decoder(
        "Cohere2",
        "bpe_command_r",
        {
            **BASE,
            "num_hidden_layers": 4,
            "sliding_window": 64,
            "tie_word_embeddings": True,
            "logit_scale": 0.25,
        },
        edit=_set(rotary_pct=1.0, rope_theta=50000.0),
        note="rotary_pct is added: the reference needs it",
    ),
    "stablelm": _decoder("StableLm", "bpe_gpt2", {**BASE, "use_qkv_bias": True}),
    "starcoder2": _decoder(
        "Starcoder2", "bpe_starcoder", {**BASE, "tie_word_embeddings": True, "sliding_window": 4096}
    ),
    "lfm2": _decoder(
        "Lfm2",
        "bpe_lfm2",
        {
            **BASE,
            "num_hidden_layers": 4,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
        },
    ),
    "qwen3next": _decoder(
        "Qwen3Next", "bpe_qwen2", LINEAR_MOE, flags=("--no-mtp",), note="no MTP tensors"
    ),
    "qwen35": _decoder("Qwen3_5", "bpe_qwen35", LINEAR, flags=("--no-mtp",), note="no MTP tensors"),
    "qwen35moe": _decoder(
        "Qwen3_5Moe", "bpe_qwen35", LINEAR_MOE, flags=("--no-mtp",), note="no MTP tensors"
    ),
    "gemma4": _decoder(
        "Gemma4",
        "gemma4",
        {
            **BASE,
            "vocab_size": 1024,
            "vocab_size_per_layer_input": 1024,
            "num_hidden_layers": 6,
            "head_dim": 32,
            "global_head_dim": 64,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "hidden_size_per_layer_input": 32,
            "num_kv_shared_layers": 2,
            "sliding_window": 64,
            "tie_word_embeddings": True,
        },
        note="per-layer embeddings, two layers share keys and values",
    ),
    "gemma4_moe": _decoder(
        "Gemma4",
        "gemma4",
        {
            **BASE,
            "vocab_size": 1024,
            "vocab_size_per_layer_input": 1024,
            "num_hidden_layers": 6,
            "head_dim": 32,
            "global_head_dim": 64,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
            "sliding_window": 64,
            "tie_word_embeddings": True,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 64,
        },
        note="experts beside the dense block; full layers' values are their keys",
    ),
    "mistral3": _decoder(
        "Ministral3",
        "bpe_tekken",
        {
            **BASE,
            "head_dim": 64,
            "rope_parameters": {
                **YARN,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
    ),
    "gemma3_vision": Case(
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {
                **{k: v for k, v in BASE.items() if k != "tie_word_embeddings"},
                **HEADS_64,
                "sliding_window": 64,
            },
            "vision_config": VISION,
            "mm_tokens_per_image": 4,
            "tie_word_embeddings": True,
            "boi_token_index": 5,
            "eoi_token_index": 6,
            "image_token_index": 7,
        },
        "spm_gemma",
        drop=("embed_tokens.weight",),
        more=lambda found: [
            (n.replace("norm.", "embed_tokens."), t, [520, 128])
            for n, t, _ in found
            if n.endswith(("language_model.norm.weight", "language_model.model.norm.weight"))
        ],
        note="text_config; a vision tower, not taken; more rows of the embedding than words",
    ),
    "mistral3_vision": Case(
        "Mistral3ForConditionalGeneration",
        {
            "text_config": {**BASE, "model_type": "mistral", "head_dim": 32},
            "vision_config": {**VISION, "model_type": "pixtral", "head_dim": 16},
            "image_token_index": 10,
        },
        "bpe_tekken",
        note="text_config; a vision tower, not taken",
    ),
    "qwen35_vision": Case(
        "Qwen3_5ForConditionalGeneration",
        {"text_config": LINEAR, "vision_config": VISION_QWEN, "tie_word_embeddings": False},
        "bpe_qwen35",
        flags=("--no-mtp",),
        note="text_config; a vision tower, not taken",
    ),
    "qwen35_mtp": _decoder(
        "Qwen3_5",
        "bpe_qwen35",
        {**LINEAR, "mtp_num_hidden_layers": 1},
        edit=_set(mtp_num_hidden_layers=1),
        more=_qwen_mtp,
        note="MTP as blk.4",
    ),
    "qwen35moe_fused": _decoder(
        "Qwen3_5Moe",
        "bpe_qwen35",
        LINEAR_MOE,
        flags=("--no-mtp",),
        drop=tuple(
            f"experts.{i}.{part}_proj.weight" for i in range(4) for part in ("gate", "up", "down")
        ),
        more=_fused_experts,
        note="experts in three dimensions, as published",
    ),
    "glm4moe_nextn": _decoder(
        "Glm4Moe",
        "bpe_glm4",
        GLM,
        edit=_set(num_nextn_predict_layers=1),
        more=_nextn(3, 2),
        note="NextN as blk.3",
    ),
    "glm4moe_saved": _decoder(
        "Glm4Moe",
        "bpe_glm4",
        GLM,
        edit=_set(num_nextn_predict_layers=1),
        note="NextN said, as transformers saves it, and not stored",
    ),
    "deepseek3_mtp": _decoder(
        "DeepseekV3",
        "bpe_deepseek3",
        {**DEEPSEEK, "n_group": 2, "topk_group": 1, "norm_topk_prob": True},
        edit=_set(scoring_func="sigmoid", num_nextn_predict_layers=1),
        more=_nextn(3, 2),
        note="MTP, not taken",
    ),
    "nomic_bert": Case(
        "BertModel",
        ENCODER,
        "wordpiece",
        edit=lambda config: _as_nomic(config),
        drop=("",),
        more=lambda found: _nomic(),
        note="no class of transformers: names and config as published",
    ),
    "llama_whole": _decoder(
        "Llama",
        "whole:llama-bpe",
        {**ONE_LAYER, "vocab_size": 128256, "bos_token_id": 128000, "eos_token_id": 128001},
        dtype="BF16",
        note="a whole vocabulary",
    ),
    "llama_spm_whole": _decoder(
        "Llama",
        "whole:llama-spm",
        {**ONE_LAYER, "vocab_size": 32000},
        dtype="BF16",
        note="a whole vocabulary",
    ),
    "qwen2_whole": _decoder(
        "Qwen2",
        "whole:qwen2",
        {**ONE_LAYER, "vocab_size": 151936, "bos_token_id": 151643, "eos_token_id": 151643},
        dtype="BF16",
        note="a whole vocabulary",
    ),
    "phi3_whole": _decoder(
        "Phi3",
        "whole:phi-3",
        {**ONE_LAYER, "vocab_size": 32064, "eos_token_id": 32000, "pad_token_id": 32000},
        dtype="BF16",
        note="a whole vocabulary",
    ),
    "t5_encoder": Case(
        "T5EncoderModel",
        {**T5, "feed_forward_proj": "gated-gelu"},
        "unigram",
        dtype="BF16",
        note="v1.1: a gate; heads wider than the hidden size has room for",
    ),
    "t5_encoder_old": Case(
        "T5EncoderModel",
        {**T5, "feed_forward_proj": "relu", "num_heads": 4, "d_kv": 32},
        "unigram",
        note="v1.0: no gate",
    ),
    "bert": Case(
        "BertModel",
        ENCODER,
        "wordpiece",
        note="no head",
    ),
}


def _older_gemma3(config: Config) -> None:
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope["full_attention"]["rope_theta"]
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = {"factor": 8.0, "rope_type": "linear"}
    config["sliding_window_pattern"] = 6
    config.pop("layer_types", None)


def files(case: Case, saved: Path) -> dict[str, str | bytes]:
    """Return all files of a model but its weights; `saved` is where transformers wrote it."""
    config = json.loads((saved / "config.json").read_text())
    config["dtype"] = "bfloat16" if case.dtype == "BF16" else "float32"
    if case.edit is not None:
        case.edit(config)
    made = vocabularies.of(case.vocabulary)
    if case.tokenizer:
        told = json.loads(made["tokenizer_config.json"])
        made["tokenizer_config.json"] = json.dumps({**told, **case.tokenizer}, indent=2)
    generation = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    ids = {name: config.get(name) for name in ("bos_token_id", "eos_token_id")}
    return {
        "config.json": json.dumps(config, indent=2) + "\n",
        "generation_config.json": json.dumps({**ids, **generation}, indent=2) + "\n",
        "README.md": CARD,
        **made,
    }


def tensors(case: Case, saved: Path) -> list[Tensor]:
    """Return names, dtypes and shapes of a model's tensors, in the order of their names."""
    found: list[Tensor] = []
    for path in sorted(saved.glob("*.safetensors")):
        with safe_open(path, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118
                if not name.endswith(case.drop) or not case.drop:
                    part = opened.get_slice(name)
                    dtype = case.dtype if part.get_dtype() in ("F32", "BF16") else part.get_dtype()
                    found.append((name, dtype, list(part.get_shape())))
    more = case.more(found) if case.more is not None else []
    return sorted([*found, *case.extra, *more])


def make(name: str, folder: Path) -> tuple[dict[str, str | bytes], list[Tensor]]:
    """Write a model's directory; return its files and the list of its tensors."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as told:
        saved = Path(told)
        kind = getattr(transformers, case.model)
        torch.manual_seed(0)
        kind(kind.config_class(**case.settings)).save_pretrained(saved)
        found = files(case, saved), tensors(case, saved)
    tiny_files.write(folder, *found, case.n_shards)
    return found
