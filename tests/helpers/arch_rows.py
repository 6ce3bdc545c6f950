"""A tiny model of an architecture, taken to llama.cpp's tensors by its row, and back again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.architectures.arch import Arch, groups
from anamnesis.architectures.keys import model_keys
from anamnesis.architectures.model_facts import Facts, read_facts
from anamnesis.architectures.operations import renamed
from anamnesis.architectures.registry import arch_of_class
from anamnesis.base.dtypes import OUTPUT_DTYPES
from anamnesis.base.levels import resolve_level
from anamnesis.schemes.core.arrays import decode
from anamnesis.schemes.core.weight import Weight
from helpers.handmade import write_safetensors

__all__ = ["PUBLISHED", "Taken", "facts_of", "keys_of", "published", "taken"]

PUBLISHED = Path(__file__).parents[1] / "architectures/published.json"
Floats = NDArray[np.float32]


class Taken(NamedTuple):
    """What became of a model.

    Attributes
    ----------
    hf, gguf, back : dict of str to array
        As it was, as llama.cpp has it, and that as Hugging Face has it.
    left : set of str
        What llama.cpp does not take.
    """

    hf: dict[str, Floats]
    gguf: dict[str, Floats]
    back: dict[str, Floats]
    left: set[str]


def published(name: str) -> dict[str, Any]:
    """Return the config.json of a published model."""
    config: dict[str, Any] = json.loads(PUBLISHED.read_text())[name]["config"]
    return config


def facts_of(config: Mapping[str, Any]) -> tuple[Arch, Facts]:
    """Return the row of a model, and its facts."""
    arch = arch_of_class(config)
    return arch, read_facts(config, arch.model_type, arch.derived)


def keys_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of keys behind the architecture's name."""
    arch, facts = facts_of(config)
    keys = model_keys(arch, facts)
    return {name.removeprefix(f"{arch.gguf}."): key["value"] for name, key in keys.items()}


def taken(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Taken:
    """Make a model of random values, and take it there and back.

    Raises
    ------
    AssertionError
        If no rule claims a tensor.
    """
    rng = np.random.default_rng(7)
    hf = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    entries = {name: ("F32", list(a.shape), a.tobytes()) for name, a in hf.items()}
    write_safetensors(folder / "model.safetensors", entries)
    arch, facts = facts_of(config)
    weights = an.parse(folder / "model.safetensors")._ledger.weights
    facts.names = frozenset(weights)
    left = {name for name in weights if arch.left(facts, name)}
    found, unclaimed = groups((name for name in weights if name not in left), arch.rules)
    assert unclaimed == []
    there: dict[str, Floats] = {}
    back: dict[str, Floats] = {}
    for rule, names, new in found:
        made = [weights[name] for name in names]
        for op in rule.ops:
            made = op.there(made, facts)
        there |= _values(new, made)
        made = [renamed(w, name) for name, w in zip(new, made, strict=True)]
        for op in reversed(rule.ops):
            made = op.back(made, facts)
        back |= _values(names, made)
    return Taken(hf, there, back, left)


def _values(names: Iterable[str], weights: Iterable[Weight]) -> dict[str, Floats]:
    pairs = zip(names, weights, strict=True)
    return {n: decode(w, OUTPUT_DTYPES["f32"], None, 1, resolve_level(None)) for n, w in pairs}
