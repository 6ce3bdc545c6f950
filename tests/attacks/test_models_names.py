"""Names and facts of models that mean one thing to a reader and another to the next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import anamnesis as an
from anamnesis.architectures.from_gguf import as_hf, tensors_as_hf
from anamnesis.architectures.to_gguf import tensors_as_gguf
from anamnesis.base.stored import ASKED, Dropped

models = import_module("structured_models")
NINES = "9" * 5000
EXPERTS = "model.layers.0.block_sparse_moe.experts"
NORM, Q = "model.norm.weight", "model.layers.0.self_attn.q_proj.weight"
QWEN = "model.layers.0.mlp.experts.{}.up_proj.weight"


def renamed(model: Any, names: Mapping[str, str], *, beside: bool = False) -> Any:
    shapes = {names.get(name, name): shape for name, shape in model.shapes.items()}
    return model.with_shapes({**model.shapes, **shapes} if beside else shapes)


def moved_experts(numbers: list[str]) -> Any:
    """Return Mixtral with four experts of other numbers, or more of them."""
    model = models.directory("mixtral")
    rest = {name: shape for name, shape in model.shapes.items() if EXPERTS not in name}
    for number in numbers:
        for part, shape in (("w1", (256, 128)), ("w2", (128, 256)), ("w3", (256, 128))):
            rest[f"{EXPERTS}.{number}.{part}.weight"] = shape
    return model.with_shapes(rest)


@pytest.mark.parametrize("twin", [f"language_model.{NORM}", "model.language_model.norm.weight"])
def test_two_names_of_one_tensor(twin: str) -> None:
    with pytest.raises(an.ParseError, match=rf"'{twin}' and '{NORM}' are both"):
        models.seen(renamed(models.directory("llama"), {NORM: twin}, beside=True))


@pytest.mark.parametrize("number", ["00", "03", "\u0660", "-1", NINES, "0" * 40])
@pytest.mark.parametrize("beside", [False, True])
def test_numbers_are_spelt_in_one_way(number: str, beside: bool) -> None:
    for make, name, stem in (
        (models.directory, Q, ".0."),
        (models.gguf, "blk.0.attn_q.weight", ".0."),
    ):
        other = name.replace(stem, f".{number}.")
        with pytest.raises(an.AnamnesisError, match="is no tensor of llama") as caught:
            models.seen(renamed(make("llama"), {name: other}, beside=beside))
        assert len(str(caught.value)) < 6000


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (["0", "1", "2"], r"num_local_experts is 4, and '.*experts.3.w1.weight' is missing"),
        (["0", "1", "2", "5"], r"num_local_experts is 4, and '.*experts.3.w1.weight' is missing"),
        (["1", "2", "3", "4"], r"num_local_experts is 4, and '.*experts.0.w1.weight' is missing"),
        (
            ["0", "1", "2", "3", "4"],
            r"num_local_experts is 4, and there is '.*experts.4.w1.weight'",
        ),
        (["0", "1", "2", "03"], "is no tensor of llama"),
        (["0", "1", "2", "3", "\u0663"], "is no tensor of llama"),
        (["0", "1", "2", NINES], "is no tensor of llama"),
    ],
)
def test_experts_are_counted_from_0(numbers: list[str], text: str) -> None:
    with pytest.raises(an.AnamnesisError, match=text):
        models.seen(moved_experts(numbers))


@pytest.mark.parametrize("shape", [(128, 256), (64, 256), (129, 128), (1, 256, 128), (256,), ()])
def test_experts_of_unequal_shapes_are_no_stack(shape: tuple[int, ...]) -> None:
    model = models.directory("mixtral")
    for i in range(4):
        for made in (
            {f"{EXPERTS}.{i}.w1.weight": shape},
            {f"{EXPERTS}.{i}.w2.weight": shape[::-1]},
        ):
            with pytest.raises(an.ParseError, match=r"different shapes|no dimensions"):
                models.seen(model.with_shapes({**model.shapes, **made}))


def test_whole_numbers_are_no_weights() -> None:
    model = models.directory("mixtral")
    weights = models.ledger(model).weights
    name = f"{EXPERTS}.2.w1.weight"
    weights[name] = models.ledger(model, "I32").weights[name]
    account = models.ledger(model)
    account.weights = weights
    with pytest.raises(an.ParseError, match=r"'.*experts.2.w1.weight' is I32"):
        tensors_as_gguf(model.facts, account)


# --- facts ----------------------------------------------------------------------------------------


def told(name: str, **facts: Any) -> Any:
    model = models.directory(name)
    return model.with_facts({key: v for key, v in {**model.facts, **facts}.items() if v != "gone"})


@pytest.mark.parametrize("spelling", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_a_fact_counts_under_each_of_its_names(spelling: str) -> None:
    """The class's own default, 128, is under another name than published configs have."""
    facts = {"num_experts": "gone", "num_local_experts": "gone", spelling: 4}
    seen, _ = tensors_as_gguf((model := told("qwen3moe", **facts)).facts, models.ledger(model))
    assert seen.metadata["qwen3moe.expert_count"]["value"] == 4


