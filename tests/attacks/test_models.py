"""Models of each row, spoiled by a tensor, a shape or a fact, are refused, both ways."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

import anamnesis as an

models = import_module("structured_models")
MAY_LACK = import_module("fuzz_models").MAY_LACK
WAYS: tuple[Callable[[str], Any], ...] = (models.directory, models.gguf)
CASES = [
    pytest.param(make, name, id=f"{name}-{make.__name__}") for make in WAYS for name in models.NAMES
]
N_SAMPLED = 6

# Facts that no tensor's name or shape shows.
UNSEEN = {
    *("context_length", "max_position_embeddings", "original_max_position_embeddings"),
    *("rope.scaling.original_context_length", "max_window_layers", "no_rope_layer_interval"),
    *("attention.sliding_window", "sliding_window", "_sliding_window_pattern"),
    *("expert_used_count", "num_experts_per_tok", "top_k_experts"),
    *("n_group", "expert_group_count", "rope.dimension_count", "full_attention_interval"),
    *("sliding_window_pattern", "vocab_size_per_layer_input", "block_multiple_of"),
    *("eos_token_id", "rotary_emb_base", "pad_vocab_size_multiple", "n_inner"),
}
# Those that a row computes otherwise, as files of the hub do.
UNSEEN_BY_ROW = {
    "deepseek": {"head_dim", "num_key_value_heads", "qk_head_dim"},
    # A head as often as a key, and as long as the others leave it.
    "bert": {"num_attention_heads", "attention.head_count"},
    "t5": {"num_decoder_layers"},  # of which an encoder has none
    # No layer is dense.
    **{
        row: {"intermediate_size", "feed_forward_length"}
        for row in ("qwen2moe", "qwen35moe", "qwen3moe", "qwen3next")
    },
}


def refused(model: Any) -> str:
    """Return why a model is refused; an empty text if it is not."""
    try:
        models.seen(model)
    except an.AnamnesisError as error:
        return str(error)
    return ""


def claimed(model: Any) -> list[str]:
    _, names, _ = models.seen(model)
    return [name for some in names.values() for name in some]


def lacking(model: Any) -> Iterator[tuple[str, Any]]:
    for name in claimed(model):
        rest = {other: shape for other, shape in model.shapes.items() if other != name}
        if not name.endswith(MAY_LACK):
            yield name, model.with_shapes(rest)


def misshapen(model: Any) -> Iterator[tuple[str, Any]]:
    for name in claimed(model):
        shape = model.shapes[name]
        for axis, n in enumerate(shape):
            for other in {2 * n, n // 2, 0} - {n}:
                made = (*shape[:axis], other, *shape[axis + 1 :])
                yield f"{name} {list(made)}", model.with_shapes({**model.shapes, name: made})


def lying(model: Any, name: str) -> Iterator[tuple[str, Any]]:
    unseen = {fact for row, some in UNSEEN_BY_ROW.items() if name.startswith(row) for fact in some}
    section = model.facts.get("text_config", model.facts)
    prefix = f"{model.facts.get('general.architecture')}."
    for fact, value in section.items():
        is_asked = fact.startswith(prefix) if model.is_gguf else not fact.endswith("_token_index")
        if type(value) is not int or value < 2 or not is_asked:
            continue
        if fact.removeprefix(prefix) in UNSEEN | unseen:
            continue
        for other in (2 * value, value // 2):
            facts = copy.deepcopy(dict(model.facts))
            facts.get("text_config", facts)[fact] = other
            yield f"{fact} {other}", model.with_facts(facts)


SPOILERS: dict[str, Callable[[Any, str], Iterator[tuple[str, Any]]]] = {
    "lacking": lambda model, name: lacking(model),
    "misshapen": lambda model, name: misshapen(model),
    "lying": lying,
}


def passed(make: Callable[[str], Any], name: str, kind: str, most: int | None) -> list[str]:
    """Return which spoiled models are not refused, of so many that are tried."""
    spoiled = list(SPOILERS[kind](make(name), name))
    if most is not None and len(spoiled) > most:
        spoiled = random.Random(name).sample(spoiled, most)
    assert spoiled
    return [what for what, model in spoiled if not refused(model)]


@pytest.mark.parametrize(("make", "name"), CASES)
def test_models_as_they_are(make: Callable[[str], Any], name: str) -> None:
    assert refused(make(name)) == ""


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", SPOILERS)
@pytest.mark.parametrize(("make", "name"), CASES)
def test_some_spoiled_models_are_refused(make: Callable[[str], Any], name: str, kind: str) -> None:
    assert passed(make, name, kind, N_SAMPLED) == []


@pytest.mark.sampled(13)
@pytest.mark.slow
@pytest.mark.parametrize("kind", SPOILERS)
@pytest.mark.parametrize(("make", "name"), CASES)
def test_all_spoiled_models_are_refused(make: Callable[[str], Any], name: str, kind: str) -> None:
    assert passed(make, name, kind, None) == []
