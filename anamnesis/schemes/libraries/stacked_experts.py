"""Experts that are stored one by one, put together as stacks again.

    N.gate_proj.weight, N.up_proj.weight [inner, outer]    gate_up_proj  [experts, 2 * inner, outer]
    N.down_proj.weight                   [outer, inner]    down_proj     [experts, outer, inner]

That is so where transformers has stacks in files too, and joins no single experts when it loads
them: it would make new ones. How a model's stacks lie is in the classes of its `modeling_….py`,
and in `conversion_mapping.py` where files have other names or another orientation.

Where stacks are asked for, those of all models are made, of codes too if these are alike: as
transformers has them in memory since 5.0, or as mlx-lm has, a stack for each of three layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.printable import shortened
from anamnesis.schemes.core.layout import StacksOf
from anamnesis.schemes.core.plain import Edited, Plain, PlainMatrix
from anamnesis.schemes.core.weight import TiledWeight, Weight
from anamnesis.schemes.views.gathered import Reshaped, joined
from anamnesis.schemes.views.transposed import transposed

PIECE = re.compile(
    r"((?:.*\.)?experts)\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w3|w2)\.(weight|bias)"
)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_UNNUMBERED = -1  # of an expert whose number is written as no tool does: 03
LAYERS = {
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
}
_USUAL = {
    "gate_up_proj": "experts.gate_up_proj",
    "up_proj": "experts.up_proj",
    "down_proj": "experts.down_proj",
}
STACKS = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}
_UNGATED = {"up_proj": ("up",), "down_proj": ("down",)}
_APART = {"gate_proj": ("gate",), **_UNGATED}


class Way(NamedTuple):
    """How transformers stacks a model's experts."""

    is_turned: bool = False
    alternates: bool = False
    names: Mapping[str, str] = _USUAL
    stacks: Mapping[str, tuple[str, ...]] = STACKS
    of_bias: str = "_bias"

    def bias(self, name: str) -> str:
        return f"{name.removesuffix('.weight') if self.of_bias[0] == '.' else name}{self.of_bias}"


_LINEAR, _TURNED = Way(), Way(is_turned=True)
_GRANITE = Way(names={"gate_up_proj": "input_linear.weight", "down_proj": "output_linear.weight"})

# By the type of the model, or of the section of its config that has experts.
_WAYS = {
    "gpt_oss": Way(is_turned=True, alternates=True),
    **dict.fromkeys(("llama4", "llama4_text", "openai_privacy_filter"), _TURNED),
    **dict.fromkeys(("gemma4", "gemma4_text", "hy_v4", "inkling_text"), _LINEAR),
    "granitemoe_swa": _LINEAR,
    **dict.fromkeys(("qwen3_vl_moe", "qwen3_vl_moe_text"), _LINEAR),  # it takes turned ones too
    **dict.fromkeys(("granitemoe", "granitemoehybrid", "granitemoeshared"), _GRANITE),
}

# By projection and kind: the weights of all experts of a module, by their numbers.
Singles = dict[tuple[str, str], dict[int, Weight]]


class MadeStack(NamedTuple):
    """A stack, and the names of the weights that it is made of."""

    stack: Weight
    pieces: tuple[str, ...]


def joined_experts(
    weights: Mapping[str, Weight],
    written: Callable[[Weight], DType],
    read_model_types: Callable[[], frozenset[str]],
) -> Iterator[MadeStack]:
    """Yield the stacks of a model whose experts are all there, one by one."""
    modules = single_experts(weights)
    way = way_of(read_model_types()) if modules else None
    if way is None:
        return
    for module, found in modules.items():
        if _lacks_one(found):
            continue
        made = list(_stacks(module, found, way, written))
        if all(isinstance(one, MadeStack) and one.stack.name not in weights for one in made):
            yield from (one for one in made if isinstance(one, MadeStack))


def every_stack_of_singles(
    weights: Mapping[str, Weight],
    written: Callable[[Weight], DType],
    model_types: frozenset[str],
    names: StacksOf,
    *,
    in_codes: bool,
) -> Iterator[MadeStack]:
    """Yield the stacks of a model's single experts, of codes in their own where these are alike."""
    for module, found in single_experts(weights).items():
        projections = {projection for projection, _ in found}
        if names == "mlx-lm":
            inner = "experts" if "gpt_oss" in model_types else "switch_mlp"
            own = {n: f"{inner}.{n}.weight" for n in _APART}
            stacks = {n: of for n, of in _APART.items() if projections.issuperset(of)}
            way = Way(names=own, stacks=stacks, of_bias=".bias")
        else:
            way = way_of(model_types) or _LINEAR
            way = way if "gate" in projections else way._replace(stacks=_UNGATED)
        if _lacks_one(found):
            raise _apart(module, "an expert lacks one of its weights")
        for one in _stacks(module, found, way, written, in_codes=in_codes):
            if isinstance(one, str):
                raise _apart(module, one)
            if one.stack.name in weights:
                raise _apart(module, f"there is a weight {one.stack.name!r} already")
            yield one