def test_names_of_one_fact_that_differ() -> None:
    with pytest.raises(an.ParseError, match="num_local_experts is 4 and num_experts is 8"):
        models.seen(told("qwen3moe", num_experts=8, num_local_experts=4))
    with pytest.raises(an.ParseError, match="hidden_size and n_embd are one fact, and differ"):
        models.seen(told("llama", n_embd=256))


def test_a_model_of_sparse_layers_alone_needs_no_dense_size() -> None:
    for name in ("qwen3moe", "qwen2moe", "qwen3next"):
        models.seen(told(name, intermediate_size="gone"))
    with pytest.raises(an.ParseError, match="has no intermediate_size"):
        models.seen(told("llama", intermediate_size="gone"))


@pytest.mark.parametrize(
    ("name", "facts", "text"),
    [
        ("glm4moe_nextn", {"num_nextn_predict_layers": 2}, "predict_layers is 2, and there are no"),
        ("deepseek2", {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid', and the class"),
        ("deepseek3", {"scoring_func": "softmax"}, "scoring_func is 'softmax', and the class"),
        ("deepseek3", {"num_hidden_layers": 2}, "num_hidden_layers is 2, and there are tensors"),
        ("qwen3moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is 2, and llama.cpp"),
        ("qwen3moe", {"mlp_only_layers": [0]}, r"mlp_only_layers is \[0\], and llama.cpp"),
        (
            "llama",
            {"attention_bias": True},
            "attention_bias is set, and '.*q_proj.bias' is missing",
        ),
        (
            "qwen2moe",
            {"qkv_bias": False},
            "qkv_bias is not set, and there is 'blk.{bid}.attn_q.bias'",
        ),
        ("gpt_oss", {"attention_bias": False}, "attention_bias is not set, and there is"),
        ("gemma4", {"attention_k_eq_v": True}, "v_proj.weight' is no tensor of its layer"),
        ("gemma4", {"enable_moe_block": True}, "has no num_experts"),
        (
            "gemma4_moe",
            {"enable_moe_block": False},
            "experts.*' is no tensor of|router.* is no tensor",
        ),
        (
            "gemma4",
            {"vocab_size_per_layer_input": 512},
            "vocab_size_per_layer_input is 512 and vocab",
        ),
        ("gemma4_moe", {"num_kv_shared_layers": 1}, "no layer before has full_attention"),
        (
            "phi3",
            {"rope_parameters": {"partial_rotary_factor": 1.5}},
            "dimension_count .* is 48, and",
        ),
        ("deepseek3", {"n_group": 3}, "n_routed_experts is 8, and n_group 3"),
        ("deepseek3", {"n_group": 2, "topk_group": 2}, ""),
        ("glm4moe", {"use_qk_norm": False}, "use_qk_norm is not set, and there is"),
        (
            "mixtral",
            {"num_experts_per_tok": 5},
            "num_experts_per_tok is 5, and num_local_experts 4",
        ),
        ("llama", {"num_hidden_layers": []}, "num_hidden_layers is a list"),
        ("llama", {"max_position_embeddings": "256"}, "max_position_embeddings is '256'"),
        ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ("gemma3", {"vocab_size": 256}, "vocab_size is 256, and '.*' has 512"),
        ("llama", {"tie_word_embeddings": False}, ""),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "are one fact, and differ"),
        ("llama", {"rope_scaling": {"type": "default"}}, ""),
        ("phi3_long", {"rope_scaling": {"type": "su"}}, "long_factor is no list of 16 numbers"),
    ],
)
def test_facts_that_are_not_true(name: str, facts: dict[str, Any], text: str) -> None:
    model = told(name, **facts)
    if not text:
        models.seen(model)
        return
    with pytest.raises(an.AnamnesisError, match=text):
        models.seen(model)


def test_what_a_person_drops_is_not_missing() -> None:
    for make, name in ((models.directory, "lm_head.weight"), (models.gguf, "output_norm.weight")):
        model = make("llama")
        account = models.ledger(model)
        account.dropped = [Dropped(name, ASKED)]
        del account.weights[name]
        if model.is_gguf:
            made = tensors_as_hf(account, model.facts).ledger
        else:
            made = tensors_as_gguf(model.facts, account)[0].ledger
        assert len(made.weights) == len(model.shapes) - 1


def test_a_tied_head_may_be_stored_too() -> None:
    models.seen(told("llama", tie_word_embeddings=True))


# --- GGUF -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "facts", "text"),
    [
        (
            "llama",
            {"llama.block_count": 1},
            "llama.block_count is 1, and there are tensors of layer 1",
        ),
        (
            "llama",
            {"llama.block_count": 2**31},
            "llama.block_count is 2,147,483,648, more than 512",
        ),
        ("llama", {"llama.context_length": "2048"}, "context_length is '2048', not a whole number"),
        ("llama", {"llama.context_length": 0}, "llama.context_length is 0, not positive"),
        ("llama", {"llama.attention.head_count": True}, "head_count is True, not a whole number"),
        ("llama", {"llama.attention.head_count": [4, 4]}, "llama.attention.head_count is a list"),
        ("llama", {"llama.attention.head_count_kv": [2]}, "has 1 values, not one for each layer"),
        ("llama", {"llama.rope.freq_base": float("nan")}, "llama.rope.freq_base is nan"),
        ("llama", {"llama.rope.freq_base": float("inf")}, "llama.rope.freq_base is inf"),
        ("llama", {"general.sampling.temp": float("inf")}, "general.sampling.temp is inf"),
        ("llama", {"general.sampling.top_k": "x"}, "general.sampling.top_k is 'x'"),
        (
            "llama",
            {"tokenizer.ggml.bos_token_id": "1"},
            "bos_token_id is '1', no id of the vocabulary",
        ),
        ("stablelm", {"stablelm.attention.head_count": 513}, "is more than embedding_length"),
        ("phi3", {"phi3.embedding_length": 0}, "phi3.embedding_length is 0, not positive"),
        ("phi3", {"phi3.rope.scaling.original_context_length": 1}, "original"),
        ("qwen35", {"qwen35.rope.dimension_sections": 1}, "dimension_sections is no list"),
        ("lfm2", {"lfm2.attention.head_count_kv": None}, "has no .*head_count_kv"),
        ("gemma4", {"gemma4.attention.value_length": 8}, "key_length and value_length differ"),
        ("bert", {"bert.attention.causal": True}, "causal is True, and config.json of BertModel"),
        ("bert", {"bert.attention.causal": None}, "has no bert.attention.causal, and config.json"),
        ("bert", {"tokenizer.ggml.token_type_count": 3}, "token_type_count is 3, and 'token_types"),
        ("glm4moe", {"glm4moe.expert_gating_func": 1}, "expert_gating_func is 1, and config.json"),
        ("deepseek3", {"deepseek2.expert_gating_func": None}, "no deepseek2.expert_gating_func"),
        ("granite", {"granite.attention.scale": None}, "the header has no granite.attention.scale"),
        ("mixtral", {"llama.expert_used_count": None}, "experts, and no llama.expert_used_count"),
        ("gpt_oss", {"gpt-oss.attention.sliding_window": None}, "no gpt-oss.attention.sliding_w"),
        ("llama", {"llama.rope.scaling.type": "longrope"}, "long_factor is no list of 16 numbers"),
        ("llama", {"llama.context_length": None}, "the header has no llama.context_length"),
    ],
)
def test_keys_that_are_not_sound(name: str, facts: dict[str, Any], text: str) -> None:
    model = models.gguf(name)
    keys = {key: value for key, value in {**model.facts, **facts}.items() if value is not None}
    with pytest.raises(an.AnamnesisError, match=text):
        as_hf(models.ledger(model), keys)


