"""Phi-3: factors of longrope are tensors, and what they need is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.base.errors import ParseError
from helpers.arch_rows import facts_of, keys_of, published, taken

LONG = published("Phi-3-mini-128k-instruct")


def factors(config: dict[str, Any]) -> Any:
    arch, facts = facts_of(config)
    return arch.extra(facts)


@pytest.mark.parametrize("name", ["Phi-3-mini-128k-instruct", "Phi-4-mini-instruct"])
def test_factors_are_tensors(name: str) -> None:
    config = published(name)
    made = factors(config)
    assert [*made] == ["rope_factors_long.weight", "rope_factors_short.weight"]
    for array, told in zip(made.values(), ("long_factor", "short_factor"), strict=True):
        assert array.dtype == np.float32
        assert array.tolist() == np.array(config["rope_scaling"][told], np.float32).tolist()


def test_without_longrope_there_are_none() -> None:
    assert factors(published("phi-4")) == {}


def with_rope(**facts: Any) -> dict[str, Any]:
    return {**LONG, "rope_scaling": {**LONG["rope_scaling"], **facts}}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"short_factor": [1.0] * 47}, "short_factor is no list of 48 numbers"),
        ({"short_factor": None}, "short_factor is no list of 48 numbers"),
        ({"long_factor": ["1"] * 48}, "long_factor is '1', no number of float32"),
        ({"long_factor": [10**400] * 48}, "long_factor is 10+, no number of float32"),
        ({"long_factor": [0.0] * 48}, "long_factor is 0.0, not positive"),
    ],
)
def test_factors_that_are_none_are_refused(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        factors(with_rope(**facts))


def test_the_original_length_is_sound() -> None:
    keys = keys_of({**LONG, "original_max_position_embeddings": None})
    assert keys["rope.scaling.original_context_length"] == LONG["max_position_embeddings"]
    with pytest.raises(ParseError, match="original_max_position_embeddings is 1, no integer above"):
        keys_of({**LONG, "original_max_position_embeddings": 1})


def test_a_factor_that_is_said_counts() -> None:
    """As the class does, beside which the ratio of lengths does not."""
    scale = keys_of(with_rope(factor=2.0))["rope.scaling.attn_factor"]
    assert scale == pytest.approx((1 + 1 / 12) ** 0.5)  # log 2 / log 4096


def test_a_factor_of_attention_that_is_said_counts() -> None:
    assert keys_of(with_rope(attention_factor=1.5))["rope.scaling.attn_factor"] == 1.5


def test_no_factor_of_attention_within_the_original_length() -> None:
    assert keys_of({**LONG, "max_position_embeddings": 4096})["rope.scaling.attn_factor"] == 1.0


def test_matrices_stay_fused(tmp_path: Path) -> None:
    layer = "model.layers.1."
    names = {
        f"{layer}self_attn.qkv_proj.weight": "blk.1.attn_qkv.weight",
        f"{layer}self_attn.o_proj.weight": "blk.1.attn_output.weight",
        f"{layer}mlp.gate_up_proj.weight": "blk.1.ffn_up.weight",
        f"{layer}mlp.down_proj.weight": "blk.1.ffn_down.weight",
        f"{layer}post_attention_layernorm.weight": "blk.1.ffn_norm.weight",
    }
    found = taken(tmp_path, LONG, dict.fromkeys(names, (6, 4)))
    assert {name: found.gguf[new].tobytes() for name, new in names.items()} == {
        name: array.tobytes() for name, array in found.hf.items()
    }