def _apart(module: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{f'{module}.*'!r} cannot be put together: {why}",
        remedy="experts='keep' leaves them as they are",
    )


def single_experts(weights: Mapping[str, Weight]) -> dict[str, Singles]:
    """Return the single experts of a model, by the names of their modules."""
    modules: dict[str, Singles] = {}
    for name, weight in weights.items():
        if "experts." in name and (match := PIECE.fullmatch(name)):
            module, number, layer, kind = match.groups()
            experts = modules.setdefault(module, {}).setdefault((LAYERS[layer], kind), {})
            experts[int(number) if _NUMBER.fullmatch(number) else _UNNUMBERED] = weight
    return modules


def _lacks_one(found: Singles) -> bool:
    return len({frozenset(experts) for experts in found.values()}) > 1


def way_of(types: frozenset[str]) -> Way | None:
    """Return how a model of these types has its experts; None if they do not say it as one."""
    ways = [_WAYS[kind] for kind in types if kind in _WAYS]
    return ways[0] if ways and all(way == ways[0] for way in ways) else None


def _stacks(
    module: str,
    found: Singles,
    way: Way,
    written: Callable[[Weight], DType],
    *,
    in_codes: bool = False,
) -> Iterator[MadeStack | str]:
    """Yield the stacks of a module, or why one cannot be made."""
    head = module.removesuffix("experts")
    has_biases = any(kind == "bias" for _, kind in found)
    for kind in ("weight", "bias") if has_biases else ("weight",):
        for stack, projections in way.stacks.items():
            pieces = in_order([found.get((one, kind), {}) for one in projections])
            if isinstance(pieces, str):
                yield pieces
                continue
            if any(isinstance(piece, Edited) and piece.is_made for piece in pieces):
                yield "one of them is edited"
                continue
            if len({written(piece).name for piece in pieces}) > 1:
                yield "the pieces of a stack are of several dtypes"
                continue
            name = head + way.names[stack]
            if kind == "bias":
                made: Weight | None = _biases(way.bias(name), pieces, len(projections), way)
            elif in_codes and any(piece.own_dtype is None for piece in pieces):
                made = _of_codes(name, pieces, len(projections), way)
            else:
                made = _matrices(name, pieces, len(projections), way)
            why = "its weights are no matrices" if kind == "weight" else "its biases are no rows"
            yield why if made is None else MadeStack(made, tuple(piece.name for piece in pieces))


def in_order(found: list[dict[int, Weight]]) -> list[Weight] | str:
    """Return the pieces expert by expert; why not, if one is missing, or not as the others are."""
    if _UNNUMBERED in found[0]:
        name = shortened(found[0][_UNNUMBERED].name)
        return f"{name!r} has a number that is not one of 0, 1, 2, …"
    experts = range(len(found[0]))
    if not experts or any(set(one) != set(experts) for one in found):
        return "an expert is missing, or one of its layers"
    pieces = [one[i] for i in experts for one in found]
    if len({piece.shape for piece in pieces}) > 1 or 0 in pieces[0].shape:
        return "they are not all of one shape"
    return pieces


def _of_codes(name: str, pieces: list[Weight], per_matrix: int, way: Way) -> Weight | None:
    """Return a stack in the codes of its pieces, if these can be; else of what they decode to."""
    made = pieces[0].stacked(name, pieces, per_matrix, alternates=way.alternates)
    if made is None or (way.is_turned and not isinstance(made, TiledWeight)):
        return _matrices(name, pieces, per_matrix, way)
    return transposed(made) if way.is_turned else made


def _matrices(name: str, pieces: list[Weight], per_matrix: int, way: Way) -> Weight | None:
    if len(pieces[0].shape) != 2:
        return None
    made = joined(name, pieces, per_matrix, alternates=way.alternates)
    return transposed(made) if way.is_turned else made


def _biases(name: str, pieces: list[Weight], per_matrix: int, way: Way) -> Weight | None:
    """Return the rows of biases, each of which is a column until then."""
    if len(pieces[0].shape) != 1 or any(type(piece) is not Plain for piece in pieces):
        return None
    columns = [PlainMatrix(p.name, (*p.shape, 1), p.parts) for p in pieces]
    made = joined(name, columns, per_matrix, alternates=way.alternates)
    return Reshaped(name, made.shape[:2], made.parts, (made,))
