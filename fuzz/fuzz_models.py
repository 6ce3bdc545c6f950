"""Models of all rows, their tensors and facts spoiled, as GGUF and as a directory."""

from __future__ import annotations

from math import prod
from typing import Any

from structured import Choices
from structured_models import NAMES, Model, directory, gguf, other, seen
from traced import fuzz

import anamnesis as an
from anamnesis.architectures.arch import split

FACTS: tuple[Any, ...] = (
    *(0, 1, 2, 3, 5, -1, 513, 2**32, 2**70, 10**400, 0.5, float("nan"), float("inf"), True, False),
    *(None, "", "2", "x", [], [1], [[]], {}, [0, 1], [2] * 4, {"a": 1}),
)
NUMBERS = ("03", "00", "٣", "-1", "9" * 5000, "1", "2", "7", "1000000", "")
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (2,), (128,), (1, 1), (0, 128), (2, 3, 4))
# What others of its kind lack, or nothing says that it must be there.
MAY_LACK = (
    *("nextn.embed_tokens.weight", "nextn.shared_head_head.weight", "shared_head_norm.weight"),
    *("output.weight", "lm_head.weight", "layer_output_scale.weight", "layer_scalar"),
    *("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"),
    *("3.embed_tokens.weight", "3.shared_head.head.weight"),
    *("shared_head.norm.weight", "mtp.norm.weight"),
)
MAY_BE_CUT = "embed_tokens.weight"  # at the number of tokens


def _spoiled_names(choices: Choices, model: Model) -> Model:
    shapes = dict(model.shapes)
    name = choices.pick(list(shapes))
    shape = shapes.pop(name)
    kind = choices.below(6)
    if kind == 0:
        return model.with_shapes(shapes)
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    if kind < 4 and numbers:
        parts[choices.pick(numbers)] = choices.pick(NUMBERS)
    elif kind == 4:
        parts.insert(choices.below(2), choices.pick(("language_model", "model", "x", "")))
    else:
        parts[-1] = choices.pick(("bias", "weight", "scale", "x", "weight.weight"))
    if choices.below(2):
        shapes[name] = shape  # beside the other
    shapes[".".join(parts)] = shape
    return model.with_shapes(shapes)


def _spoiled_shapes(choices: Choices, model: Model) -> Model:
    shapes = dict(model.shapes)
    name = choices.pick(list(shapes))
    shape = shapes[name]
    axis = choices.below(max(len(shape), 1))
    made: list[tuple[int, ...]] = [shape[::-1], (1, *shape), (*shape, 1), (prod(shape),)]
    for n in (0, 1, 2, 3) if shape else ():
        made += [(*shape[:axis], shape[axis] * n // 2, *shape[axis + 1 :])]
    made += [(*shape[:axis], *shape[axis + 1 :]), *SHAPES]
    return model.with_shapes({**shapes, name: choices.pick(made)})


def _copied(facts: Any) -> Any:
    """Return facts whose objects are others; lists are as long as vocabularies."""
    is_object = isinstance(facts, dict)
    return {key: _copied(value) for key, value in facts.items()} if is_object else facts


def _spoiled_facts(choices: Choices, model: Model) -> Model:
    facts = _copied(model.facts)
    section = facts.get("text_config") if choices.below(2) else facts
    section = section if isinstance(section, dict) else facts
    names = [key for key in section if not key.startswith(("token", "general"))]
    if not names:
        return model
    name = choices.pick(names)
    value = section[name]
    if choices.below(3) == 0:
        del section[name]
    elif type(value) is int and choices.below(2):
        section[name] = choices.pick((value * 2, value // 2, value + 1, value - 1))
    elif isinstance(value, dict) and value and choices.below(2):
        value[choices.pick(list(value))] = choices.pick(FACTS)
    else:
        section[name] = choices.pick(FACTS)
    return model.with_facts(facts)


def model_from(data: bytes) -> tuple[Model, Model]:
    """Return a model, and that spoiled as an input says."""
    choices = Choices(data)
    make = choices.pick((directory, gguf))
    first = model = make(choices.pick(NAMES))
    for _ in range(choices.below(3) + 1):
        spoil = choices.pick((_spoiled_names, _spoiled_names, _spoiled_shapes, _spoiled_facts))
        if model.shapes:
            model = spoil(choices, model)
    return first, model


UNSAID = "of no scaling of Llama 3's that is known"


def check_again(model: Model, dropped: set[str]) -> None:
    """Raise if what a model becomes is refused, or becomes a model with fewer values."""
    try:
        again = other(other(model))
    except an.AnamnesisError as error:
        if UNSAID in str(error):  # llama.cpp reads factors that no fact of transformers' gives
            return
        raise AssertionError(f"what it becomes is refused: {error}") from error
    kept, made = (
        {
            name: [n for n in shape if n != 1]
            for name, shape in one.shapes.items()
            if name not in dropped and not name.endswith(MAY_BE_CUT)
        }
        for one in (model, again)
    )
    assert sum(map(prod, made.values())) == sum(map(prod, kept.values())), "values are lost"
    assert made == kept or not model.is_gguf, "names or shapes differ"


def check(data: bytes) -> None:
    """Raise whatever a model brings out that should not come out."""
    was_seen(data)


def was_seen(data: bytes) -> bool:
    """Return whether a model is seen as the other one; raise as `check` does."""
    first, model = model_from(data)
    try:
        made, names, dropped = seen(model)
    except an.AnamnesisError as error:
        if "\n" in str(error):
            raise AssertionError("an error of several lines") from error
        return False
    claimed = [name for some in names.values() for name in some]
    assert {*claimed, *dropped} == set(model.shapes), "a tensor is neither claimed nor dropped"
    assert not dropped.intersection(claimed)
    check_again(model, dropped)
    if model.shapes == first.shapes:
        return True
    wanted, *_ = seen(first)
    lost = [name for name in wanted if name not in made and not split(name)[1].endswith(MAY_LACK)]
    assert not lost, f"{lost[:3]} are not there, and nothing is said"
    return True


if __name__ == "__main__":
    fuzz(check)
