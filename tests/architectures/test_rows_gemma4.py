"""Gemma 4: what its layers have, by both spellings of its config.json."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anamnesis.base.errors import ParseError, UnsupportedError
from helpers.arch_rows import facts_of, keys_of, published

DENSE, MOE = published("gemma-4-E2B-it"), published("gemma-4-26B-A4B-it")


def text_of(config: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {**config, "text_config": {**config["text_config"], **facts}}


def by_layers(config: dict[str, Any]) -> dict[str, Any]:
    """Say what full layers have as transformers does since 5.20: by their numbers."""
    text = dict(config["text_config"])
    own = {"head_dim": text.pop("global_head_dim")}
    heads = text.pop("num_global_key_value_heads")
    if text["attention_k_eq_v"]:
        own["num_key_value_heads"] = heads
    full = [i for i, kind in enumerate(text["layer_types"]) if kind == "full_attention"]
    return {**config, "text_config": {**text, "per_layer_config": {str(i): own for i in full}}}


@pytest.mark.parametrize("config", [DENSE, MOE])
def test_both_spellings_say_the_same(config: dict[str, Any]) -> None:
    assert keys_of(by_layers(config)) == keys_of(config)


@pytest.mark.parametrize("config", [DENSE, MOE])
def test_what_does_not_rotate_has_endless_wavelengths(config: dict[str, Any]) -> None:
    arch, facts = facts_of(config)
    (factors,) = arch.extra(facts).values()
    assert factors.dtype == np.float32
    assert factors.tolist() == [1.0] * 64 + [float(np.float32(1e30))] * 192


def test_layers_that_share_keys_are_twice_as_wide() -> None:
    assert keys_of(DENSE)["feed_forward_length"] == [6144] * 15 + [12288] * 20
    assert keys_of(text_of(DENSE, use_double_wide_mlp=False))["feed_forward_length"] == 6144


def test_heads_are_a_list_if_they_differ() -> None:
    assert keys_of(DENSE)["attention.head_count_kv"] == 1
    heads = keys_of(MOE)["attention.head_count_kv"]
    assert heads == [2 if (i + 1) % 6 == 0 else 8 for i in range(30)]


ROPE = {"rope_type": "proportional", "rope_theta": 1e6}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"global_head_dim": 2**30}, "global_head_dim is 1073741824, not an integer from 1 to"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type of full"),
        (
            {"rope_parameters": {"full_attention": {**ROPE, "partial_rotary_factor": 2.5}}},
            "partial_rotary_factor is not from 0 to 1",
        ),
        ({"global_head_dim": None, "per_layer_config": [1]}, "per_layer_config is no object"),
        ({"layer_types": ["full_attention"]}, "layer_types are not 35"),
        ({"num_hidden_layers": 513}, "num_hidden_layers is 513, more than 512"),
    ],
)
def test_what_it_cannot_have_is_refused(facts: dict[str, Any], words: str) -> None:
    arch, made = facts_of(text_of(DENSE, **facts))
    with pytest.raises((ParseError, UnsupportedError), match=words):
        arch.computed(made), arch.extra(made)
