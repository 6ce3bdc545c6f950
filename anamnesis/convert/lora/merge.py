"""Weights with what adapters add to them, as PEFT's `merge_and_unload` does.

A sum is of float32, each product in the order of its terms, and rounded once to the dtype of the
base; of experts' stacks the product is rounded before, as PEFT does. A quantised base has no dtype:
what is added to what it decodes to is encoded anew, or rounded to what is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from glob import escape
from hashlib import sha256
from typing import Any

from anamnesis.base.dtypes import OUTPUT_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.lazy import np
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.lora.adapter import BASE_LAYER, Adapter, open_adapter
from anamnesis.convert.lora.deltas import Delta, MergedSource, Shelf, as_matrix, matrix, values_of
from anamnesis.convert.lora.experts import deltas_of_experts
from anamnesis.convert.lora.names import Names, Tied, module_of
from anamnesis.convert.plan.edits import digest_of, replaced_by
from anamnesis.convert.request.request import Request
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.orientation import conv1d_layers

_F32 = OUTPUT_DTYPES["f32"]
_ADDED_TO = {dtype.name for dtype in OUTPUT_DTYPES.values()}
# Parts of modules that flags of a config speak of.
_SAID = {"magnitude": "use_dora", "bias": "lora_bias"}


def merged(
    ledger: Ledger, request: Request, config: Mapping[str, Any], opened: ExitStack
) -> Ledger:
    """Return the weights of a model with what the adapters of a request add to them."""
    adapters = []
    for path, weight in request.lora.items():
        adapters.append(open_adapter(path, weight, request.limits))
        opened.callback(adapters[-1].container.source.close)
    return _Merge(ledger, request, config).made(adapters)


def merged_as_stored(
    checkpoint: Checkpoint, ledger: Ledger, request: Request, opened: ExitStack
) -> tuple[Ledger, Request]:
    """Return the weights of a GGUF under its own names, with what is added to transformers'."""
    from anamnesis.architectures.from_gguf import tensors_as_hf
    from anamnesis.architectures.operations import ValuesSource
    from anamnesis.architectures.to_gguf import tensors_as_gguf
    from anamnesis.convert.request.targets import encoding

    before = tensors_as_hf(ledger, next(iter(checkpoint.shards.values())).metadata)
    after = merged(before.ledger, request, before.config, opened)
    back, _ = tensors_as_gguf(before.config, after)
    weights, old, new = dict(ledger.weights), before.ledger.weights, after.weights
    types = list(request.overrides)
    for name, of in back.names.items():
        if all(new[one] is old[one] for one in of):
            continue
        weight, token = weights[name], cache(partial(_ids, [new[one] for one in of]))
        tensor = _values(weight, ValuesSource(back.ledger.weights[name]))
        weights[name] = replaced_by(weight, tensor, request, token)
        # What was in blocks is asked for in blocks of its own type, if nothing else is.
        if weight.own_dtype is None and request.keep_blocks and request.encoding is None:
            types.append((escape(name), encoding(f"gguf-{weight.parts[0].dtype.name.lower()}")))
    return replace(ledger, weights=weights), replace(request, overrides=tuple(types))