@pytest.mark.parametrize(
    ("name", "more", "text"),
    [
        ("llama", {"rope_factors_long.weight": (16,)}, "'rope_factors_long.weight' is no tensor"),
        ("qwen2", {"rope_freqs.weight": (16,)}, "'rope_freqs.weight' is no tensor of qwen2"),
        ("glm4moe", {"blk.1.ffn_up_exps.bias": (4, 64)}, "'blk.1.ffn_up_exps.bias' is no tensor"),
        ("llama", {"blk.1.attn_q.bias": (128,)}, "'blk.0.attn_q.bias' is missing"),
        ("llama", {"blk.2.attn_q.weight": (128, 128)}, "tensors of layer 2"),
        ("qwen3next", {"blk.3.attn_qkv.weight": (128, 128)}, "no tensor of its layer"),
        ("glm4moe", {"blk.1.ffn_up.weight": (256, 128)}, "no tensor of its layer"),
    ],
)
def test_tensors_that_config_json_cannot_say(
    name: str, more: dict[str, tuple[int, ...]], text: str
) -> None:
    model = models.gguf(name)
    with pytest.raises(an.AnamnesisError, match=text):
        models.seen(model.with_shapes({**model.shapes, **more}))


def test_what_a_header_leaves_out_is_as_llama_cpp_takes_it() -> None:
    def config(name: str, *left: str) -> Mapping[str, Any]:
        model = models.gguf(name)
        keys = {key: value for key, value in model.facts.items() if not key.endswith(left)}
        return tensors_as_hf(models.ledger(model), keys).config

    assert config("mixtral", "freq_base")["rope_parameters"]["rope_theta"] == 10000
    assert config("gemma4", "freq_base")["rope_parameters"]["full_attention"]["rope_theta"] == 10000
    olmo3 = config("olmo3", "pattern", "freq_base_swa")
    assert olmo3["architectures"] == ["Olmo3ForCausalLM"]
    assert olmo3["layer_types"] == ["sliding_attention"] * 3 + ["full_attention"]
    assert olmo3["rope_parameters"]["sliding_attention"]["rope_theta"] == 500000
    assert config("phi3", "original_context_length")["original_max_position_embeddings"] == 256
    assert config("gemma2", "sliding_window", "softcapping")["architectures"]


