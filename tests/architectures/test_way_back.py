"""Directories made of GGUF files load in transformers, which computes with them as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import anamnesis as an
from helpers.recorded_hf import NAMES, through_gguf

# No decoders, or not to be loaded as one: of the last, more rows of the embedding than words.
OTHERS = {"bert", "nomic_bert", "mistral3_vision", "gemma3_vision", "t5_encoder", "t5_encoder_old"}
DECODERS = [name for name in NAMES if name not in OTHERS]
IDS = torch.tensor([[(i * 37 + 11) % 500 + 3 for i in range(100)]])
# What only says how a config was made, and what the tiny configs have beside their tokenizers.
_MADE = {
    *("dtype", "transformers_version", "_name_or_path"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
}
# Facts that the class of transformers does not have, but published configs do.
_DEEPSEEK = {"num_nextn_predict_layers", "moe_layer_freq"}
_LLAMA = {"attention_bias", "mlp_bias", "pretraining_tp"}
# llama.cpp has no Mistral: it is a llama, without a window.
_MISTRAL = {"architectures", "model_type", "sliding_window", *_LLAMA}
# GGUF always says the parts of a head that turn with place and time, as the class does.
_QWEN_NEXT = {"full_attention_interval"}
_QWEN35 = {*_QWEN_NEXT, "rope_parameters"}
DIFFER: dict[str, set[str]] = {
    "cohere2": {"rotary_pct"},
    "deepseek2": _DEEPSEEK,
    "deepseek2_lite": _DEEPSEEK,
    "deepseek3": {*_DEEPSEEK, "topk_method"},
    "deepseek3_mtp": {*_DEEPSEEK, "topk_method"},
    "gemma3_linear": {"sliding_window_pattern"},  # layer_types says it
    "glm4moe": {"scoring_func"},
    "glm4moe_nextn": {"scoring_func"},
    "glm4moe_saved": {"scoring_func"},
    "mistral": _MISTRAL,
    "mistral_tekken": _MISTRAL,
    "phi3": {"partial_rotary_factor"},
    "phi3_long": {"partial_rotary_factor", "rope_parameters"},  # its factors are of float32
    "phi4": {"partial_rotary_factor"},
    "qwen35": _QWEN35,
    "qwen35_mtp": _QWEN35,
    "qwen35_vision": {*_QWEN35, "architectures"},
    "qwen35moe": _QWEN35,
    "qwen35moe_fused": _QWEN35,
    "qwen3next": _QWEN_NEXT,
    "starcoder2": {"sliding_window"},  # llama.cpp has none for it
}


def load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return a model in float32, and what was missing or not expected."""
    (kind,) = json.loads((folder / "config.json").read_text())["architectures"]
    kind = kind.replace("ForConditionalGeneration", "ForCausalLM")
    found: tuple[Any, dict[str, Any]] = getattr(transformers, kind).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    return found


def told(model: Any) -> dict[str, Any]:
    """Return the facts of a config, rope's type under its later name alone."""
    found: dict[str, Any] = {k: v for k, v in model.config.to_dict().items() if k not in _MADE}
    found["rope_parameters"] = {k: v for k, v in found["rope_parameters"].items() if k != "type"}
    return found


def logits(model: Any) -> torch.Tensor:
    """Return the logits of a text of 100 tokens."""
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DECODERS)
def test_loads_and_computes_the_same(name: str, tmp_path: Path) -> None:
    root = through_gguf(name, tmp_path)
    (before, _), (after, info) = load(root), load(tmp_path / "back")
    # One more layer, which predicts tokens ahead, is in files but not in transformers' class.
    unexpected = [n for n in info.pop("unexpected_keys") if ".layers.3." not in n or "mtp" in n]
    assert (unexpected, {k: v for k, v in info.items() if v}) == ([], {})
    assert torch.equal(logits(before), logits(after))
    facts, found = told(before), told(after)
    differ = {k for k in {*facts, *found} if facts.get(k) != found.get(k)}
    assert differ == DIFFER.get(name, set())


@pytest.mark.parametrize("name", ["bert", "nomic_bert", "t5_encoder", "t5_encoder_old"])
def test_encoders_compute_the_same(name: str, tmp_path: Path) -> None:
    """All but BERT's pooler, which GGUF has no place for."""
    root = through_gguf(name, tmp_path)
    (before, _), (after, info) = load(root), load(tmp_path / "back")
    lost = {f"pooler.dense.{part}" for part in ("weight", "bias")} if name == "bert" else set()
    assert set(info.pop("missing_keys")) == lost
    assert {k: v for k, v in info.items() if v} == {}
    with torch.no_grad():
        assert torch.equal(before(IDS).last_hidden_state, after(IDS).last_hidden_state)


@pytest.mark.parametrize("name", ["llama_llama3", "qwen3moe", "gemma3", "deepseek3"])
def test_blocks_compute_as_what_they_decode_to(name: str, tmp_path: Path) -> None:
    """The directory of a Q8_0 file, and that of the same values in F32."""
    through_gguf(name, tmp_path, "gguf-q8_0")
    an.convert(tmp_path / "there.gguf", tmp_path / "plain.gguf", "gguf-f32", names="keep")
    an.convert(tmp_path / "plain.gguf", f"{tmp_path / 'plain'}/", "f32")
    (model, info), (plain, _) = load(tmp_path / "back"), load(tmp_path / "plain")
    assert {k: v for k, v in info.items() if v} == {}
    assert torch.equal(logits(model), logits(plain))
