"""The schemes in the order of their turns, and the account that they settle together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.facts import QuantFacts
from anamnesis.schemes.ledger import Claim
from anamnesis.schemes.names import (
    Ranges,
    activation_side,
    looks_like_codes,
    module_of,
    owner,
)

__all__ = ["SCHEMES", "claim_all", "scheme_module"]

# In the order of their turns, each with what its checkpoints have in a name, or in a dtype as
# `_likely` has it: where none of these stands, it need not be imported.
SCHEMES = {
    "bnb": (".quant_state.bitsandbytes__", "SCB"),
    "fp8": ("F8_", "scaled_fp8"),
    "integers": ("weight_packed", "I8 int"),
    "ggml": (" block",),
    "gptq": ("qweight",),
    "awq": ("qweight",),  # after GPTQ: it refuses what both leave
}
_PACKED = ("gptq", "awq")  # the folder's
_MARKS = [(name, mark) for name, marks in SCHEMES.items() for mark in marks]


def scheme_module(scheme: str) -> ModuleType:
    """Import and return the module of a scheme."""
    folder = "packed." if scheme in _PACKED else ""
    return import_module(f"anamnesis.schemes.{folder}{scheme}")


def _likely(stored: Mapping[str, StoredTensor]) -> list[ModuleType]:
    """Import and return the schemes that stored tensors may be of."""
    dtypes = {tensor.dtype for tensor in stored.values()}
    hints = "\n".join([*stored, *[f"{dtype.name} {dtype.kind}" for dtype in dtypes]])
    likely = dict.fromkeys([name for name, mark in _MARKS if mark in hints])
    return [scheme_module(name) for name in likely]


def claim_all(
    stored: dict[str, StoredTensor],
    read_facts: Callable[[], QuantFacts],
    unreadable: Mapping[str, AnamnesisError] | None = None,
    *,
    self_contained: bool = False,
    whole: bool = False,
) -> Claim:
    """Account for every stored tensor of a model: each is claimed exactly once.

    Schemes go first; what is a part of a quantised weight by its name, or holds codes by its dtype
    while the config names an encoding, but was consumed by none, is a problem; then ranges of
    activations are dropped if anything is quantised at all; the rest are weights as they stand.
    Where the config says something of the whole model that the tensors do not bear out, or that
    cannot be undone, every tensor is a problem.

    Parameters
    ----------
    stored : dict of str to StoredTensor
    read_facts : function
        Returns what the config says; it is asked only if some tensor may be quantised, or of a
        whole model.
    unreadable : mapping of str to AnamnesisError, optional
        What the format itself says cannot be decoded.
    self_contained : bool
        Whether each tensor is a weight by itself, so that names mean nothing.
    whole : bool
        Whether these are all tensors of the model that the config is of.
    """
    claim = Claim(stored)
    for name, error in (unreadable or {}).items():
        claim.refuse([name], error)
    schemes = _likely(stored)
    asks = schemes or (
        not self_contained and (whole or any(map(looks_like_codes, stored.values())))
    )
    facts = read_facts() if asks else _NO_FACTS
    if facts.transform is not None:
        _refuse_rest(claim, f"the config has {facts.transform!r}: {_TRANSFORMED}")
    for scheme in schemes:
        scheme.claim(claim, facts)
    if claim.weights and not self_contained:
        from anamnesis.schemes.orientation import turn

        turn(claim, facts)
    if not self_contained:
        _refuse_unread(claim, facts)
        _drop_ranges(claim, facts)
        if whole and facts.declared and not claim.weights and not claim.problems:
            _refuse_rest(claim, f"the config says {facts.declared}, {_NOT_SEEN}")
    claim.take_rest()
    return claim


_NO_FACTS = QuantFacts()
_TRANSFORMED = (
    "weights are rotated or corrected in a way that only the runtime which wrote them undoes; "
    "--allow-unknown passes everything through as it is"
)
_NOT_SEEN = (
    "but no tensor is in it, or in any other encoding that is read: take that section out of the "
    "config if the weights are plain; --allow-unknown passes everything through as it is"
)


def _refuse_rest(claim: Claim, why: str) -> None:
    """Refuse all that is not claimed yet."""
    rest = claim.free()
    if rest:
        error = UnsupportedError(f"{rest[0].source.name}: {why}")
        claim.refuse([tensor.name for tensor in rest], error)


def _refuse_unread(claim: Claim, facts: QuantFacts) -> None:
    """Refuse parts of weights that no scheme took, and the codes beside all parts refused."""
    parts: list[StoredTensor] = []
    modules: dict[str, str] = {}
    for tensor in [*map(claim.stored.__getitem__, claim.problems), *claim.free()]:
        whose = owner(tensor, claim.stored)
        if whose is not None:
            parts.append(tensor)
            module = module_of(tensor.name)
            modules[module] = modules.get(module) or whose
    for tensor in parts:
        if tensor.name not in claim.problems:
            claim.refuse([tensor.name], _unread(tensor, modules[module_of(tensor.name)], facts))
    if not modules and not facts.declared:
        return
    for tensor in claim.free():
        module = module_of(tensor.name)
        if looks_like_codes(tensor) and (module in modules or facts.declared):
            claim.refuse([tensor.name], _unread(tensor, modules.get(module, ""), facts))
    for weight in list(claim.weights.values()):
        whose = modules.get(module_of(weight.name))
        if whose is not None:
            claim.retract(weight, _unread(weight.parts[0], whose, facts))


def _unread(tensor: StoredTensor, whose: str, facts: QuantFacts) -> UnsupportedError:
    told = facts.declared or ""
    hints = [whose] if whose and whose.lower() not in told.lower() else []
    hints += [f"the config says {told}"] if told else []
    kind = f" ({'; '.join(hints)})" if hints else ""
    return UnsupportedError(
        f"{tensor.source.name}: {tensor.name} ({tensor.describe()}) looks like a part of a "
        f"quantised weight{kind}, but no weight that can be read here uses it; --allow-unknown "
        "passes it through as it is"
    )


def _drop_ranges(claim: Claim, facts: QuantFacts) -> None:
    if not claim.weights:
        return
    named = [tensor for tensor in claim.free() if activation_side(tensor.name)]
    if not named:
        return
    shapes = {w.name: w.shape for w in claim.weights.values() if w.family == "FP8"}
    ranges = Ranges(shapes, kv_cache=facts.kv_cache, per_head=facts.per_head)
    for tensor in named:
        if ranges.has(tensor):
            claim.drop(tensor.name, "range of activations or of a cache")
