"""Qwen 3-Next and 3.5: heads of linear attention, and the layers that predict further tokens."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.architectures.keys import model_keys
from anamnesis.base.errors import ParseError
from helpers.arch_rows import facts_of, keys_of, published, taken

K, SHARED, DK, DV, COLS = 2, 3, 4, 5, 6
HEADS = {
    "linear_num_key_heads": K,
    "linear_num_value_heads": K * SHARED,
    "linear_key_head_dim": DK,
    "linear_value_head_dim": DV,
}
NEXT = {**published("Qwen3-Next-80B-A3B-Instruct"), **HEADS}
QWEN35 = published("Qwen3.5-9B")
QWEN35 = {**QWEN35, "text_config": {**QWEN35["text_config"], **HEADS}}
STEM = "model.layers.0.linear_attn"


def by_shared_heads(array: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """[K r size, ..] -> [r K size, ..]."""
    return array.reshape(K, SHARED, size, -1).swapaxes(0, 1).reshape(array.shape)


def test_value_heads_go_by_what_they_share(tmp_path: Path) -> None:
    n = K * SHARED
    shapes = {
        f"{STEM}.in_proj_qkv.weight": (2 * K * DK + n * DV, COLS),
        f"{STEM}.in_proj_z.weight": (n * DV, COLS),
        f"{STEM}.in_proj_a.weight": (n, COLS),
        f"{STEM}.in_proj_b.weight": (n, COLS),
        f"{STEM}.conv1d.weight": (2 * K * DK + n * DV, 1, 4),
        f"{STEM}.out_proj.weight": (COLS, n * DV),
        f"{STEM}.dt_bias": (n,),
        f"{STEM}.norm.weight": (DV,),
    }
    found = taken(tmp_path, QWEN35, shapes)
    hf = {name.removeprefix(f"{STEM}."): array for name, array in found.hf.items()}
    qkv, conv = hf["in_proj_qkv.weight"], hf["conv1d.weight"][:, 0]
    first = 2 * K * DK
    expected = {
        "attn_qkv.weight": np.concatenate([qkv[:first], by_shared_heads(qkv[first:], DV)]),
        "attn_gate.weight": by_shared_heads(hf["in_proj_z.weight"], DV),
        "ssm_alpha.weight": by_shared_heads(hf["in_proj_a.weight"], 1),
        "ssm_beta.weight": by_shared_heads(hf["in_proj_b.weight"], 1),
        "ssm_conv1d.weight": np.concatenate([conv[:first], by_shared_heads(conv[first:], DV)]),
        "ssm_out.weight": by_shared_heads(hf["out_proj.weight"].T, DV).T,
        "ssm_dt.bias": by_shared_heads(hf["dt_bias"], 1),
        "ssm_norm.weight": hf["norm.weight"],
    }
    assert found.gguf.keys() == {f"blk.0.{name}" for name in expected}
    assert all(np.array_equal(found.gguf[f"blk.0.{n}"], array) for n, array in expected.items())
    assert all(np.array_equal(found.back[name], array) for name, array in found.hf.items())


def test_queries_keys_values_and_gates_are_apart(tmp_path: Path) -> None:
    name, period = f"{STEM}.in_proj_qkvz.weight", 2 * (DK + SHARED * DV)
    found = taken(tmp_path, NEXT, {name: (K * period, COLS)})
    heads = found.hf[name].reshape(K, period, COLS)
    ends = np.cumsum([0, DK, DK, SHARED * DV, SHARED * DV])
    q, k, v, z = (heads[:, a:b].reshape(-1, COLS) for a, b in pairwise(ends))
    assert np.array_equal(found.gguf["blk.0.attn_qkv.weight"], np.concatenate([q, k, v]))
    assert np.array_equal(found.gguf["blk.0.attn_gate.weight"], z)
    assert np.array_equal(found.back[name], found.hf[name])


@pytest.mark.parametrize(
    ("config", "name", "shape"),
    [
        (QWEN35, "in_proj_z.weight", (7, COLS)),
        (QWEN35, "in_proj_qkv.weight", (K * SHARED * DV, COLS)),
        (QWEN35, "out_proj.weight", (COLS, 7)),
        (NEXT, "in_proj_qkvz.weight", (7, COLS)),
    ],
)
def test_other_heads_than_config_json_has_are_refused(
    config: dict[str, Any], name: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    with pytest.raises(ParseError, match="of heads, not the"):
        taken(tmp_path, config, {f"{STEM}.{name}": shape})


NAMES = {
    "mtp.fc.weight": "model.layers.32.eh_proj.weight",
    "mtp.norm.weight": "model.layers.32.shared_head.norm.weight",
    "mtp.pre_fc_norm_embedding.weight": "model.layers.32.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": "model.layers.32.hnorm.weight",
    "mtp.layers.0.mlp.up_proj.weight": "model.layers.32.mlp.up_proj.weight",
    "mtp.layers.1.self_attn.q_norm.weight": "model.layers.33.self_attn.q_norm.weight",
    "model.layers.31.mlp.up_proj.weight": "model.layers.31.mlp.up_proj.weight",
    "model.norm.weight": "model.norm.weight",
    "mtp.other.weight": "mtp.other.weight",
}


def test_layers_that_predict_are_counted_behind_the_others() -> None:
    arch, facts = facts_of(QWEN35)
    for name, called in NAMES.items():
        assert arch.naming.there(name, facts) == called
        assert arch.naming.back(called, facts) == name


@pytest.mark.parametrize("n", [0, 1, 2])
def test_they_are_layers_if_they_are_stored(n: int) -> None:
    arch, facts = facts_of(QWEN35)
    names = [f"model.layers.{i}.input_layernorm.weight" for i in range(32 + n)]
    facts.names = frozenset(names)
    keys = {name.partition(".")[2]: key["value"] for name, key in model_keys(arch, facts).items()}
    assert keys["block_count"] == 32 + n
    assert keys.get("nextn_predict_layers", 0) == n
    assert keys["attention.recurrent_layers"][28:] == [True, True, True, False] + [False] * n


def test_sections_of_positions_are_always_told() -> None:
    text = dict(QWEN35["text_config"])
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e7}
    assert keys_of({**QWEN35, "text_config": text})["rope.dimension_sections"] == [11, 11, 10, 0]
    assert keys_of({**QWEN35, "text_config": text})["rope.dimension_count"] == 64
    assert "rope.dimension_sections" not in keys_of(NEXT)