@pytest.mark.parametrize("make", [models.directory, models.gguf])
def test_layers_that_share_keys_store_all_or_none(make: Any) -> None:
    """Files of the hub have keys and values of these layers, which transformers leaves out."""
    model = make("gemma4")
    of_keys = re.compile(r"(.+\.)([23])(\..*(k_proj|v_proj|k_norm|attn_[kv]).*)")
    found = filter(None, map(of_keys.fullmatch, model.shapes))
    more = {f"{m[1]}{int(m[2]) + 2}{m[3]}": model.shapes[m[0]] for m in found}
    whole = {**model.shapes, **more}
    assert len(more) == 6
    assert len(models.seen(model.with_shapes(whole))[1]) == len(models.seen(model)[1]) + 6
    for name in more:
        with pytest.raises(an.ParseError, match=f"{re.escape(name)}' is missing"):
            models.seen(model.with_shapes({n: s for n, s in whole.items() if n != name}))
    raised = "gemma4.attention.shared_kv_layers" if model.is_gguf else "num_kv_shared_layers"
    with pytest.raises(an.ParseError, match="is missing"):
        models.seen(model.with_facts({**model.facts, raised: 3}))


@pytest.mark.parametrize("make", [models.directory, models.gguf])
def test_layers_that_predict_may_be_said_and_not_stored(make: Any) -> None:
    """Transformers saves a model so, llama.cpp's converter writes it so, and llama.cpp loads it."""
    model = make("glm4moe_nextn")
    last = "blk.3." if model.is_gguf else "model.layers.3."
    shapes = {name: s for name, s in model.shapes.items() if not name.startswith(last)}
    seen = models.seen(model.with_shapes(shapes))
    assert len(seen[0]) == len(models.seen(make("glm4moe"))[0])
    if not model.is_gguf:
        there, _ = tensors_as_gguf(model.facts, models.ledger(model.with_shapes(shapes)))
        assert there.metadata["glm4moe.block_count"]["value"] == 4
        assert there.metadata["glm4moe.nextn_predict_layers"]["value"] == 1