class _Merge:
    """A model and adapters on their way to other weights."""

    def __init__(self, ledger: Ledger, request: Request, config: Mapping[str, Any]) -> None:
        self.ledger = ledger
        self.request = request
        self.tied = Tied(ledger, config)
        self.names = Names(ledger, self.tied)
        self.conv1d = conv1d_layers(ledger)
        self.deltas: dict[str, list[Delta]] = {}
        self.whole: dict[str, StoredTensor] = {}
        self.shelf = Shelf()

    def made(self, adapters: list[Adapter]) -> Ledger:
        """Return the account of the merged model."""
        for adapter in adapters:
            deltas, taken = deltas_of_experts(adapter, self.ledger, self.names)
            for name, delta in deltas:
                self._add(adapter, name, delta)
            modules = [module for module in adapter.modules if module not in taken]
            asked = dict.fromkeys([*modules, *map(module_of, adapter.whole)])
            names = self.names.of_adapter(adapter, asked)
            self._check_tied(adapter, names)
            for name, tensor in adapter.whole.items():
                self._replace(adapter, names[module_of(name)], tensor)
            # PEFT merges the head last.
            for module in sorted(modules, key=lambda module: module == self.tied.head):
                name = names[module]
                for one in (name in self.tied.stored and self.tied.twins) or (name,):
                    self._take_module(adapter, module, one)
        weights, token = dict(self.ledger.weights), cache(partial(_token, adapters))
        for name, tensor in self.whole.items():
            weights[name] = replaced_by(weights[name], tensor, self.request, token)
        for name, added in self.deltas.items():
            weight = weights[name]
            tensor = _values(weight, MergedSource(weight, added, self.shelf))
            weights[name] = replaced_by(weight, tensor, self.request, token)
        return replace(self.ledger, weights=weights)

    def _add(self, adapter: Adapter, name: str, delta: Delta) -> None:
        self._weight(adapter, name)
        known = self.deltas.setdefault(name, [])
        if known and any(one.magnitude is not None for one in (*known, delta)):
            raise UnsupportedError(
                f"{adapter.name}: {name!r} gets several adapters, one of them DoRA; merge them"
                " one after the other"
            )
        known.append(delta)

    def _weight(self, adapter: Adapter, name: str) -> Weight:
        if name in self.ledger.problems:
            raise self.ledger.problems[name]
        weight = self.ledger.weights[name]
        if weight.own_dtype is not None and weight.own_dtype.name not in _ADDED_TO:
            raise UnsupportedError(
                f"{adapter.name}: {name!r} is {weight.own_dtype}, to which nothing can be added"
            )
        return weight

    def _take_module(self, adapter: Adapter, module: str, name: str) -> None:
        """Take what one module of an adapter adds to a weight."""
        roles, config = adapter.modules[module], adapter.config(module)
        base = self._weight(adapter, name)
        # A parameter's product lies as the parameter does and is rounded before it is added, and
        # patterns fit its name, as for experts.
        own = f".{module}.weight"
        is_parameter = any(own.endswith(f".{one}") for one in config.parameters)
        # PEFT turns what is a Conv1D: its config has the flag of the layer that it adapted last.
        shape, is_conv1d = as_matrix(base.shape), None if is_parameter else self.conv1d.get(name)
        if name not in self.conv1d and adapter.made(module, False) == shape:
            is_conv1d = False
        left, right, is_turned = adapter.factors(module, is_conv1d)
        rank, made = left.shape[1], (left.shape[0], right.shape[1])
        if right.shape[0] != rank or rank == 0 or made != shape:
            raise adapter.error(
                f"the factors of {module!r} make {list(made)}, but {name!r} of the base is"
                f" {list(base.shape)}; is it an adapter of this model?"
            )
        scale = adapter.scale(module, rank, own[1:] if is_parameter else "")
        delta = Delta.of(left, right, scale, range(made[0]))
        delta.of_columns = is_turned
        self._check_parts(adapter, module, made[is_turned])
        if "magnitude" in roles:
            delta.magnitude = partial(values_of, roles["magnitude"])
        else:
            delta.is_rounded = "embedding_A" in roles or is_parameter or config.is_rounded
        self._add(adapter, name, delta)
        bias = roles.get("bias")
        if bias is not None:
            own = name.removesuffix("weight") + "bias"
            of_base = self.ledger.weights.get(own)
            if of_base is None or of_base.shape != bias.shape or len(bias.shape) != 1:
                what = f"is for a bias {own!r} that the base lacks"
                raise adapter.error(f"{bias.name!r} {what}")
            one = np.ones((1, 1), np.float32)
            values = partial(values_of, matrix(bias))
            add = Delta(values, lambda: one, scale, range(bias.n_elements), 1)
            self._add(adapter, own, add)

    def _check_parts(self, adapter: Adapter, module: str, n_norms: int) -> None:
        """Refuse parts of a module that its config contradicts, and magnitudes that do not fit."""
        roles = adapter.modules[module]
        for role, key in _SAID.items():
            said = adapter.config(module).values.get(key)
            if said is not None and said != (role in roles):
                has = "a" if role in roles else "no"
                raise adapter.error(f"module {module!r} has {has} {role}, but {key} is {said}")
        magnitude = roles.get("magnitude")
        if magnitude is None:
            return
        if magnitude.n_elements != n_norms:
            raise adapter.error(
                f"tensor {magnitude.name!r} is {list(magnitude.shape)}, for {n_norms:,} norms"
            )
        if adapter.weight != 1.0:
            raise UnsupportedError(f"{adapter.name}: DoRA cannot be merged with a weight")

    def _check_tied(self, adapter: Adapter, names: Mapping[str, str]) -> None:
        """Refuse the head or the embeddings alone, saved whole, as they are one in the base."""
        if self.tied.has_head:
            return
        whole = {
            name
            for name, tensor in adapter.whole.items()
            if names[module_of(name)] in self.tied.stored and BASE_LAYER not in tensor.name
        }
        if len(whole) == 1 and not adapter.config(min(whole)).values.get("ensure_weight_tying"):
            raise UnsupportedError(
                f"{adapter.name}: has only {min(whole)!r}; PEFT leaves what is tied to it"
                " (the head, or the embeddings) unchanged",
                remedy="set ensure_weight_tying in the LoraConfig, and train again",
            )

    def _replace(self, adapter: Adapter, own: str, tensor: StoredTensor) -> None:
        """Take a whole tensor of an adapter in the place of the base's."""
        base, known = self._weight(adapter, own), self.whole.get(own)
        if base.shape != tensor.shape:
            raise adapter.error(
                f"tensor {tensor.name!r} is {list(tensor.shape)}, but {own!r} of the base is"
                f" {list(base.shape)}"
            )
        if known is not None and known.source is tensor.source:
            if digest_of(known)() == digest_of(tensor)():
                return
            raise UnsupportedError(
                f"{adapter.name}: tensors {known.name!r} and {tensor.name!r} differ, but are one in"
                " the base, whose config.json ties the head",
                remedy="store the base's head, set tie_word_embeddings to false there, and merge",
            )
        if known is not None or own in self.deltas:
            raise adapter.error(
                f"tensor {tensor.name!r} replaces {own!r}, which another tensor or adapter changes;"
                " merge one after the other, or leave one out"
            )
        self.whole[own] = tensor


def _values(weight: Weight, source: Source) -> StoredTensor:
    """Return the float32 values of a weight, which a source makes."""
    return StoredTensor(weight.name, _F32, weight.shape, source.size, 0, source)


def _ids(weights: list[Weight]) -> str:
    return " ".join([weight.id for weight in weights])


def _token(adapters: list[Adapter]) -> str:
    """Return what tells these adapters from others, for runs that are resumed."""
    found = []
    for one in adapters:
        configs = [config.values for config in one.configs.values()]
        found.append((one.name, one.container.source.stamp(), configs, one.weight))
    return sha256(repr(found).encode()).hexdigest()
