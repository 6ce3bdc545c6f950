"""Configs of published models give the keys of llama.cpp's converter, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anamnesis.architectures.config_of_keys import config_facts
from anamnesis.architectures.differences import computed_otherwise
from anamnesis.architectures.keys import model_keys
from anamnesis.base.errors import AnamnesisError
from anamnesis.formats.gguf.values import Value, typed
from helpers.arch_rows import PUBLISHED, facts_of

CASES: dict[str, dict[str, Any]] = json.loads(PUBLISHED.read_text())


def keys(config: dict[str, Any]) -> dict[str, Value]:
    arch, facts = facts_of(config)
    return {name: typed(value) for name, value in model_keys(arch, facts).items()}


def recorded(name: str) -> dict[str, Value]:
    arch, _ = facts_of(CASES[name]["config"])
    found = CASES[name]["keys"].items()
    return {f"{arch.gguf}.{key}": typed({"type": t, "value": v}) for key, (t, v) in found}


@pytest.mark.parametrize("name", CASES)
def test_keys_are_those_of_the_converter(name: str) -> None:
    assert keys(CASES[name]["config"]) == recorded(name)


def stored(array: np.ndarray[Any, Any]) -> Any:
    from anamnesis.base.dtypes import DTYPES

    part = SimpleNamespace(read=array.astype("<f4").tobytes)
    return SimpleNamespace(shape=array.shape, own_dtype=DTYPES["F32"], parts=[part])


@pytest.mark.parametrize("name", CASES)
def test_config_comes_back_from_keys(name: str) -> None:
    arch, facts = facts_of(CASES[name]["config"])
    metadata = {key: value["value"] for key, value in model_keys(arch, facts).items()}
    weights = {"token_embd.weight": stored(np.empty((facts.number("vocab_size"), 0)))}
    weights |= {key: stored(array) for key, array in arch.extra(facts).items()}
    config, taken = config_facts(arch, metadata, weights)
    again = keys(json.loads(json.dumps(config)))
    assert again == recorded(name)
    assert taken == set(metadata)
    back = facts_of(config)[1]
    made, first = arch.extra(back), arch.extra(facts)
    assert {k: a.tobytes() for k, a in made.items()} == {k: a.tobytes() for k, a in first.items()}
    for fact in ("query_pre_attn_scalar", "q_lora_rank", "qk_nope_head_dim", "num_attention_heads"):
        assert back.get(fact) == facts.get(fact)


LIES: list[Any] = ["x", [], {}, [[]], -1, 0, True, 2**70, 10**400, 0.5, float("inf"), None]


def made(config: dict[str, Any]) -> None:
    arch, facts = facts_of(config)
    computed_otherwise(arch, facts, model_keys(arch, facts), {})
    arch.extra(facts)


def lying(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, told in config.items():
        for lie in LIES if name != "architectures" else []:
            yield {**config, name: lie}
        if isinstance(told, dict):
            yield from ({**config, name: other} for other in lying(told))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_facts_of_another_kind_are_errors_or_keys(name: str) -> None:
    errors = []
    for config in lying(CASES[name]["config"]):
        try:
            made(config)
        except AnamnesisError as error:
            errors.append(str(error))
    assert len(errors) > 20
    assert not [text for text in errors if "\n" in text]
