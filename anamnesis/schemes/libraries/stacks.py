"""Stacks of experts: a weight of several matrices, one for each expert of a layer.

transformers has the experts of a layer as parameters of one module, `experts.gate_up_proj` and
`experts.down_proj`: [experts, out, in], or in some models [experts, in, out]. No file says which,
but the one's inputs are the other's outputs, and the activations between them are half as wide.
Granite's files have older names for them. mlx-lm has a stack for each of three layers, under
`switch_mlp`, or `experts` in gpt-oss: always [experts, out, in].
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from anamnesis.schemes.core.layout import Shapes

_STACK = re.compile(r"(?:^|\.)experts\.(gate_up_proj|up_proj|down_proj)$")
_OTHERS = re.compile(r"(^|\.)experts\.(\w+_)?(proj|w[123])(\.weight)?$")
_ONE = re.compile(r"(?:^|\.)experts\.[0-9]+\.")
_GRANITE = re.compile(r"(^|\.)block_sparse_moe\.(input|output)_linear\.weight$")
_IN_GRANITE = {"input": "gate_up_proj", "output": "down_proj"}

_OF_MLX = re.compile(r"((?:.*\.)?)(?:switch_mlp|experts)\.((?:gate|up|down)_proj)\.weight")

# Types of models whose single experts have the layers w1, w3 and w2, as Mixtral's have.
OF_MIXTRAL = frozenset(
    {
        *("mixtral", "phimoe", "minimax", "minimax_m2", "minimax_m3_vl", "minimax_m3_vl_text"),
        *("lfm2_moe", "kimi_linear", "deepseek_v4", "mistral_large4_text"),
    }
)
_IN_MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


class Stacks(NamedTuple):
    """The stacks of one module."""

    projections: dict[str, str]
    orientation: Literal["linear", "transposed"] | None
    biases: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.projections.values())


def is_stack(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a weight is a stack of experts, by its name and its shape."""
    return len(shape) == 3 and _OTHERS.search(name) is not None


def is_of_an_expert(name: str) -> bool:
    """Return whether a weight belongs to a single expert; transformers stacks these as it loads."""
    return _ONE.search(name) is not None


def mlx_stack(name: str, shape: tuple[int, ...]) -> tuple[str, str] | None:
    """Return what is before the module of a stack of mlx-lm's, and its layer; None of others."""
    match = _OF_MLX.fullmatch(name) if len(shape) == 3 else None
    return None if match is None else (match[1], match[2])


def names_of_mixtral(layer: str) -> str:
    """Return the name of a layer of an expert as in Mixtral: w1.weight for gate_proj.weight."""
    first, dot, rest = layer.partition(".")
    return f"{_IN_MIXTRAL.get(first, first)}{dot}{rest}"


def stacks_of(shapes: Shapes) -> dict[str, Stacks]:
    """Return the stacks of a model's experts, by the names of their modules."""
    found: dict[str, dict[str, str]] = {}
    for name, shape in shapes.items():
        if len(shape) != 3:
            continue
        if match := _STACK.search(name):
            found.setdefault(name.rpartition(".")[0], {})[match[1]] = name
        elif match := _GRANITE.search(name):
            module = name.rsplit(".", 2)[0] + ".experts"
            found.setdefault(module, {})[_IN_GRANITE[match[2]]] = name
    return {
        module: Stacks(
            names,
            _orientation({proj: shapes[name] for proj, name in names.items()}),
            tuple(f"{name}_bias" for name in names.values() if f"{name}_bias" in shapes),
        )
        for module, names in found.items()
    }


def _orientation(shapes: Shapes) -> Literal["linear", "transposed"] | None:
    down = shapes.get("down_proj")
    first = "gate_up_proj" if "gate_up_proj" in shapes else "up_proj"
    if down is None or first not in shapes or shapes[first][0] != down[0]:
        return None
    _, outs, ins = shapes[first]
    wide = 2 if first == "gate_up_proj" else 1
    fits = (
        (outs, ins) == (wide * down[2], down[1]),
        (ins, outs) == (wide * down[1], down[2]),
    )
    if fits[0] == fits[1]:
        return None
    return "linear" if fits[0] else "transposed"
