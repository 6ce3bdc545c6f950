"""Orphans: parts that belong to no weight, such as scales without codes."""

from __future__ import annotations

from collections.abc import Mapping

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.detect import not_weights
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.unread import missing_parts, name_encoding, refuse_encoding


def refuse_orphans(ledger: Ledger, facts: QuantFacts) -> None:
    """Refuse parts of weights that no scheme took, and the codes beside all parts refused."""
    is_declared = facts.declared is not None
    parts = [
        tensor
        for tensor in [*map(ledger.stored.__getitem__, ledger.problems), *ledger.free()]
        if tensor.name not in ledger.apart
        and not_weights.is_auxiliary(tensor, ledger.stored, is_declared=is_declared)
    ]
    modules = {not_weights.module_of(tensor.name) for tensor in parts}
    if not modules and not facts.declared:
        return
    unread = [tensor for tensor in parts if tensor.name not in ledger.problems]
    names = {tensor.name for tensor in unread}
    unread += [
        tensor
        for tensor in ledger.free()
        if tensor.name not in names
        and not_weights.looks_like_codes(tensor)
        and (facts.declared or not_weights.module_of(tensor.name) in modules)
    ]
    weights = ledger.weights.values() if modules else ()
    retracted = [w for w in weights if not_weights.module_of(w.name) in modules]
    errors = _Unread(ledger, facts, [*unread, *(part for w in retracted for part in w.parts)])
    for tensor in unread:
        ledger.refuse([tensor.name], errors.of(tensor))
    for weight in retracted:
        ledger.retract(weight, errors.of(weight.parts[0]))


class _Unread:
    """Says of each tensor that cannot be read what it is a part of, once for each weight."""

    def __init__(self, ledger: Ledger, facts: QuantFacts, unread: list[StoredTensor]) -> None:
        self._ledger = ledger
        self._facts = facts
        self._weights: dict[str, dict[str, StoredTensor]] = {}
        self._errors: dict[str, AnamnesisError] = {}
        refused = map(ledger.stored.__getitem__, ledger.problems)
        for tensor in (*refused, *unread):
            weight = not_weights.weight_of(tensor.name, ledger.stored)
            end = tensor.name.removeprefix(weight)
            end = end[1:] if end.startswith(".") else end.lstrip("_") or "weight"
            self._weights.setdefault(weight, {})[end] = tensor

    def of(self, tensor: StoredTensor) -> AnamnesisError:
        weight = not_weights.weight_of(tensor.name, self._ledger.stored)
        if weight not in self._errors:
            self._errors[weight] = self._error(weight, self._weights[weight])
        return self._errors[weight]

    def _error(self, weight: str, parts: Mapping[str, StoredTensor]) -> AnamnesisError:
        """Return what is wrong with a weight: what a scheme says of it, if one does."""
        problems = self._ledger.problems
        for error in (problems.get(part.name) for part in parts.values()):
            if isinstance(error, UnsupportedError) and error.encoding:
                return error
        codes = max(parts.values(), key=lambda part: part.n_bytes)
        incomplete = missing_parts(weight, parts, self._ledger.stored, self._facts)
        if incomplete is not None:
            return incomplete
        floats = self._ledger.stored.get(f"{weight}.weight")
        is_plain = floats is not None and floats.dtype.kind == "float"  # there are no codes
        encoding = None if is_plain else name_encoding(parts, self._facts)
        if encoding is not None:
            return refuse_encoding(codes, encoding, self._facts)
        said = f" (the config says {self._facts.declared})" if self._facts.declared else ""
        part = next((part for part in parts.values() if part.name not in problems), codes)
        return part.unsupported(
            f"{part} looks like a part of a quantised weight{said}, but belongs to none that can be"
            " read",
            remedy="drop=... leaves it out; allow_unknown=True copies it as it is stored",
        )