@pytest.mark.parametrize("make", [models.directory, models.gguf])
def test_tensors_have_values(make: Any) -> None:
    model = make("granite")
    name = "token_embd.weight" if model.is_gguf else "model.embed_tokens.weight"
    facts = {key: value for key, value in model.facts.items() if not key.endswith("vocab_size")}
    with pytest.raises(an.ParseError, match=f"{name}' has no values"):
        models.seen(model.with_facts(facts).with_shapes({**model.shapes, name: (0, 128)}))


def test_one_bias_says_that_there_are_all() -> None:
    model = models.gguf("llama_linear")
    shapes = {name: s for name, s in model.shapes.items() if not name.endswith("attn_q.bias")}
    with pytest.raises(
        an.ParseError, match=r"attention_bias is set, and 'blk.0.attn_q.bias' is missing"
    ):
        models.seen(model.with_shapes(shapes))


def test_a_model_that_embeds_needs_no_head() -> None:
    model = told("qwen3", architectures=["Qwen3Model"])
    shapes = {name: shape for name, shape in model.shapes.items() if name != "lm_head.weight"}
    models.seen(model.with_shapes(shapes))
    with pytest.raises(an.ParseError, match=r"'lm_head.weight' is missing"):
        models.seen(told("qwen3").with_shapes(shapes))


def test_factors_of_no_scaling() -> None:
    model = models.gguf("llama")
    shapes = {**model.shapes, "rope_freqs.weight": (16,)}
    for value in (0.0, 3.0, float("nan")):
        odd = replace(model, shapes=shapes, values={"rope_freqs.weight": [value] * 8 + [8.0] * 8})
        with pytest.raises(
            an.UnsupportedError, match=r"rope_freqs.weight: these factors are of no"
        ):
            models.seen(odd)


def test_outer_dimensions_of_1_come_back() -> None:
    """llama-quantize writes [1, 128] as [128]; transformers wants two dimensions."""
    model, name = models.gguf("qwen2moe"), "blk.0.ffn_gate_inp_shexp.weight"
    made, _, _ = models.seen(model.with_shapes({**model.shapes, name: (128,)}))
    assert made["model.layers.0.mlp.shared_expert_gate.weight"].shape == (1, 128)
