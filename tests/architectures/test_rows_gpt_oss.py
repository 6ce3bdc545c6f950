"""gpt-oss: rows of gate and up take turns in turned stacks, and their biases likewise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anamnesis.base.errors import ParseError
from helpers.arch_rows import keys_of, published, taken

CONFIG = published("gpt-oss-20b")
LAYER = "model.layers.3."
EXPERTS = f"{LAYER}mlp.experts"
SHAPES = {
    f"{EXPERTS}.gate_up_proj": (3, 4, 10),
    f"{EXPERTS}.gate_up_proj_bias": (3, 10),
    f"{EXPERTS}.down_proj": (3, 5, 4),
    f"{EXPERTS}.down_proj_bias": (3, 4),
    f"{LAYER}self_attn.sinks": (8,),
    f"{LAYER}self_attn.o_proj.bias": (4,),
    f"{LAYER}mlp.router.weight": (3, 4),
    f"{LAYER}mlp.router.bias": (3,),
    f"{LAYER}post_attention_layernorm.weight": (4,),
}


def test_tensors_are_those_of_llama_cpp_and_come_back(tmp_path: Path) -> None:
    found = taken(tmp_path, CONFIG, SHAPES)
    hf = found.hf
    both, biases = hf[f"{EXPERTS}.gate_up_proj"], hf[f"{EXPERTS}.gate_up_proj_bias"]
    expected = {
        "ffn_gate_exps.weight": both.swapaxes(1, 2)[:, 0::2],
        "ffn_up_exps.weight": both.swapaxes(1, 2)[:, 1::2],
        "ffn_gate_exps.bias": biases[:, 0::2],
        "ffn_up_exps.bias": biases[:, 1::2],
        "ffn_down_exps.weight": hf[f"{EXPERTS}.down_proj"].swapaxes(1, 2),
        "ffn_down_exps.bias": hf[f"{EXPERTS}.down_proj_bias"],
        "attn_sinks.weight": hf[f"{LAYER}self_attn.sinks"],
        "attn_output.bias": hf[f"{LAYER}self_attn.o_proj.bias"],
        "ffn_gate_inp.weight": hf[f"{LAYER}mlp.router.weight"],
        "ffn_gate_inp.bias": hf[f"{LAYER}mlp.router.bias"],
        "post_attention_norm.weight": hf[f"{LAYER}post_attention_layernorm.weight"],
    }
    assert found.gguf.keys() == {f"blk.3.{name}" for name in expected}
    for name, array in expected.items():
        assert np.array_equal(found.gguf[f"blk.3.{name}"], array)
    assert {n: (a.shape, a.tobytes()) for n, a in found.back.items()} == {
        n: (a.shape, a.tobytes()) for n, a in hf.items()
    }


def test_other_windows_are_said() -> None:
    key = "attention.sliding_window_pattern"
    assert key not in keys_of(CONFIG)
    told = {**CONFIG, "layer_types": ["full_attention", "sliding_attention"] * 12}
    assert keys_of(told)[key] == [False, True] * 12


def test_a_model_without_its_window_is_refused() -> None:
    with pytest.raises(ParseError, match="has no sliding_window"):
        keys_of({**CONFIG, "sliding_window": None})
