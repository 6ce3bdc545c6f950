"""OpenAI's gpt-oss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Rule
from anamnesis.architectures.conversion_operations import Alternate, Reshape, Turn
from anamnesis.architectures.model_facts import Facts
from anamnesis.architectures.table import blocks

_EXPERTS = "model.layers.{bid}.mlp.experts"
_PERIOD = 2
# What the class has where config.json says nothing of the rope.
_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def _one_more(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1)


def _one_less(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:-1]


def _exact(hf: str, suffix: str, *gguf: str, ops: tuple[Any, ...] = ()) -> Rule:
    names = tuple(f"blk.{{bid}}.{name}.{suffix}" for name in gguf)
    return Rule(hf, names, ops, exact=True)


_COLUMNS = Reshape(_one_more, _one_less)
_VALUES = Reshape(_one_less, _one_more)
_GATE_UP = ("ffn_gate_exps", "ffn_up_exps")
_RULES = (
    # [E, cols, 2 n] -> 2 x [E, n, cols], and [E, n, cols] -> [E, cols, n].
    _exact(f"{_EXPERTS}.gate_up_proj", "weight", *_GATE_UP, ops=(Turn(), Alternate())),
    _exact(f"{_EXPERTS}.down_proj", "weight", "ffn_down_exps", ops=(Turn(),)),
    # [E, 2 n] -> 2 x [E, n]
    _exact(
        f"{_EXPERTS}.gate_up_proj_bias", "bias", *_GATE_UP, ops=(_COLUMNS, Alternate(), _VALUES)
    ),
    _exact(f"{_EXPERTS}.down_proj_bias", "bias", "ffn_down_exps"),
    _exact("model.layers.{bid}.self_attn.sinks", "weight", "attn_sinks"),
    *blocks.plain(
        {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "mlp.router": "ffn_gate_inp",
        }
    ),
)


def _rope(facts: Facts) -> Mapping[str, Any]:
    if not facts.values.get("rope_parameters") and not facts.values.get("rope_scaling"):
        facts.rope.update({**_YARN, **facts.rope})
    return {"num_key_value_heads": facts.get("num_attention_heads")}


def _keys(facts: Facts) -> Mapping[str, Any]:
    facts.number("sliding_window")
    return blocks.window_pattern(facts, _PERIOD)


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    rope = dict(config["rope_parameters"])
    if rope.get("rope_type") == "yarn":
        rope["truncate"] = False
    return {"rope_parameters": rope, **blocks.types_by_window(find, config)}


ARCHS = (
    Arch(
        gguf="gpt-oss",
        hf=("GptOssForCausalLM",),
        model_type="gpt_oss",
        rules=(*blocks.OUTER, *blocks.ATTENTION, *_RULES),
        keys=(
            Key("attention.sliding_window", "sliding_window"),
            Key("expert_feed_forward_length", "intermediate_size"),
        ),
        computed=_keys,
        derived=_rope,
        uncomputed=_config,
        switches={"attention_bias": blocks.ATTENTION_BIASES, "": ("ffn_gate_inp.bias",)},
        config={
            "hidden_act": "silu",
            "attention_bias": True,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
        },
    ),
)
