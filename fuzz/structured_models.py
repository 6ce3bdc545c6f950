"""Whole models in memory, of the rows of architectures: no bytes but names, shapes and facts.

They are those of `tests/architectures/recorded`, which llama.cpp's converter made GGUFs of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from anamnesis.architectures.config_of_keys import small_values
from anamnesis.architectures.from_gguf import tensors_as_hf
from anamnesis.architectures.to_gguf import tensors_as_gguf
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.sources.memory import BufferSource

__all__ = ["NAMES", "Model", "directory", "gguf", "ledger", "other", "seen"]

_FOLDER = Path(__file__).parents[1] / "tests/architectures/recorded"
_OTHERS = ("vocabularies", "gpt_oss_mxfp4")  # of whose experts the parts are stored
NAMES = sorted(path.stem for path in _FOLDER.glob("*.json") if path.stem not in _OTHERS)
_NONE = BufferSource(b"")
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Model:
    """A model: shapes of its tensors, and config.json or the metadata of a GGUF.

    Attributes
    ----------
    shapes : mapping of str to shape
    facts : mapping
    is_gguf : bool
    values : mapping of str to array
        Of the few tensors whose values count, such as a rope's.
    """

    shapes: Shapes
    facts: Mapping[str, Any]
    is_gguf: bool
    values: Mapping[str, Any]

    def with_shapes(self, shapes: Shapes) -> Model:
        return replace(self, shapes=shapes)

    def with_facts(self, facts: Mapping[str, Any]) -> Model:
        return replace(self, facts=facts)


@cache
def directory(name: str) -> Model:
    """Return a Hugging Face directory."""
    found = json.loads((_FOLDER / f"{name}.json").read_text())
    shapes = {tensor: tuple(shape) for tensor, _, shape in found["stored"]}
    return Model(shapes, json.loads(found["files"]["config.json"]), False, {})


@cache
def gguf(name: str) -> Model:
    """Return the GGUF of a directory."""
    found = json.loads((_FOLDER / f"{name}.json").read_text())
    shapes = {tensor: tuple(shape) for tensor, (_, shape, _) in found["tensors"].items()}
    keys = {key: _plain(told) for key, told in found["keys"].items()}
    first, _ = tensors_as_gguf(directory(name).facts, ledger(directory(name)))
    made = first.arch.extra(_facts(first.arch, directory(name).facts))
    return Model(shapes, keys, True, made)


def _facts(arch: Any, config: Mapping[str, Any]) -> Any:
    from anamnesis.architectures.model_facts import read_facts

    return read_facts(config, arch.model_type, arch.derived)


def _plain(told: Mapping[str, Any]) -> Any:
    return told["value"] if "value" in told else [""] * told["length"]


def ledger(model: Model, dtype: str = "F32") -> Ledger:
    """Return the account of a model's tensors."""
    weights: dict[str, Any] = {}
    for name, shape in model.shapes.items():
        raw = np.asarray(model.values.get(name, ()), "<f4").tobytes()
        source = BufferSource(raw) if raw else _NONE
        stored = StoredTensor(name, DTYPES[dtype], shape, len(raw) or 4 * prod(shape), 0, source)
        weights[name] = Plain(name, shape, (stored,))
    return Ledger({}, weights)


def other(model: Model) -> Model:
    """Return a model as the other one, as it would be read again."""
    if model.is_gguf:
        back = tensors_as_hf(ledger(model), model.facts)
        facts = json.loads(json.dumps(back.config, allow_nan=False))
        return Model(_shapes(back.ledger.weights), facts, False, {})
    there, _ = tensors_as_gguf(model.facts, ledger(model))
    weights = there.ledger.weights
    facts = {"general.architecture": there.arch.gguf}
    facts |= {key: _plain(told) for key, told in there.metadata.items()}
    values = {name: small_values(w) for name, w in weights.items() if name.startswith("rope_f")}
    return Model(_shapes(weights), facts, True, values)


def _shapes(weights: Mapping[str, Any]) -> Shapes:
    return {name: weight.shape for name, weight in weights.items()}


def seen(model: Model) -> tuple[Mapping[str, Any], Mapping[str, tuple[str, ...]], set[str]]:
    """Return the weights of a model as the other one, what they are made of, and what is left."""
    if model.is_gguf:
        back = tensors_as_hf(ledger(model), model.facts)
        return back.ledger.weights, back.names, {drop.name for drop in back.ledger.dropped}
    there, _ = tensors_as_gguf(model.facts, ledger(model))
    return there.ledger.weights, there.names, {drop.name for drop in there.ledger.dropped}


Make = Callable[[str], Model]
