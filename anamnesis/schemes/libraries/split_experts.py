"""Stacks of experts as matrices, as tools save them, or as is asked.

    gate_up_proj  [experts, 2 * inner, outer]    N.gate_proj.weight, N.up_proj.weight [inner, outer]
    down_proj     [experts, outer, inner]        N.down_proj.weight                   [outer, inner]

under the name of the stack's module, whether the stack is [experts, out, in] or [experts, in, out];
biases are taken apart with them. Outputs of `gate_up_proj` are those of the gate and then those of
`up_proj`; in gpt-oss they alternate. Nothing is read or copied here: a matrix is a piece of the
stack where that lies, or is turned tile by tile. Where there are no gates, shapes tell nothing, and
such stacks are in no file that transformers saves.

    switch_mlp.gate_proj.weight  [experts, inner, outer]       experts.N.gate_proj.weight

are MLX's, `experts.gate_proj.weight` in gpt-oss. Nobody's tool takes them apart, nor codes. Where
that is asked for, codes and scales are cut where they lie. Some models' single experts are `w1`,
`w3` and `w2`, of Mixtral's kind.

What is taken apart is what llm-compressor's `linearize_moe` does, and ModelOpt's
`_export_fused_experts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Cut
from anamnesis.schemes.core.layout import ExpertsTool
from anamnesis.schemes.core.plain import Edited, Plain, PlainColumns
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.libraries.stacks import (
    OF_MIXTRAL,
    Stacks,
    is_stack,
    mlx_stack,
    names_of_mixtral,
    stacks_of,
)
from anamnesis.schemes.views.stacks import rows_of
from anamnesis.schemes.views.transposed import Transposed, transposed

IN_CODES = "a stack of experts in codes"  # why a tool leaves one that it sees so

# Values of an expert in a stack. A plan has some kilobytes for each, and a hostile stack one value.
_FEWEST = 256


class _Ways(NamedTuple):
    """Which stacks a tool takes apart, beside those that are [experts, out, in] without biases."""

    transposed: frozenset[str] | None
    alternating: Mapping[str, bool]

    def alternates(self, model_types: frozenset[str]) -> bool | None:
        """Return whether outputs of gates and others take turns; None if no type says it."""
        said = (turns for kind, turns in self.alternating.items() if kind in model_types)
        return next(said, None)


# ModelOpt has classes of its own for Llama 4 and gpt-oss, which stay stacked; of Qwen3-VL it sees
# what transformers turns when it loads that.
_WAYS: dict[ExpertsTool, _Ways] = {
    "llm-compressor": _Ways(None, {"gpt_oss": True, "openai_privacy_filter": False}),
    "ModelOpt": _Ways(frozenset({"qwen3_vl_moe", "qwen3_vl_moe_text"}), {}),
}


class _Layer(NamedTuple):
    """A layer of an expert, and which outputs of a stack are its own."""

    name: str
    first: int
    n: int
    step: int = 1


@dataclass(frozen=True)
class StackedExperts:
    """The stacks of one module, and what a tool makes of them."""

    names: tuple[str, ...]
    why_not: str | None
    _module: str = ""
    _is_transposed: bool = False
    _layers: Mapping[str, tuple[_Layer, ...]] = field(default_factory=dict)  # by weights' names
    _as_mixtral: bool = False

    def taken_apart(self, weights: Mapping[str, Weight]) -> dict[str, list[Weight]]:
        """Return what becomes of each weight, by its name: matrices, or biases, of all experts."""
        return {name: list(self._pieces(weights[name])) for name in self.names}

    def _pieces(self, weight: Weight) -> Iterator[Weight]:
        is_codes, stored = not _is_floats(weight), weight
        if is_codes and isinstance(weight, Edited):
            raise _uncut(weight.name, f"it is {weight.scheme}, edited")
        if is_codes and isinstance(weight, Transposed) is not self._is_transposed:
            raise _uncut(weight.name, "its codes are [experts, in, out]")
        if isinstance(weight, Transposed):
            stored = weight.stored
        make = _turned if self._is_transposed and len(weight.shape) > 2 else _rows
        for expert in range(weight.shape[0]):
            for layer in self._layers[weight.name]:
                own = names_of_mixtral(layer.name) if self._as_mixtral else layer.name
                name = f"{self._module}.{expert}.{own}"
                if not is_codes:
                    yield make(name, weight.parts[0], expert, layer)
                    continue
                made = stored.cut_out(name, Cut(expert, layer.first, layer.n, layer.step))
                if made is None:
                    raise _uncut(weight.name, f"{weight.scheme} cannot be cut between its rows")
                yield made


def stacked_experts(
    weights: Mapping[str, Weight],
    tool: ExpertsTool,
    read_model_types: Callable[[], frozenset[str]],
    *,
    in_codes: bool = False,
) -> Iterator[StackedExperts]:
    """Yield the stacks of a model's experts, module by module."""
    found = stacks_of({name: weight.shape for name, weight in weights.items()})
    if not found:
        return
    inside, model_types, ways = _inside(weights), read_model_types(), _WAYS[tool]
    alternates = ways.alternates(model_types)
    is_taken = ways.transposed is None or ways.transposed & model_types
    for module, stacks in found.items():
        names, own = (*stacks.names, *stacks.biases), [weights[name] for name in stacks.names]
        if any(0 in weight.shape for weight in own):
            why: str | None = "no values"
        elif not in_codes and not all(map(_is_floats, own)):
            why = IN_CODES
        elif stacks.biases and alternates is None and not ways.alternating:
            why = "experts with biases"
        else:
            why = _why_nobody(stacks, weights, alternates)
        if why is None and stacks.orientation == "transposed" and not is_taken:
            why = f"experts that are [in, out], which {tool} keeps stacked"
        if why is None and not inside.get(module, set()) <= set(names):
            why = "experts that have more than projections"
        if why is not None:
            yield StackedExperts(stacks.names, why)
            continue
        layers = dict(_layers(stacks, weights, bool(alternates)))
        yield StackedExperts(names, None, module, stacks.orientation == "transposed", layers)


