"""Words: spellings of others, the nearest of those that there are, and one rule for globs."""

from __future__ import annotations

import time

import pytest

from anamnesis.base.nearest import did_you_mean, nearest
from anamnesis.base.patterns import unfitting
from anamnesis.cli.app import COMMANDS
from anamnesis.convert.request.targets import encoding, names, target


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("fp9", "fp8-block"),
        ("f8-block", "fp8-block"),
        ("fp8_blok", "fp8-block"),
        ("ggfu", "gguf"),
        ("bf61", "bf16"),
        ("gguf-q5_2", "gguf-q5_0"),
        ("int3", "int4"),
        ("comfy", "comfy-fp8"),
        ("safetensor", "safetensors"),
    ],
)
def test_the_nearest_target_is_named_and_never_all(word: str, first: str) -> None:
    assert first in nearest(word, names())
    assert len(nearest(word, names())) <= 3


def test_what_is_like_nothing_has_no_nearest() -> None:
    for word in ("", "x", "zzzzzz", "\N{SNOWMAN}"):
        assert did_you_mean(word, names()) == ""
    assert did_you_mean("verify", COMMANDS) == ""
    assert did_you_mean("fp8-chanel", ["fp8-channel"]) == " (did you mean 'fp8-channel'?)"


@pytest.mark.parametrize(
    ("word", "command"), [("parze", "parse"), ("converg", "convert"), ("inspekt", "inspect")]
)
def test_the_nearest_command(word: str, command: str) -> None:
    assert nearest(word, COMMANDS)[0] == command


def test_the_nearest_of_very_many_names_takes_no_time() -> None:
    many = [f"model.layers.{i}.self_attn.{k}_proj.weight" for i in range(50_000) for k in "qkvo"]
    start = time.thread_time()
    assert many[0] in nearest("model.layers.0.self_attn.q_prj.weight", many)
    assert nearest("x" * 100_000, many) == ()
    assert time.thread_time() - start < 5


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nf4", "bnb-nf4"),
        ("bnb_nf4", "bnb-nf4"),
        ("NF4-128", "bnb-nf4-128"),
        ("fp8-fine-grained", "fp8-block"),
        ("FP8-Per-Channel", "fp8-channel"),
        ("fp8_block_64x64", "fp8-block-64x64"),
        ("int4_32", "int4-32"),
        ("W4A16", "int4"),
        ("awq", "awq-4bit"),
        ("gptq_4bit_32", "gptq-4bit-32"),
        ("Q8_0", "gguf-q8_0"),
        ("fp16", "f16"),
        ("half", "f16"),
        ("bfloat16", "bf16"),
        ("pt", "pth"),
        ("gguf-fp16", "gguf-f16"),
        ("npz_float32", "npz-f32"),
        ("safetensors-nf4", "safetensors-bnb-nf4"),
    ],
)
def test_spellings_of_others(text: str, name: str) -> None:
    assert target(text) == target(name)


def test_an_unknown_target_takes_one_short_line() -> None:
    for word in ("fp9", "nonsense", "gguf-int9", "int4-foo"):
        for ask in (target, encoding):
            with pytest.raises(ValueError, match=r"there is no (target|encoding)") as raised:
                ask(word)
            assert repr(word) in str(raised.value)
            assert len(str(raised.value)) < 160


@pytest.mark.parametrize("word", ["q4_k_m", "gguf-Q4_K_M", "Q3-K-L", "mxfp4_moe"])
def test_a_mix_is_for_a_whole_model(word: str) -> None:
    assert target(word).mix is not None
    with pytest.raises(ValueError, match="is a mix, for a whole model; name a type"):
        encoding(word)


def test_globs_that_fit_nothing() -> None:
    names = ["a.b", "ab"]
    assert unfitting(["a", "a.*", "x", "*b"], names) == ["x"]
    assert unfitting(["A"], names) == ["A"]
