"""Weights under other names and of other shapes, with the inverse of each."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from anamnesis.schemes.core.plain import Plain, PlainMatrix
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.ggml.weight import GgmlWeight
from anamnesis.schemes.views.gathered import Reshaped
from anamnesis.schemes.views.transposed import Transposed, tiled, transposed


def renamed(weight: Weight, name: str) -> Weight:
    """Return a weight under another name; what is one stored tensor has it as that too."""
    if weight.name == name:
        return weight
    if _is_lone(weight):
        stored = weight.parts[0]._replace(name=name)
        return replace(weight, name=name, parts=(stored,))
    return replace(weight, name=name)


def reshaped(weight: Weight, name: str, shape: tuple[int, ...]) -> Weight:
    """Return a weight of another shape, of as many values. Its inverse: the shape that it had."""
    if prod(shape) != weight.n_elements:
        raise ValueError(f"{weight.name} {list(weight.shape)} cannot be of shape {list(shape)}")
    if weight.shape == shape:
        return renamed(weight, name)
    if _is_lone(weight) and (shape[-1] if shape else 1) % weight.parts[0].dtype.block_elements == 0:
        stored = weight.parts[0]._replace(name=name, shape=shape)
        return replace(weight, name=name, shape=shape, parts=(stored,))
    if isinstance(weight, Reshaped):
        return reshaped(weight.pieces[0], name, shape)
    return Reshaped(name, shape, weight.parts, (weight,))


def turned(weight: Weight, name: str) -> Weight:
    """Return the transpose of a matrix, or of each of a stack: its own inverse."""
    if isinstance(weight, Transposed):
        return renamed(weight.stored, name)
    if len(weight.shape) < 2:
        raise ValueError(f"{weight.name} {list(weight.shape)} is no matrix")
    return transposed(tiled(weight), name)


def _is_lone(weight: Weight) -> bool:
    """Return whether a weight is a stored tensor, of which nothing else counts."""
    return type(weight) in (Plain, PlainMatrix, GgmlWeight)
