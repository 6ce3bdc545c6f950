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
from hashlib import sha256
from typing import Any

from anamnesis.base.dtypes import OUTPUT_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.lazy import np
from anamnesis.base.nearest import did_you_mean
from anamnesis.base.stored import StoredTensor
from anamnesis.convert.lora.adapter import Adapter, open_adapter
from anamnesis.convert.lora.deltas import Delta, Factor, MergedSource, Shelf
from anamnesis.convert.lora.experts import deltas_of_experts
from anamnesis.convert.lora.modules import Modules, flat_shape
from anamnesis.convert.plan.edits import replaced_by
from anamnesis.convert.request.request import Request
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.tied_heads import says_tied

_HEAD = "lm_head.weight"
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
        adapters.append((open_adapter(path, request.limits), weight))
        opened.callback(adapters[-1][0].container.source.close)
    return _Merge(ledger, request, config).made(adapters)


class _Merge:
    """A model and adapters on their way to other weights."""

    def __init__(self, ledger: Ledger, request: Request, config: Mapping[str, Any]) -> None:
        self.ledger = ledger
        self.request = request
        self.config = config
        self.modules = Modules(ledger)
        self.deltas: dict[str, list[Delta]] = {}
        self.whole: dict[str, StoredTensor] = {}
        self.shelf = Shelf()

    def made(self, adapters: list[tuple[Adapter, float]]) -> Ledger:
        """Return the account of the merged model."""
        for adapter, share in adapters:
            self._take(adapter, share)
        weights = dict(self.ledger.weights)
        for name, tensor in self.whole.items():
            weights[name] = replaced_by(weights[name], tensor, self.request)
        token = cache(partial(_token, adapters))
        for name, deltas in self.deltas.items():
            weight = weights[name]
            source = MergedSource(weight, deltas, weight.own_dtype, self.shelf)
            tensor = StoredTensor(name, _F32, weight.shape, source.size, 0, source)
            weights[name] = replaced_by(weight, tensor, self.request, token)
        return replace(self.ledger, weights=weights)

    def _take(self, adapter: Adapter, weight: float) -> None:
        for name, tensor in adapter.whole.items():
            self._replace(adapter, name, tensor)
        experts = deltas_of_experts(adapter, self.ledger, weight)
        for name, delta in experts.deltas:
            self._add(adapter, name, delta)
        others = [module for module in adapter.modules if module not in experts.taken]
        names = self.modules.of_adapter(adapter, others)
        changed = set(names.values())
        for module, name in names.items():
            for target in self._with_tied(name, changed):
                self._take_module(adapter, module, target, weight)

    def _add(self, adapter: Adapter, name: str, delta: Delta) -> None:
        self._weight(adapter, name)
        known = self.deltas.setdefault(name, [])
        if known and any(one.magnitude is not None for one in (*known, delta)):
            raise UnsupportedError(
                f"{adapter.name}: {name!r} gets several adapters, of which one is DoRA; merge them"
                " one after the other"
            )
        known.append(delta)

    def _with_tied(self, name: str, others: set[str]) -> list[str]:
        """Return a weight and, of tied embeddings, the head where it is stored too."""
        is_of_both = name.endswith("embed_tokens.weight") and _HEAD not in others
        is_tied = is_of_both and _HEAD in self.ledger.weights and says_tied(self.config)
        return [name, _HEAD] if is_tied else [name]

    def _weight(self, adapter: Adapter, name: str) -> Weight:
        if name in self.ledger.problems:
            raise self.ledger.problems[name]
        weight = self.ledger.weights[name]
        if weight.own_dtype is not None and weight.own_dtype.name not in _ADDED_TO:
            raise UnsupportedError(
                f"{adapter.name}: {name!r} is {weight.own_dtype}, to which nothing is added"
            )
        return weight

    def _take_module(self, adapter: Adapter, module: str, name: str, weight: float) -> None:
        """Take what one module of an adapter adds to a weight."""
        roles, base = adapter.modules[module], self._weight(adapter, name)
        left, right = adapter.factors(module)
        rank, made = left.shape[1], adapter.made(module)
        if right.shape[0] != rank or rank == 0 or made != flat_shape(base):
            raise adapter.error(
                f"the factors of {module!r} make {list(made)}, and {name!r} of the base is"
                f" {list(base.shape)}; is it an adapter of this model?"
            )
        # A parameter's product is rounded before, and patterns fit its name, as for experts.
        own = f".{module}.weight"
        is_parameter = any(own.endswith(f".{x}") for x in adapter.config(module).parameters())
        scale = weight * adapter.scale(module, rank, own[1:] if is_parameter else "")
        delta = Delta(
            left.values,
            right.values,
            scale,
            range(made[0]),
            is_rounded=("embedding_A" in roles or is_parameter) and "magnitude" not in roles,
            of_columns=left.tensor is not roles.get("B", roles.get("B_turned")),
        )
        self._check_parts(adapter, module, weight, made[delta.of_columns])
        if "magnitude" in roles:
            delta.magnitude = Factor(roles["magnitude"]).values
        self._add(adapter, name, delta)
        if "bias" in roles:
            self._add_bias(adapter, name, roles["bias"], scale)

    def _check_parts(self, adapter: Adapter, module: str, weight: float, n_norms: int) -> None:
        """Refuse parts of a module that its config contradicts, and magnitudes that do not fit."""
        roles = adapter.modules[module]
        for role, key in _SAID.items():
            said = adapter.config(module).flag(key)
            if said is not None and said != (role in roles):
                has = "a" if role in roles else "no"
                raise adapter.error(f"module {module!r} has {has} {role}, and {key} is {said}")
        magnitude = roles.get("magnitude")
        if magnitude is not None and magnitude.n_elements != n_norms:
            raise adapter.error(
                f"tensor {magnitude.name!r} is {list(magnitude.shape)}, for {n_norms:,} norms"
            )
        if magnitude is not None and weight != 1.0:
            raise UnsupportedError(f"{adapter.name}: DoRA is not merged with a weight")

    def _add_bias(self, adapter: Adapter, name: str, bias: StoredTensor, scale: float) -> None:
        own = name.removesuffix("weight") + "bias"
        base = self.ledger.weights.get(own)
        if base is None or base.shape != bias.shape or len(bias.shape) != 1:
            raise adapter.error(f"{bias.name!r} is added to a bias {own!r} that the base has not")
        one = np.ones((1, 1), np.float32)
        delta = Delta(Factor(bias).values, lambda: one, scale, range(bias.n_elements))
        self._add(adapter, own, delta)

    def _replace(self, adapter: Adapter, name: str, tensor: StoredTensor) -> None:
        """Take a whole tensor of an adapter in the place of the base's."""
        own = self.modules.of_tensor(name)
        if own is None:
            near = did_you_mean(name, self.ledger.weights)
            raise adapter.error(f"tensor {name!r} is no factor, and no weight of the base{near}")
        base = self._weight(adapter, own)
        if base.shape != tensor.shape:
            raise adapter.error(
                f"tensor {name!r} is {list(tensor.shape)}, and {own!r} of the base is"
                f" {list(base.shape)}"
            )
        if own in self.whole or own in self.deltas:
            raise adapter.error(
                f"tensor {name!r} replaces {own!r}, which another tensor or adapter changes;"
                " merge one after the other, or leave one out"
            )
        self.whole[own] = tensor


def _token(adapters: list[tuple[Adapter, float]]) -> str:
    """Return what tells these adapters from others, for runs that are resumed."""
    found = [
        (one.name, one.container.source.stamp(), [c.values for c in one.configs.values()], weight)
        for one, weight in adapters
    ]
    return sha256(repr(found).encode()).hexdigest()
