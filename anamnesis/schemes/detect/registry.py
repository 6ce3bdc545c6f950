"""The families in order, and how every stored tensor is accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.detect.activation_scales import activation_side, ranges_among
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import looks_like_codes, module_of
from anamnesis.schemes.detect.orphans import refuse_orphans
from anamnesis.schemes.detect.pre_quant_scale import settle_input_scales

# The folders of the families in the order of their turns, each with what its checkpoints have in a
# name, or in a dtype of `_hints`: where none of these appears, it need not be imported.
FAMILIES = {
    "mixed": ("bitmask",),
    "bnb": (".quant_state.bitsandbytes__", "SCB"),
    "exl2": ("q_weight",),
    "torchao": ("_qdata",),
    "rotated": ("I8 int",),
    "fp4": ("U8 int", "I8 int", "U32 int", "NVFP4 block"),
    "fp6": ("U8 int",),
    "fp8": ("F8_", "scaled_fp8", ".scales"),
    "integers": (
        *("I32 int", "I8 int", "U32 int", "U8 int", "weight_packed", "weight_zero_point"),
        *("W_q", "qweight", ".B"),
    ),
    "ggml": (" block",),
    "codebooks": ("codebooks", "centroids"),
    "exl3": ("trellis",),
}
_MARKS = [(name, mark) for name, marks in FAMILIES.items() for mark in marks]
# What names of parts have, and few of plain models: then the config is asked.
_OF_PARTS = ("weight_packed", "_scale", "scales", ".scale")


def reader(family: str) -> ModuleType:
    """Import and return the module of a family that has `find_all`."""
    return import_module(f"anamnesis.schemes.families.{family}.read")


def _hints(stored: Mapping[str, StoredTensor]) -> str:
    """Return the last two words of all names, and all dtypes, in which marks are looked for."""
    dtypes = {tensor.dtype for tensor in stored.values()}
    dotted = [f".{name}" for name in stored]
    ends = {name[max(name.rfind(".", 0, name.rfind(".")), 0) :] for name in dotted}
    return "\n".join([*ends, *[f"{dtype.name} {dtype.kind}" for dtype in dtypes]])


def claim_all(
    stored: dict[str, StoredTensor],
    read_facts: Callable[[], QuantFacts],
    unreadable: Mapping[str, AnamnesisError] | None = None,
    *,
    self_contained: bool = False,
    whole: bool = False,
) -> Ledger:
    """Account for every stored tensor of a model: each is claimed exactly once."""
    # Families go first; what is a part of a quantised weight by its name, or holds codes by its
    # dtype while the config names an encoding, but was consumed by none, is a problem; then ranges
    # of activations are dropped if anything is quantised at all; the rest are plain weights. Where
    # the config claims something about the whole model that the tensors do not confirm, or that
    # cannot be undone, every tensor is a problem.
    ledger = Ledger(stored, read_facts=cache(lambda: _matched(read_facts(), stored)))
    for name, error in (unreadable or {}).items():
        ledger.refuse([name], error)
    hints = _hints(stored)
    families = [reader(name) for name in dict.fromkeys(n for n, mark in _MARKS if mark in hints)]
    asks = families or any(mark in hints for mark in _OF_PARTS)
    asks = asks or (not self_contained and (whole or any(map(looks_like_codes, stored.values()))))
    facts = ledger.facts if asks else _NO_FACTS
    if facts.transform is not None:
        _refuse_rest(ledger, f"the config has {facts.transform!r}: {_TRANSFORMED}")
    for family in families:
        family.find_all(ledger, facts)
    if ledger.weights and not self_contained:
        from anamnesis.schemes.detect.agreement import refuse_others
        from anamnesis.schemes.detect.layer_names import refuse_missed
        from anamnesis.schemes.detect.orientation import turn

        refuse_missed(ledger, facts, whole=whole)
        refuse_others(ledger, facts)
        turn(ledger, facts)
    if not self_contained:
        settle_input_scales(ledger, facts)
        refuse_orphans(ledger, facts)
        _drop_ranges(ledger, facts)
        if whole and facts.declared and not ledger.weights and not ledger.problems:
            _refuse_rest(ledger, f"the config says {facts.declared}, {_NOT_SEEN}")
    ledger.take_rest()
    return ledger


def _matched(facts: QuantFacts, stored: Mapping[str, StoredTensor]) -> QuantFacts:
    if facts == _NO_FACTS:
        return facts
    from anamnesis.schemes.detect.layer_names import with_matched_names

    return with_matched_names(facts, stored)


_NO_FACTS = QuantFacts()
_TRANSFORMED = (
    "its weights are rotated or corrected in a way that only the runtime that wrote them can undo"
)
_NOT_SEEN = (
    "but no tensor is in it, or in any other encoding that can be read; if the weights are plain, "
    "remove that section from the config"
)


def _refuse_rest(ledger: Ledger, why: str) -> None:
    """Refuse all that is not claimed yet."""
    rest = ledger.free()
    if rest:
        remedy = "allow_unknown=True passes everything through as it is"
        error = rest[0].unsupported(why, remedy=remedy)
        ledger.refuse([tensor.name for tensor in rest], error)


def _drop_ranges(ledger: Ledger, facts: QuantFacts) -> None:
    if not ledger.weights:
        return
    named = [tensor for tensor in ledger.free() if activation_side(tensor.name)]
    if not named:
        return
    shapes = {w.name: w.shape for w in ledger.weights.values() if w.has_ranges}
    modules, cache = set(map(module_of, shapes)), facts.kv_cache
    for tensor in ranges_among(named, shapes, modules, kv_cache=cache, per_head=facts.per_head):
        ledger.drop(tensor.name, "range of activations or of a cache")
