"""DeepSeek's V2, V3 and R1, and Kimi-K2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.config_of_keys import needed, shortest
from anamnesis.architectures.differences import lacks_query_rank
from anamnesis.architectures.model_facts import Facts, real, unsupported
from anamnesis.architectures.table.rows import ROWS

_NEEDED = ("num_experts_per_tok", "moe_intermediate_size", "v_head_dim")
_BY_GROUPS = "group_limited_greedy"
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.")


def _left(facts: Facts, name: str) -> bool:
    """Return whether llama.cpp does not take a tensor: a tied head, layers behind the last one."""
    if name == "lm_head.weight":
        return bool(facts.get("tie_word_embeddings"))
    found = _LAYER.match(name)
    layer = -1 if found is None else int(found[1])
    if layer < facts.number("num_hidden_layers"):
        return False
    return f"model.layers.{layer}.eh_proj.weight" in facts.names  # it predicts further tokens


def _keys(facts: Facts, scores: str) -> Mapping[str, Any]:
    if facts.get("scoring_func") not in (None, scores):
        raise unsupported(
            f"scoring_func is {facts.get('scoring_func')!r}, and the class takes {scores}"
        )
    if facts.get("rope_interleave") is False:
        raise unsupported("rope_interleave is false, which llama.cpp cannot do")
    for name in _NEEDED:
        facts.number(name)
    rank, rope = facts.number("kv_lora_rank"), facts.number("qk_rope_head_dim")
    nope = facts.number("qk_nope_head_dim")
    keys: dict[str, Any] = {
        # One head for all, whose keys are what k_b and v_b are multiplied by, and the rope's part.
        "attention.head_count_kv": {"type": "uint32", "value": 1},
        "attention.key_length": {"type": "uint32", "value": rank + rope},
        "attention.key_length_mla": {"type": "uint32", "value": nope + rope},
    }
    if facts.get("q_lora_rank") is None and not lacks_query_rank(facts):
        keys["attention.q_lora_rank"] = {"type": "uint32", "value": 0}
    if facts.get("norm_topk_prob"):
        keys["expert_weights_norm"] = {"type": "bool", "value": True}
    if facts.rope.get("mscale_all_dim") is not None:
        scale = real(facts.rope, "mscale_all_dim", 0.0)
        if scale and facts.rope.get("mscale") != scale:
            raise unsupported(
                f"mscale is {facts.rope.get('mscale')!r} and mscale_all_dim {scale!r},"
                " which llama.cpp takes to be equal"
            )
        keys[_LOG_MULTIPLIER] = {"type": "float32", "value": 0.1 * scale}
    return keys


def _keys_v2(facts: Facts) -> Mapping[str, Any]:
    """Return V2's keys; where it chooses experts of all groups at once, without groups."""
    keys = dict(_keys(facts, "softmax"))
    if facts.get("topk_method") != _BY_GROUPS and facts.get("n_group") not in (None, 1):
        keys |= dict.fromkeys(("expert_group_count", "expert_group_used_count"))
    return keys


def _v2(facts: Facts) -> Mapping[str, Any]:
    return {"num_key_value_heads": facts.get("num_attention_heads"), "n_shared_experts": 0}


def _v3(facts: Facts) -> Mapping[str, Any]:
    """Return how experts are chosen, too, which transformers 5 leaves out: V3 has one way."""
    return {**_v2(facts), "scoring_func": "sigmoid"}


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    rope_dim = needed(find, "rope.dimension_count")
    given = {
        "num_key_value_heads": config["num_attention_heads"],
        "head_dim": rope_dim,
        "qk_nope_head_dim": needed(find, "attention.key_length_mla") - rope_dim,
        "q_lora_rank": config.get("q_lora_rank") or None,
        "norm_topk_prob": bool(find("expert_weights_norm")),
        "num_nextn_predict_layers": 0,
        "n_group": config.get("n_group", 1),
        "topk_group": config.get("topk_group", 1),
    }
    if config["model_type"] == "deepseek_v2" and config.get("n_group") not in (None, 0, 1):
        given["topk_method"] = _BY_GROUPS
    multiplier = find(_LOG_MULTIPLIER)
    if multiplier is not None:
        scale = shortest(multiplier / 0.1)
        both = {"mscale": scale, "mscale_all_dim": scale}
        given["rope_parameters"] = {**config["rope_parameters"], **both}
    return given


ARCHS = (
    replace(ROWS["deepseek_v2"], computed=_keys_v2, derived=_v2, uncomputed=_config, left=_left),
    replace(
        ROWS["deepseek_v3"],
        computed=partial(_keys, scores="sigmoid"),
        derived=_v3,
        uncomputed=_config,
        left=_left,
    ),
)
