"""GLM-4.5: the layer that predicts further tokens is one more block."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.arch_rows import keys_of, published, taken

CONFIG = published("GLM-4.5-Air")
LAST = "model.layers.46."
NAMES = {
    "eh_proj.weight": "nextn.eh_proj.weight",
    "enorm.weight": "nextn.enorm.weight",
    "hnorm.weight": "nextn.hnorm.weight",
    "embed_tokens.weight": "nextn.embed_tokens.weight",
    "shared_head.head.weight": "nextn.shared_head_head.weight",
    "shared_head.norm.weight": "nextn.shared_head_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
}


def test_layers_behind_the_last_are_blocks(tmp_path: Path) -> None:
    names = {f"{LAST}{hf}": f"blk.46.{gguf}" for hf, gguf in NAMES.items()}
    names["model.embed_tokens.weight"] = "token_embd.weight"
    found = taken(tmp_path, CONFIG, dict.fromkeys(names, (3, 4)))
    assert {name: found.gguf[new].tobytes() for name, new in names.items()} == {
        name: array.tobytes() for name, array in found.hf.items()
    }


@pytest.mark.parametrize("n", [0, 1, 2])
def test_they_are_counted(n: int) -> None:
    keys = keys_of({**CONFIG, "num_nextn_predict_layers": n})
    assert (keys["block_count"], keys["nextn_predict_layers"]) == (46 + n, n)


def test_half_of_a_head_rotates_where_config_json_does_not_say_it() -> None:
    without = {k: v for k, v in CONFIG.items() if k not in ("partial_rotary_factor", "head_dim")}
    assert keys_of(CONFIG)["rope.dimension_count"] == 64
    assert keys_of(without)["rope.dimension_count"] == 4096 // 96 // 2
