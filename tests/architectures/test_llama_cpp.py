"""What llama.cpp computes otherwise is said, refused if asked for, and survives the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.architectures.config_of_keys import shortest
from anamnesis.architectures.differences import check_biases, computed_otherwise, kept_facts
from anamnesis.architectures.from_gguf import as_hf
from anamnesis.architectures.model_facts import read_facts
from anamnesis.architectures.registry import arch_of_class
from helpers.recorded_hf import recorded, remake

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
OLMO = {
    "full_attention": {"rope_type": "default", "rope_theta": 5e5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
GEMMA = {**OLMO, "full_attention": LLAMA3}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 64}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "long_factor": [2.0]}
LONG_16 = {**LONG, "long_factor": [2.0] * 16, "short_factor": [1.5] * 16}
LONG_16["original_max_position_embeddings"] = 64
LONG |= {"short_factor": [1.0], "original_max_position_embeddings": 64}


def edited(name: str, folder: Path, edits: dict[str, Any]) -> Path:
    """Make a recorded model, with other facts in its config.json."""
    root = remake(name, folder / "hf")
    config = json.loads((root / "config.json").read_text())
    (root / "config.json").write_text(json.dumps(config | edits))
    return root


def written(name: str, root: Path, **options: Any) -> an.Report:
    pre = recorded(name).pre
    with an.parse(root) as model:
        return model.convert(root.parent / "a.gguf", "gguf-f32", tokenizer_pre=pre, **options)


def config_back(root: Path) -> dict[str, Any]:
    an.convert(root.parent / "a.gguf", f"{root.parent / 'back'}/", "f32")
    found: dict[str, Any] = json.loads((root.parent / "back/config.json").read_text())
    return found


OTHERWISE: list[tuple[str, dict[str, Any], str]] = [
    ("qwen2moe", {"norm_topk_prob": True}, "norm_topk_prob is true"),
    ("qwen3moe", {"norm_topk_prob": False}, "norm_topk_prob is false"),
    ("qwen3next", {"norm_topk_prob": False}, "norm_topk_prob is false"),
    ("deepseek2", {"norm_topk_prob": True}, "norm_topk_prob is true"),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true"),
    ("gemma2", {"tie_word_embeddings": False}, "tie_word_embeddings is false"),
    ("llama", {"hidden_act": "gelu"}, 'hidden_act is "gelu"'),
    ("starcoder2", {"hidden_act": "relu"}, 'hidden_act is "relu"'),
    ("starcoder2", {"hidden_act": "gelu"}, 'hidden_act is "gelu"'),
    ("gemma2", {"hidden_activation": "relu"}, 'hidden_activation is "relu"'),
    ("gemma3", {"hidden_activation": "gelu"}, 'hidden_activation is "gelu"'),
    ("bert", {"hidden_act": "relu"}, 'hidden_act is "relu"'),
    ("llama", {"rope_parameters": DYNAMIC}, 'rope_type is "dynamic"'),
    ("olmo3", {"rope_parameters": OLMO}, "rope_parameters is "),
    ("deepseek3", {"rope_scaling": None, "rope_parameters": YARN}, "factor is 4.0"),
    ("gemma3", {"rope_parameters": GEMMA}, 'rope_type is "llama3"'),
    ("gpt_oss", {"swiglu_limit": 0.5}, "swiglu_limit is 0.5"),
    ("mistral", {"sliding_window": 8}, "sliding_window is 8"),
    ("mixtral", {"sliding_window": 8}, "sliding_window is 8"),
    ("starcoder2", {"sliding_window": 8}, "sliding_window is 8"),
    (
        "qwen2",
        {"sliding_window": 8, "use_sliding_window": True, "layer_types": None}
        | {"max_window_layers": 1},
        "sliding_window is 8",
    ),
    ("qwen2", {"rope_parameters": LLAMA3}, 'rope_type is "llama3"'),
    ("smollm3", {"rope_parameters": LLAMA3}, 'rope_type is "llama3"'),
    ("cohere2", {"rope_parameters": YARN}, 'rope_type is "yarn"'),
    ("qwen3", {"rope_parameters": LONG}, 'rope_type is "longrope"'),
    ("qwen3", {"rope_parameters": {**YARN, "truncate": False}}, "truncate is false"),
    ("llama", {"rope_parameters": {**YARN, "beta_fast": 4.0}}, "beta_fast is 4.0"),
    ("llama", {"rope_parameters": {**YARN, "beta_slow": 0.5}}, "beta_slow is 0.5"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "edits", "words"), OTHERWISE)
def test_it_is_said_and_comes_back(
    name: str, edits: dict[str, Any], words: str, tmp_path: Path
) -> None:
    root = edited(name, tmp_path, edits)
    plan = an.parse(root).plan(to="gguf-f32", tokenizer_pre=recorded(name).pre)
    (verdict,) = [one for one in plan.to_dict()["loads"] if one["program"] == "llama.cpp"]
    assert verdict["outcome"] == "otherwise"
    assert words in verdict["why"]
    with pytest.raises(an.UnsupportedError, match="computes this otherwise"):
        written(name, root, strict=True)
    assert any(words in one for one in written(name, root).warnings)
    back = config_back(root)
    expected = {fact: value for fact, value in edits.items() if value is not None}
    assert {fact: back[fact] for fact in expected} == expected


@pytest.mark.parametrize(
    "odd", [{"high_freq_factor": 5.0}, {"original_max_position_embeddings": 100}]
)
def test_a_ramp_of_no_preset_comes_back(odd: dict[str, Any], tmp_path: Path) -> None:
    rope = {**LLAMA3, **odd}
    root = edited("llama", tmp_path, {"rope_parameters": rope})
    assert written("llama", root, strict=True).warnings == ()
    assert config_back(root)["rope_parameters"] == rope


def test_biases_that_no_fact_says_are_said(tmp_path: Path) -> None:
    root = remake("glm4moe", tmp_path / "hf")
    config = json.loads((root / "config.json").read_text())
    del config["attention_bias"]
    (root / "config.json").write_text(json.dumps(config))
    words = "attention_bias is not set, and it adds the biases that are stored"
    assert any(words in one for one in written("glm4moe", root).warnings)


@pytest.mark.parametrize(
    ("name", "edits"),
    [
        ("mistral", {"sliding_window": 1 << 20}),
        ("mistral", {"sliding_window": None}),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": False}),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 99}),
        ("llama", {"hidden_act": "swish"}),
        ("llama", {"sliding_window": 8}),  # of which its class knows nothing
        ("llama", {"rope_parameters": LLAMA3}),
        ("granite", {"rope_parameters": LLAMA3}),
        ("llama", {"rope_parameters": LONG_16}),
        ("qwen3", {"rope_parameters": {**YARN, "attention_factor": 1.25}}),
        ("qwen3moe", {"norm_topk_prob": True}),
    ],
)
def test_nothing_is_said_of_what_it_computes(
    name: str, edits: dict[str, Any], tmp_path: Path
) -> None:
    edits = {**edits, "layer_types": None} if name == "qwen2" else edits
    assert written(name, edited(name, tmp_path, edits), strict=True).warnings == ()
    assert "anamnesis.config" not in an.parse(tmp_path / "a.gguf").metadata


def test_what_it_computes_alike_comes_back_too(tmp_path: Path) -> None:
    """BERT's GELU is that by the error function, if nothing says another; a table rounds both."""
    root = edited("bert", tmp_path, {"hidden_act": "gelu_new"})
    assert written("bert", root, strict=True).warnings == ()
    assert config_back(root)["hidden_act"] == "gelu_new"


