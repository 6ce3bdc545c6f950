"""Small models of mlx-lm's own classes. Their arrays are lazy: none is ever computed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import mlx_lm.models

__all__ = ["UNBUILT", "classes", "config_of", "made"]

# What any of the classes asks for; each takes what it knows.
COMMON: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "hidden_dim", "model_dim"), 128),
    **dict.fromkeys(("block_dim", "expert_ffn_hidden_size", "moe_intermediate_size"), 128),
    **dict.fromkeys(("shared_expert_intermediate_size", "moe_hidden_size"), 128),
    **dict.fromkeys(("shared_intermediate_size", "moe_shared_expert_intermediate_size"), 128),
    **dict.fromkeys(("share_expert_dim", "kv_channels", "emb_neighbor_num_"), 128),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), 256),
    **dict.fromkeys(("dense_intermediate_size", "intermediate_size_mlp", "block_ff_dim"), 256),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("mamba_num_heads", "mamba_n_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_kv_heads"), 2),
    **dict.fromkeys(("num_attention_groups", "linear_num_key_heads", "index_n_heads"), 2),
    **dict.fromkeys(("swa_num_attention_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim"), 64),
    **dict.fromkeys(("swa_head_dim", "swa_v_head_dim", "global_head_dim"), 64),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "mamba_head_dim", "mamba_d_head"), 64),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "index_head_dim"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_num_experts", "zero_expert_num"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("top_k_experts", "moe_top_k", "layer_group_size", "conv_window"), 2),
    **dict.fromkeys(("num_kv_reuse_layers", "cla_share_factor", "sliding_window_pattern"), 2),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("num_shared_expert", "n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("num_dense_layers", "decoder_sparse_step", "group_norm_size"), 1),
    **dict.fromkeys(("n_groups", "mamba_n_groups"), 1),
    **dict.fromkeys(("rms_norm_eps", "norm_eps", "layer_norm_eps", "layernorm_epsilon"), 1e-5),
    **dict.fromkeys(("layer_norm_epsilon", "post_norm_eps"), 1e-5),
    **dict.fromkeys(("rope_theta", "swa_rope_theta", "rotary_emb_base"), 1e4),
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct"), 0.5),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "model_max_length"), 256),
    **dict.fromkeys(("vocab_size", "block_size"), 256),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "state_size"), 32),
    **dict.fromkeys(("ssm_state_size", "mamba_d_state", "index_topk", "block_multiple_of"), 32),
    **dict.fromkeys(("rotary_dim", "chunk_size"), 16),
    **dict.fromkeys(("time_step_rank", "mamba_dt_rank"), 8),
    **dict.fromkeys(("conv_kernel", "conv_kernel_size", "mamba_d_conv"), 4),
    **dict.fromkeys(("linear_conv_kernel_dim", "conv_L_cache"), 4),
    **dict.fromkeys(("expand", "mamba_expand", "attn_layer_period", "expert_layer_period"), 2),
    **dict.fromkeys(("full_attention_interval",), 2),
    **dict.fromkeys(("attn_layer_offset", "expert_layer_offset"), 1),
    **dict.fromkeys(("logits_scaling", "attention_multiplier", "embedding_multiplier"), 1.0),
    **dict.fromkeys(("residual_multiplier", "routed_scaling_factor", "scale_depth"), 1.0),
    **dict.fromkeys(("scale_emb", "block_ffn_dim_multiplier", "output_multiplier"), 1.0),
    **dict.fromkeys(("final_logit_softcapping",), 30.0),
    **dict.fromkeys(("norm_topk_prob", "use_qk_norm", "use_conv_bias", "mamba_conv_bias"), True),
    **dict.fromkeys(("qk_norm", "use_expert_bias", "use_mixed_mlp_moe", "enable_moe_block"), True),
    **dict.fromkeys(("mla_scale_q_lora", "mla_scale_kv_lora"), True),
    **dict.fromkeys(("tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias"), False),
    **dict.fromkeys(("mamba_proj_bias", "layer_norm_bias", "post_norm", "use_cla"), False),
    **dict.fromkeys(("rope_traditional", "conv_bias", "block_auto_adjust_ff_dim"), False),
    **dict.fromkeys(("add_swa_attention_sink_bias", "add_full_attention_sink_bias"), False),
    "scoring_func": "sigmoid",
    "score_function": "sigmoid",
    "topk_method": "noaux_tc",
    "hidden_act": "silu",
    "attention_method": "MLA",
    "zero_expert_type": "identity",
    "rope_scaling": None,
    "rope_parameters": {"rope_theta": 1e4},
    "time_step_limit": (0.0, 1.0),
    "mlp_only_layers": [],
    "sliding_window_layers": [],
    "no_rope_layers": [1, 1, 1, 1],
    "layer_types": ["full_attention", "sliding_attention"] * 2,
    "full_attn_idxs": [1, 3],
    "is_moe_layer": [False, True, True, True],
    "hybrid_layer_pattern": [0, 1, 0, 1],
    "moe_layer_freq": 1,
    "dim_model_base": 64,
    "clip_qkv": None,
}
_DELTA = {
    "linear_attn_config": {
        "num_heads": 4,
        "head_dim": 64,
        "short_conv_kernel_size": 4,
        "kda_layers": [1, 3],
        "full_attn_layers": [2, 4],
    }
}
_BY_TYPE = {
    kind: {"rope_theta": 1e4, "rope_type": "default"}
    for kind in ("full_attention", "sliding_attention")
}
_LLAMA_4 = {
    "rope_theta": 1e4,
    "rope_type": "default",
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 64,
}
_RANKS = ("a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim", "decay_low_rank_dim")


def _text(kind: str, **more: Any) -> dict[str, Any]:
    return {"text_config": {**COMMON, "model_type": kind, **more}}


_OWN: dict[str, dict[str, Any]] = {
    "bailing_moe_v3": {"q_lora_rank": None, "layer_group_size": 2},
    "cohere2": {"head_dim": 32},
    "dbrx": {
        "ffn_config": {"ffn_hidden_size": 128, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
    },
    "deepseek_v2": {"rope_scaling": {"type": "yarn", "factor": 1.0, "mscale_all_dim": 1.0}},
    "exaone4": {"sliding_window_pattern": "LG"},
    "gemma3": _text("gemma3_text"),
    "gemma4": _text("gemma4_text", num_kv_shared_layers=0),
    "gemma4_text": {"num_kv_shared_layers": 0},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2, "position_embedding_type": "x"},
    "kimi_k25": _text("kimi_k2"),
    "hunyuan": {"rope_scaling": {"type": "dynamic", "alpha": 1.0, "factor": 1.0}},
    "kimi_k3": _text("kimi_k3", **_DELTA, hidden_act="situ"),
    "kimi_linear": _DELTA,
    "kimi_vl": _text("deepseek_v3"),
    "lfm2-vl": _text("lfm2"),
    "llama4": _text(
        "llama4", attention_chunk_size=32, interleave_moe_layer_step=1, num_experts_per_tok=1
    ),
    "mellum": {"rope_parameters": _BY_TYPE},
    "mimo_v2_flash": {"moe_layer_freq": [0, 1, 1, 1]},
    "minicpm3": {"rope_scaling": {"type": "longrope", "long_factor": 1.0, "short_factor": 1.0}},
    "minimax_m3_vl": _text("minimax_m3", moe_layer_freq=[0, 1, 1, 1]),
    "ministral3": {"rope_parameters": _LLAMA_4},
    "mistral3": _text("mistral4", rope_parameters=_LLAMA_4),
    "muse_spark": _text("muse_spark", layer_rope_theta=[1e4] * 4, num_shared_experts=0),
    "olmo_hybrid": {"linear_allow_neg_eigval": False},
    "openelm": {
        "num_transformer_layers": 2,
        "ffn_dim_divisor": 64,
        "num_query_heads": [2, 2],
        "num_kv_heads": [2, 2],
        "ffn_multipliers": [2.0, 2.0],
    },
    "phi3small": {
        "dense_attention_every_n_layers": 2,
        "ff_intermediate_size": 256,
        "gegelu_limit": 20.0,
    },
    "pixtral": _text("llama"),
    "qwen3_vl_moe": _text("qwen3_moe"),
    "recurrent_gemma": {
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "attention_window_size": 32,
        "block_types": ["recurrent", "attention"],
    },
    "rwkv7": dict.fromkeys(_RANKS, 64),
    "spark2_5": {"rope_parameters": _BY_TYPE, "hidden_act": "gelu"},
    "stablelm": {"use_qkv_bias": False},
    "nemotron_h": {"hybrid_override_pattern": "M*E-"},
}
# What is not tried: they want another package, or lists of what each layer is.
UNBUILT = {"gemma3n", "nemotron-nas", "olmo", "prism_hadamard_qwen35"}


def classes() -> Iterator[tuple[str, Any]]:
    """Yield the types of models that mlx-lm has a class for, and its modules."""
    for info in pkgutil.iter_modules(mlx_lm.models.__path__):
        if info.name in UNBUILT:
            continue
        module = importlib.import_module(f"mlx_lm.models.{info.name}")
        if hasattr(module, "Model") and hasattr(module, "ModelArgs"):
            yield info.name, module


def config_of(kind: str, **more: Any) -> dict[str, Any]:
    """Return the config of a model."""
    return {**COMMON, "model_type": kind, **_OWN.get(kind, {}), **more}


def made(kind: str, module: Any, **more: Any) -> Any:
    """Return a model."""
    return module.Model(module.ModelArgs.from_dict(config_of(kind, **more)))