def every_stack(
    weights: Mapping[str, Weight], model_types: frozenset[str]
) -> Iterator[StackedExperts]:
    """Yield the stacks of a model's experts, whoever has them so, in values or in codes."""
    known: set[str] = set()
    as_mixtral = bool(OF_MIXTRAL & model_types)
    alternates = _WAYS["llm-compressor"].alternates(model_types)  # what is known of any stack
    for module, stacks in stacks_of({name: w.shape for name, w in weights.items()}).items():
        names = (*stacks.names, *stacks.biases)
        why = _why_nobody(stacks, weights, alternates)
        if why is not None:
            raise _uncut(stacks.names[0], why)
        layers = dict(_layers(stacks, weights, bool(alternates)))
        is_turned = stacks.orientation == "transposed"
        yield StackedExperts(names, None, module, is_turned, layers, as_mixtral)
        known.update(names)
    for name, weight in weights.items():
        place = mlx_stack(name, weight.shape)
        if place is not None:  # a stack of one layer, with its bias if there is one
            head, layer = place
            parts = {name: _Layer(f"{layer}.weight", 0, weight.shape[1])}
            bias = f"{name.removesuffix('weight')}bias"
            if bias in weights:
                parts[bias] = _Layer(f"{layer}.bias", 0, weights[bias].shape[-1])
            own = {stored: (part,) for stored, part in parts.items()}
            yield StackedExperts(
                tuple(parts), None, f"{head}experts", _layers=own, _as_mixtral=as_mixtral
            )
            known.update(parts)
    for name, weight in weights.items():
        if name not in known and is_stack(name, weight.shape):
            raise _uncut(name, "its name is none that is known of a stack")


def _uncut(name: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name!r} cannot be taken apart: {why}", remedy="experts='keep' leaves them as they are"
    )


def _inside(weights: Mapping[str, Weight]) -> dict[str, set[str]]:
    """Return the names of layers and norms in modules of experts, by the names of these."""
    found: dict[str, set[str]] = {}
    for name in weights:
        head, experts, rest = name.rpartition("experts.")
        if experts and rest.endswith(".weight"):
            found.setdefault(f"{head}experts", set()).add(name)
    return found


def _why_nobody(
    stacks: Stacks, weights: Mapping[str, Weight], alternates: bool | None
) -> str | None:
    """Return why nobody could take the stacks of a module apart."""
    if any(0 in weights[name].shape for name in stacks.names):
        return "no values"
    if stacks.biases and alternates is None:
        return "experts with biases, of a model_type that is not known"
    if stacks.biases and not _fit(stacks, weights):
        return "experts whose biases do not fit them"
    if stacks.orientation is None:
        return "experts that may be [in, out]"
    if any(prod(weights[name].shape[1:]) < _FEWEST for name in stacks.names):
        return f"experts of fewer than {_FEWEST} values"
    return None


def _is_floats(weight: Weight) -> bool:
    dtype = weight.own_dtype
    return isinstance(weight, Plain) and dtype is not None and dtype.kind == "float"


def _fit(stacks: Stacks, weights: Mapping[str, Weight]) -> bool:
    for name in stacks.names:
        experts, *sizes = weights[name].shape
        bias = weights.get(f"{name}_bias")
        n_outs = sizes[stacks.orientation == "transposed"]
        if bias is None or not _is_floats(bias) or bias.shape != (experts, n_outs):
            return False
    return True


def _layers(
    stacks: Stacks, weights: Mapping[str, Weight], alternates: bool
) -> Iterator[tuple[str, tuple[_Layer, ...]]]:
    for projection, name in stacks.projections.items():
        n_outs = weights[name].shape[2 if stacks.orientation == "transposed" else 1]
        half, step = n_outs // 2, 2 if alternates else 1
        for stored, kind in ((name, "weight"), (f"{name}_bias", "bias")):
            if projection != "gate_up_proj":
                yield stored, (_Layer(f"{projection}.{kind}", 0, n_outs),)
                continue
            gate = _Layer(f"gate_proj.{kind}", 0, half, step)
            up = _Layer(f"up_proj.{kind}", 1 if alternates else half, half, step)
            yield stored, (gate, up)


def _rows(name: str, stack: StoredTensor, expert: int, layer: _Layer) -> Weight:
    """Return some rows of a matrix, or values of a bias."""
    n, height, *rest = stack.shape
    own = rows_of(stack, n, height, Cut(expert, layer.first, layer.n, layer.step))
    shape = (layer.n, *rest)
    return Plain(name, shape, (own._replace(shape=shape),))


def _turned(name: str, stack: StoredTensor, expert: int, layer: _Layer) -> Weight:
    n, rows, _ = stack.shape
    own = rows_of(stack, n, rows, Cut(expert, 0, rows))
    shape = (rows, layer.n)
    return transposed(PlainColumns(name, shape, (own,), layer.first, layer.step))
