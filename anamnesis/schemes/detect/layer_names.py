"""Statements about single layers: each must match a layer, or it is an error.

Names are matched once, before weights are detected; all later lookups use the module's own name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from anamnesis.base.printable import abbreviate
from anamnesis.schemes.core.settings import Expected
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger, around
from anamnesis.schemes.detect.markers import has_marker, has_markers
from anamnesis.schemes.libraries.comfy_metadata import COMFY_METADATA_KEY, may_be_of
from anamnesis.schemes.libraries.targets import Targets, common_end, match_names
from anamnesis.schemes.libraries.torchao_metadata import weight_of

_UNMARKED = (
    "nothing says how it is encoded, while the file says so of other layers, and ComfyUI's order of"
    " codes and scales may be another; give it a marker, or an entry in the metadata"
)
_MOST_NAMED = 3
_REMEDY = "correct the names; allow_unknown=True copies the codes as they are stored"


def _modules(stored: Iterable[str]) -> set[str]:
    return {name.rpartition(".")[0] for name in stored}


def _shares_words(weight: Weight, settings: Any) -> bool:
    """Return whether MLX's words of other bits and groups would have these shapes."""
    shown, (bits, size) = weight.shown, settings
    if shown is None or shown.kind != "int" or weight.parts[0].dtype.name != "U32":
        return False
    group = shown.shape[1] // max(shown.grid[1], 1)
    return bool(shown.bits * group == bits * size and bits != shown.bits)


def _is_in_parts(weight: Weight, said: Any) -> bool:
    return bool(said.parts) and weight_of(weight.parts[0].name) is not None


def _has_comfy_names(weight: Weight) -> bool:
    """Whether ComfyUI calls the parts alike; one float as a scale is the same for all producers."""
    codes, *others = (part.name for part in weight.parts)
    has_names = codes.endswith(".weight") and f"{codes}_scale" in others
    return has_names and weight.shown is not None and weight.shown.grid != (1, 1)


def _is_comfy(weight: Weight, layer: Any) -> bool:
    shown = weight.shown
    return shown is not None and may_be_of(layer, shown.kind, shown.bits)


class _Row(NamedTuple):
    """What is said of layers."""

    by: str
    names: Callable[[Iterable[str]], set[str]]
    may_be: Callable[[Weight, Any], bool]
    is_of_file: bool = False


_COMFY = "comfy_layers"
# By the fact that has it.
_ROWS = {
    _COMFY: _Row(f"__metadata__ {COMFY_METADATA_KEY}", _modules, _is_comfy, True),
    "layers": _Row("quantization in config.json", _modules, _shares_words),
    "vptq_layers": _Row("config_for_layers in config.json", _modules, lambda *_: False),
    "described": _Row(
        "__metadata__", lambda names: {weight_of(n) or n for n in names}, _is_in_parts, True
    ),
}


def with_matched_names(facts: QuantFacts, stored: Collection[str]) -> QuantFacts:
    """Return facts under the model's own names of layers, with those that match none apart."""
    if facts.expected:
        facts = replace(facts, unmatched=_unmatched(facts, stored))
    found: dict[str, Any] = {}
    missed: dict[str, Mapping[str, Any]] = {}
    for field, row in _ROWS.items():
        said = getattr(facts, field)
        if said:
            found[field], names = match_names(said, row.names(stored))
            others = {name: said[name] for name in names if said[name] != said.get("")}
            if others:
                missed[field] = others
    return replace(facts, **found, missed=missed) if found else facts


