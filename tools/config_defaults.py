"""Write what transformers' config classes fill in: `python tools/config_defaults.py`.

A config.json leaves out what its class has as a default, or spells a fact otherwise than its class
(`attribute_map`), and llama.cpp's converter reads it through that class. So the numbers, words,
switches and other spellings of each class are data here; what is computed from others is not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers

OUT = Path(__file__).parents[1] / "anamnesis/architectures/config_defaults.json"
MODEL_TYPES = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next"),
    *("qwen3_5_text", "qwen3_5_moe_text", "gemma2", "gemma3_text", "gemma4_text", "phi3"),
    *("gpt_oss", "deepseek_v2", "deepseek_v3", "glm4_moe", "ministral3", "granite", "granitemoe"),
    *("granitemoeshared", "granitemoehybrid", "smollm3", "olmo2", "olmo3", "seed_oss"),
    *(
        "ernie4_5",
        "cohere2",
        "stablelm",
        "starcoder2",
        "lfm2",
        "lfm2_moe",
        "bert",
        "roberta",
        "xlm-roberta",
        "t5",
        "umt5",
    ),
)
# Of training, of running, or of every class; and sizes, without which a config.json is none.
LEFT_OUT = (
    *("hidden_size", "num_hidden_layers", "vocab_size", "d_model", "num_layers"),
    *("is_gated_act", "dense_act_fn"),  # which T5 computes of another
    *("transformers_version", "model_type", "architectures", "initializer_range", "use_cache"),
    *("chunk_size_feed_forward", "output_attentions", "output_hidden_states", "return_dict"),
    *("problem_type", "is_encoder_decoder", "router_aux_loss_coef", "router_jitter_noise"),
    *("output_router_logits", "pretraining_tp", "gradient_checkpointing", "dtype", "_name_or_path"),
    *("attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop"),
    *("embd_pdrop", "hidden_dropout", "embedding_dropout", "residual_dropout", "is_decoder"),
    *(
        "add_cross_attention",
        "add_router_probs",
        "classifier_dropout",
        "use_bidirectional_attention",
    ),
)


def _defaults(model_type: str) -> dict[str, Any]:
    config = transformers.AutoConfig.for_model(model_type)
    told = config.to_dict()
    rope = told.pop("rope_parameters", None) or {}
    full, local = rope.get("full_attention", rope), rope.get("sliding_attention", {})
    ropes = {
        "rope_theta": full.get("rope_theta"),
        "partial_rotary_factor": full.get("partial_rotary_factor"),
        "rope_local_base_freq": local.get("rope_theta"),
    }
    plain = {
        name: value
        for name, value in {**told, **ropes}.items()
        if isinstance(value, (bool, int, float, str))
        and name not in LEFT_OUT
        and (name != "intermediate_size" or "moe_intermediate_size" in told)  # no dense layer
        and not name.endswith("_token_id")
        and name not in _computed(config)
    }
    return dict(sorted(plain.items()))


def _computed(config: Any) -> set[str]:
    """Return the facts that the class has no value for by itself, but makes of others."""
    given = getattr(type(config), "__dataclass_fields__", {})
    return {name for name, field in given.items() if field.default is None}


def _spellings(model_type: str) -> dict[str, str]:
    """Return what a class also takes a fact under, and what it calls it."""
    told = type(transformers.AutoConfig.for_model(model_type)).attribute_map
    return dict(sorted(told.items()))


def main() -> None:
    """Write the file."""
    classes = {
        name: {"defaults": _defaults(name), "spellings": _spellings(name)} for name in MODEL_TYPES
    }
    found = {"transformers": transformers.__version__, "classes": classes}
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
