"""The mixes of llama-quantize: which type each tensor gets, and what may be asked beside them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anamnesis import UnsupportedError
from anamnesis.schemes.families.ggml.choose import TYPES, Given, Options, choose, type_named
from anamnesis.schemes.families.ggml.mixes import (
    ALIASES,
    CONDITIONS,
    COPY,
    FALLBACKS,
    MIXES,
    RULES,
    ModelFacts,
)
from helpers import mix_records

LLAMA = ModelFacts("llama", 32, 32, 8)


def types(
    tensors: Mapping[str, tuple[int, ...]],
    mix: str,
    options: Options | None = None,
    model: ModelFacts = LLAMA,
    asked: Mapping[str, str] | None = None,
) -> dict[str, str | None]:
    """Return the type of each tensor; `asked` has types by words of names."""
    words = asked or {}
    given = [
        Given(name, shape, next((words[word] for word in words if word in name), None))
        for name, shape in tensors.items()
    ]
    return {name: one.type for name, one in choose(given, model, mix, options).items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", mix_records.MODELS)
def test_each_tensor_of_twelve_models_gets_the_type_that_llama_cpp_records(name: str) -> None:
    facts, tensors, digests = mix_records.from_json(mix_records.recorded()[name])
    for mix, digest in digests.items():
        chosen = choose(tensors, facts, mix)
        assert mix_records.digest({name: one.type for name, one in chosen.items()}) == digest, mix


# --- names ----------------------------------------------------------------------------------------


def test_every_type_that_data_name_is_one() -> None:
    named = {mix.base for mix in MIXES.values()} | set(FALLBACKS) | set(FALLBACKS.values())
    named |= {rule.type for rules in RULES.values() for rule in rules if rule.type}
    assert named <= set(TYPES)
    mixes = {mix for rules in RULES.values() for rule in rules for mix in rule.mixes}
    assert mixes | set(ALIASES.values()) <= set(MIXES)
    assert {name for rules in RULES.values() for rule in rules for name in rule.when} == {
        *CONDITIONS
    }


def test_types_are_named_in_either_case() -> None:
    assert type_named("q4_K") == "Q4_K"
    with pytest.raises(ValueError, match="there is no type 'Q8_K'"):
        type_named("Q8_K")


# --- what is asked beside a mix -------------------------------------------------------------------

TENSORS = {
    "output.weight": (64, 512),
    "output_norm.weight": (512,),
    "token_embd.weight": (64, 512),
    "blk.0.attn_output.weight": (512, 512),
    "blk.0.attn_v.weight": (512, 512),
    "blk.0.ffn_down.weight": (512, 512),
}


def test_embeddings_and_output_are_as_asked_even_in_a_mix_of_floats() -> None:
    asked = Options(output="Q8_0", embedding="Q5_K")
    for mix in ("q4_k_m", "f16"):
        found = types(TENSORS, mix, asked)
        assert found["output.weight"] == "Q8_0"
        assert found["token_embd.weight"] == "Q5_K"


def test_tied_embeddings_follow_the_output() -> None:
    tied = {name: shape for name, shape in TENSORS.items() if name != "output.weight"}
    assert types(tied, "q4_k_m")["token_embd.weight"] == "Q6_K"
    assert types(tied, "q4_k_m", Options(output="Q8_0"))["token_embd.weight"] == "Q8_0"
    assert types(tied, "q4_k_m", Options(output="Q8_0", pure=True))["token_embd.weight"] == "Q4_K"


def test_the_output_is_left_if_asked() -> None:
    assert types(TENSORS, "q4_k_m", Options(leave_output=True))["output.weight"] is None


def test_pure_asks_no_rules() -> None:
    found = types(TENSORS, "q4_k_m", Options(pure=True))
    assert {type for type in found.values() if type} == {"Q4_K"}


def test_what_is_asked_for_hides_its_tensor_from_the_rules() -> None:
    found = types(TENSORS, "q3_k_m", asked={"attn_v": "Q3_K", "attn": "Q8_0"})
    assert found["blk.0.attn_v.weight"] == "Q3_K"
    assert found["blk.0.attn_output.weight"] == "Q8_0"
    values = {f"blk.{i}.attn_v.weight": (512, 512) for i in range(4)}
    assert list(types(values, "q3_k_m").values()) == ["Q5_K", "Q5_K", "Q4_K", "Q4_K"]
    first = types(values, "q3_k_m", asked={"blk.0.": "Q8_0"})
    assert list(first.values()) == ["Q8_0", "Q5_K", "Q5_K", "Q4_K"]


def test_the_second_embeddings_may_be_named() -> None:
    names = {"token_embd.weight": (64, 512), "per_layer_token_embd.weight": (64, 512)}
    found = types(names, "q4_0", Options(embedding="Q8_0"), asked={"token_embd": "Q5_0"})
    assert found == {"token_embd.weight": "Q8_0", "per_layer_token_embd.weight": "Q5_0"}


# --- what is kept, and what rows do not fit into --------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.0.attn_norm.weight", (512,)),
        ("blk.0.ffn_gate_inp.weight", (8, 512)),
        ("blk.0.attn_q.bias", (8, 512)),
        ("blk.0.attn_q.weight", (1, 512)),
        ("token_types.weight", (2, 512)),
        ("position_embd.weight", (77, 512)),
        ("v.blk.0.ssm_conv1d.weight", (512, 4)),
    ],
)
def test_some_tensors_stay_as_they_are(name: str, shape: tuple[int, ...]) -> None:
    (choice,) = choose([Given(name, shape)], LLAMA, "q4_k_m").values()
    assert choice.type is None
    assert choice.why


def test_a_copy_keeps_all() -> None:
    assert set(types(TENSORS, COPY).values()) == {None}


def test_rows_that_are_no_blocks_get_another_type() -> None:
    rows = {"blk.0.attn_q.weight": (8, 96)}
    found = {
        mix: types(rows, mix, Options(pure=True))["blk.0.attn_q.weight"]
        for mix in MIXES.keys() - {"q1_0"}
    }
    assert found["q4_k_m"] == "Q5_0"
    assert found["iq2_xxs"] == "IQ4_NL"
    assert found["q2_k"] == found["tq1_0"] == found["q2_0"] == "Q4_0"
    assert found["q8_0"] == "Q8_0"
    for mix in ("q4_k_m", "q8_0", "mxfp4_moe"):
        assert types({"blk.0.attn_q.weight": (8, 33)}, mix)["blk.0.attn_q.weight"] == "F16"


def test_rows_that_no_type_is_for_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="rows of 96 values are no Q1_0 blocks of 128"):
        types({"blk.0.attn_q.weight": (8, 96)}, "q1_0")
    with pytest.raises(UnsupportedError, match="no NVFP4 blocks of 64"):
        types({"blk.0.attn_q.weight": (8, 96)}, "q4_0", asked={"attn": "NVFP4"})
    ends = {"output.weight": (8, 96), "token_embd.weight": (8, 96)}
    for wanted in (Options(output="Q2_K"), Options(embedding="Q2_K")):
        with pytest.raises(UnsupportedError, match="rows of 96 values are no Q2_K blocks of 256"):
            types(ends, "f16", wanted)


def test_a_model_of_experts_must_say_the_layers_of_its_tensors() -> None:
    model = ModelFacts("qwen3moe", 4, 32, 4, 128)
    for name in ("mtp.ffn_down.weight", "blk.4.ffn_down.weight", "blk.-1.ffn_down.weight"):
        with pytest.raises(UnsupportedError, match="does not say a layer"):
            types({name: (512, 512)}, "q4_k_m", model=model)
        assert types({name: (512, 512)}, "iq2_s", model=model)
        assert types({name: (512, 512)}, "q4_k_m", Options(pure=True), model)


def test_some_types_need_an_importance_matrix() -> None:
    given = [Given(name, shape) for name, shape in TENSORS.items()]
    for mix, wanted in (
        ("q2_k_s", {"blk.0.attn_output.weight"}),
        ("q2_k", set()),
        ("iq2_xxs", {"blk.0.attn_output.weight"}),
        ("iq3_s", set()),
    ):
        chosen = choose(given, LLAMA, mix, Options(embedding="IQ2_S"))
        assert {name for name, one in chosen.items() if one.needs_imatrix} == wanted, mix