@pytest.mark.parametrize(
    ("rope", "factor"),
    [
        ({**YARN, "attention_factor": 1.25}, 1.25 / 1.1386294361119891),
        ({**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}, 1 / 1.0693147180559945),
        ({**YARN, "attention_factor": 1.1386294361119891}, None),
        (YARN, None),
    ],
)
def test_llama_cpp_scales_by_what_the_class_does(
    rope: dict[str, Any], factor: float | None, tmp_path: Path
) -> None:
    """llama.cpp multiplies its own scale of YaRN by one key, and reads no other."""
    root = edited("qwen3", tmp_path, {"rope_parameters": rope})
    written("qwen3", root)
    told = an.parse(tmp_path / "a.gguf").metadata.get("qwen3.rope.scaling.attn_factor")
    assert told == (None if factor is None else pytest.approx(factor, rel=1e-7))
    back = config_back(root)["rope_parameters"]
    if "mscale" in rope:
        assert back["attention_factor"] == pytest.approx(1.1386294361119891 / 1.0693147180559945)
    else:
        assert back.get("attention_factor") == shortest(rope.get("attention_factor"))


@pytest.mark.parametrize(
    ("name", "edits", "match"),
    [
        ("starcoder2", {"use_bias": False}, "use_bias is not set, and there is 'blk.{bid}.attn_q"),
        ("deepseek2", {"moe_layer_freq": 2}, "moe_layer_freq is 2"),
    ],
)
def test_what_it_does_not_load_is_refused(
    name: str, edits: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(an.AnamnesisError, match=match):
        written(name, edited(name, tmp_path, edits))


@pytest.mark.parametrize(
    ("name", "keys", "facts", "match"),
    [
        ("Qwen3NextForCausalLM", {}, {"linear_value_head_dim": 9}, "linear_value_head_dim is 9"),
        (
            "Starcoder2ForCausalLM",
            {},
            {"use_bias": False},
            "use_bias is false, and it wants biases",
        ),
        ("Qwen3_5ForCausalLM", {}, {"linear_value_head_dim": 9}, "linear_value_head_dim is 9"),
        ("Qwen2MoeForCausalLM", {}, {"tie_word_embeddings": True}, "tie_word_embeddings is true"),
        ("Olmo2ForCausalLM", {}, {"tie_word_embeddings": True}, "tie_word_embeddings is true"),
        (
            "DeepseekV2ForCausalLM",
            {"attention.q_lora_rank": 8},
            {"num_hidden_layers": 27, "q_lora_rank": 8},
            "q_lora_rank is 8, and it takes it to be null",
        ),
    ],
)
def test_shapes_that_it_does_not_load_are_refused(
    name: str, keys: dict[str, Any], facts: dict[str, Any], match: str
) -> None:
    config = {"architectures": [name], "num_hidden_layers": 2, "linear_key_head_dim": 8, **facts}
    arch = arch_of_class(config)
    told = {f"{arch.gguf}.{key}": value for key, value in keys.items()}
    found = read_facts(config, arch.model_type, arch.derived)
    with pytest.raises(an.UnsupportedError, match=match):
        computed_otherwise(arch, found, told, {})


@pytest.mark.parametrize(
    ("name", "bias"),
    [
        ("Qwen3ForCausalLM", "attn_output"),
        ("SmolLM3ForCausalLM", "ffn_up"),
        ("SeedOssForCausalLM", "attn_output"),
        ("Ernie4_5ForCausalLM", "ffn_down"),
        ("DeepseekV3ForCausalLM", "attn_q_a"),
        ("Gemma3ForCausalLM", "attn_output"),
        ("Lfm2ForCausalLM", "shortconv.conv"),
    ],
)
def test_a_bias_that_has_no_place_is_refused(name: str, bias: str) -> None:
    arch = arch_of_class({"architectures": [name]})
    made: dict[str, Any] = {f"blk.0.{bias}.bias": None}
    with pytest.raises(an.UnsupportedError, match="no place for the bias 'its own'"):
        check_biases(arch, made, dict.fromkeys(made, ("its own",)))
    check_biases(arch, {"blk.0.attn_q.weight": None}, {})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "told", ["[", "[]", '{"a": 1}', '{"sliding_window": NaN}', 7, "[" * 10_000, None]
)
def test_a_key_of_ours_that_lies_is_refused(told: Any) -> None:
    with pytest.raises(an.ParseError, match=r"anamnesis\.config"):
        kept_facts(told)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("llama.context_length", "2048", "'2048', not a whole number"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "is nan, not a number"),
        ("llama.rope.freq_base", float("inf"), "is inf, not a number"),
        ("llama.rope.dimension_count", "x", "'x', not a whole number"),
        ("tokenizer.ggml.eos_token_id", 1 << 20, "no id of the vocabulary"),
        ("general.sampling.temp", float("nan"), "is nan, not a number"),
    ],
)
def test_keys_of_a_header_that_are_no_facts_are_refused(
    key: str, value: Any, match: str, tmp_path: Path
) -> None:
    written("llama", remake("llama", tmp_path / "hf"))
    with an.parse(tmp_path / "a.gguf") as model:
        metadata = {**model.metadata, key: value}
        with pytest.raises(an.AnamnesisError, match=match):
            as_hf(model._ledger, metadata)


def test_no_id_is_one_that_there_is_not(tmp_path: Path) -> None:
    """llama.cpp itself writes 2^32-1 of a token that a vocabulary has not."""
    written("llama", remake("llama", tmp_path / "hf"))
    with an.parse(tmp_path / "a.gguf") as model:
        metadata = {**model.metadata, "tokenizer.ggml.padding_token_id": (1 << 32) - 1}
        assert as_hf(model._ledger, metadata).config["pad_token_id"] is None