def refuse_missed(ledger: Ledger, facts: QuantFacts, *, whole: bool) -> None:
    """Retract the weights that a statement under an unknown name may be meant for."""
    # In a part of a model, only a layer of the same number and name can be meant.
    for field, missed in facts.missed.items():
        row, places = _ROWS[field], dict[Any, set[str]]()
        for name, said in missed.items():
            any_place = whole or row.is_of_file
            places.setdefault(said, set()).add("" if any_place else _place(name))
        meant = [
            weight
            for weight in _unnamed(ledger, getattr(facts, field))
            for said, ends in places.items()
            if row.may_be(weight, said) and not ends.isdisjoint(("", _place(weight.name)))
        ]
        if meant:
            _retract(ledger, meant, row.by, [*missed])
        elif row.is_of_file and (whole or field == _COMFY):
            _retract_nearest(ledger, ledger.coded, row.by, [*missed])
    if whole and facts.unmatched:
        coded = {weight.name.removesuffix(".weight"): weight for weight in ledger.coded}
        known = Targets(facts.expected, coded)
        unnamed = [weight for module, weight in coded.items() if not known.by_name(module)]
        targets = [target for target, _ in facts.unmatched]
        _retract_nearest(ledger, unnamed, facts.unmatched[0][1].by, targets)
    if facts.method is None and has_markers(ledger, facts.comfy_layers):
        for weight in _unnamed(ledger, facts.comfy_layers):
            if _has_comfy_names(weight):
                codes = weight.parts[0]
                ledger.retract(weight, codes.unsupported(f"{codes}: {_UNMARKED}"))


def _unmatched(facts: QuantFacts, stored: Collection[str]) -> tuple[tuple[str, Expected], ...]:
    """Return statements about a single module that is no layer and holds none."""
    usual = {given._replace(by="") for target, given in facts.expected if not target}
    said = {
        target: given
        for target, given in facts.expected
        if _is_path(target) and given._replace(by="") not in usual
    }
    modules = _modules(stored) if said else set()
    missed = match_names(said, modules)[1]
    if missed:
        parents = {parent for module in modules for parent in around(module) if parent}
        missed = match_names(dict.fromkeys(missed), parents)[1]
    return tuple((target, said[target]) for target in missed)


def unmatched_note(ledger: Ledger) -> str | None:
    """Return a sentence that lists the names of layers that the model lacks; None without any."""
    if not ledger.coded:
        return None
    facts = ledger.facts
    names = [name for missed in facts.missed.values() for name in missed]
    names += [target for target, _ in facts.unmatched if target not in names]
    left = {target for target in facts.left_alone if _is_path(target)}
    left -= _modules(ledger.stored) if left else set()
    if left:
        text = "\n".join(ledger.stored)  # of some tools parts of names are enough
        others = dict.fromkeys(sorted(target for target in left if target not in text))
        names += match_names(others, _modules(ledger.stored))[1]
    if not names:
        return None
    return f"named in the config, but not in the model: {abbreviate(names, _MOST_NAMED)}"


def _is_path(target: str) -> bool:
    """Return whether a target is a module's name, not a class or a pattern."""
    parts = target.replace("_", "x").split(".")
    return len(parts) > 1 and all(map(str.isalnum, parts))


def _unnamed(ledger: Ledger, said: Mapping[str, Any]) -> list[Weight]:
    """Return the quantised weights without a statement under their names, or a marker."""
    return [
        weight
        for weight in ledger.coded
        if weight.name not in said
        and weight.parts[0].name.rpartition(".")[0] not in said
        and not has_marker(weight.parts[0].name, ledger)
    ]


def _retract_nearest(ledger: Ledger, may_be: list[Weight], by: str, missed: list[str]) -> None:
    if may_be:
        nearest = max(may_be, key=lambda weight: common_end(weight.name, missed[0]))
        _retract(ledger, [nearest], by, missed)


def _retract(ledger: Ledger, meant: list[Weight], by: str, missed: list[str]) -> None:
    """Refuse weights for one reason: the unknown names, and the layer nearest to the first."""
    nearest = max(meant, key=lambda weight: common_end(weight.name, missed[0])).parts[0]
    error = nearest.unsupported(
        f"{by} names {abbreviate(missed, _MOST_NAMED)}, which matches no single layer of the model;"
        f" the nearest is {nearest}",
        remedy=_REMEDY,
    )
    for weight in dict.fromkeys(meant):
        ledger.retract(weight, error)


def _place(name: str) -> str:
    """Return the end of a name from its last number on."""
    parts = name.removesuffix(".weight").split(".")
    numbers = [n for n, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[numbers[-1] :] if numbers else parts[-1:])
