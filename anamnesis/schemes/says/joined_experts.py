"""Experts that are stored one by one, put together as stacks again.

    N.gate_proj.weight, N.up_proj.weight [inner, outer]    gate_up_proj  [experts, 2 * inner, outer]
    N.down_proj.weight                   [outer, inner]    down_proj     [experts, outer, inner]

That is so where transformers has stacks in files too, and joins no single experts when it loads
them: it would make new ones. How a model's stacks lie is in the classes of its `modeling_….py`,
and in `conversion_mapping.py` where files have other names or another orientation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.edited import Edited
from anamnesis.schemes.core.plain import Plain, PlainMatrix
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.parts.joined import Joined

__all__ = ["joined_experts"]

_PIECE = re.compile(r"((?:.*\.)?experts)\.(0|[1-9][0-9]*)\.(gate|up|down)_proj\.(weight|bias)")
_USUAL = {"gate_up_proj": "experts.gate_up_proj", "down_proj": "experts.down_proj"}
_STACKS = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}


class _Way(NamedTuple):
    """How transformers stacks a model's experts.

    Attributes
    ----------
    is_turned : bool
        Whether stacks are [experts, in, out].
    alternates : bool
        Whether outputs of gate and of up take turns; else those of the gate come first.
    names : dict of str to str
        What stacks are called, beside the module of the experts.
    """

    is_turned: bool = False
    alternates: bool = False
    names: Mapping[str, str] = _USUAL


_LINEAR, _TURNED = _Way(), _Way(is_turned=True)
_GRANITE = _Way(names={"gate_up_proj": "input_linear.weight", "down_proj": "output_linear.weight"})

# By the type of the model, or of the section of its config that has experts.
_WAYS = {
    "gpt_oss": _Way(is_turned=True, alternates=True),
    **dict.fromkeys(("llama4", "llama4_text", "openai_privacy_filter"), _TURNED),
    **dict.fromkeys(("gemma4", "gemma4_text", "hy_v4", "inkling_text"), _LINEAR),
    "granitemoe_swa": _LINEAR,
    **dict.fromkeys(("qwen3_vl_moe", "qwen3_vl_moe_text"), _LINEAR),  # it takes turned ones too
    **dict.fromkeys(("granitemoe", "granitemoehybrid", "granitemoeshared"), _GRANITE),
}

# By projection and kind: the weights of all experts of a module, by their numbers.
_Found = dict[tuple[str, str], dict[int, Weight]]


def joined_experts(
    weights: Mapping[str, Weight],
    written: Callable[[Weight], DType],
    read_model_types: Callable[[], frozenset[str]],
) -> Iterator[Joined]:
    """Yield the stacks of a model whose experts are all there, one by one.

    Parameters
    ----------
    weights : mapping of str to Weight
        All of the model.
    written : function
        Returns the dtype that a weight is written in; that of a stack's pieces must be one.
    read_model_types : function
        Returns the types that config.json says the model and its sections are of.
    """
    modules: dict[str, _Found] = {}
    way: _Way | None = None
    for name, weight in weights.items():
        if "experts." in name and (match := _PIECE.fullmatch(name)):
            way = way or _way_of(read_model_types())
            if way is None:
                return
            module, number, projection, kind = match.groups()
            experts = modules.setdefault(module, {}).setdefault((projection, kind), {})
            experts[int(number)] = weight
    if way is None:  # there are none one by one
        return
    for module, found in modules.items():
        if len({frozenset(experts) for experts in found.values()}) > 1:
            continue  # an expert lacks one of its weights
        made = list(_stacks(module, found, way, written))
        if all(one is not None and one.name not in weights for one in made):
            yield from (one for one in made if one is not None)


def _way_of(types: frozenset[str]) -> _Way | None:
    """Return how a model of these types has its experts; None if they do not say it as one."""
    ways = [_WAYS[kind] for kind in types if kind in _WAYS]
    return ways[0] if ways and all(way == ways[0] for way in ways) else None


def _stacks(
    module: str, found: _Found, way: _Way, written: Callable[[Weight], DType]
) -> Iterator[Joined | None]:
    """Yield the stacks of a module; None for one that cannot be made of what is there."""
    head = module.removesuffix("experts")
    has_biases = any(kind == "bias" for _, kind in found)
    for kind in ("weight", "bias") if has_biases else ("weight",):
        for stack, projections in _STACKS.items():
            pieces = _in_order([found.get((one, kind), {}) for one in projections])
            if pieces is None or len({written(piece).name for piece in pieces}) > 1:
                yield None
                continue
            name = head + way.names[stack]
            joined = _biases if kind == "bias" else _matrices
            yield joined(name, pieces, len(projections), way)


def _in_order(found: list[dict[int, Weight]]) -> list[Weight] | None:
    """Return the pieces expert by expert; None if one is missing, or is not as the others are."""
    experts = range(len(found[0]))
    if not experts or any(set(one) != set(experts) for one in found):
        return None
    pieces = [one[i] for i in experts for one in found]
    is_edited = any(isinstance(piece, Edited) for piece in pieces)
    is_uneven = len({piece.shape for piece in pieces}) > 1 or 0 in pieces[0].shape
    return None if is_edited or is_uneven else pieces


def _matrices(name: str, pieces: list[Weight], per_matrix: int, way: _Way) -> Joined | None:
    if len(pieces[0].shape) != 2:
        return None
    rows, cols = pieces[0].shape
    matrix = (cols, per_matrix * rows) if way.is_turned else (per_matrix * rows, cols)
    shape = (len(pieces) // per_matrix, *matrix)
    tiled = [PlainMatrix(p.name, p.shape, p.parts) if type(p) is Plain else p for p in pieces]
    return Joined(
        name, shape, _parts(pieces), tuple(tiled), per_matrix, way.alternates, way.is_turned
    )


def _biases(name: str, pieces: list[Weight], per_matrix: int, way: _Way) -> Joined | None:
    """Return the rows of biases; each is a column that is turned."""
    if len(pieces[0].shape) != 1 or any(type(piece) is not Plain for piece in pieces):
        return None
    shape = (len(pieces) // per_matrix, per_matrix * pieces[0].shape[0])
    columns = tuple(PlainMatrix(p.name, (*p.shape, 1), p.parts) for p in pieces)
    return Joined(
        f"{name}_bias", shape, _parts(pieces), columns, per_matrix, way.alternates, is_turned=True
    )


def _parts(pieces: list[Weight]) -> tuple[StoredTensor, ...]:
    return tuple(part for piece in pieces for part in piece.parts)
