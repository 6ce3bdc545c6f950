"""What is copied as it is stored, and whether it can be read in the output.

A weight sees its parts in the order in which it decodes them. What is kept is none of that, but the
stored tensors of these names, byte for byte, and those beside them that are dropped where a weight
is decoded: markers, and ranges of activations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import ASKED, Dropped, StoredTensor
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts, read_facts
from anamnesis.schemes.detect.ledger import Ledger, around
from anamnesis.schemes.detect.registry import claim_all
from anamnesis.schemes.libraries.comfy_metadata import COMFY_METADATA_KEY
from anamnesis.schemes.libraries.targets import match_names
from anamnesis.schemes.libraries.torchao_metadata import metadata_without

if TYPE_CHECKING:
    from anamnesis.convert.decide.decided import Decided

_DECODE = "decode it instead"
_DIRECTORY = "write a directory of safetensors, which has a config that says so, or decode it"


class Kept:
    """The weights of a ledger that are copied as they are stored."""

    def __init__(self, ledger: Ledger, weights: Iterable[Weight]) -> None:
        self._ledger = ledger
        kept = {weight.name: weight for weight in weights}
        self.plain = {n for n, w in kept.items() if w.own_dtype is not None and len(w.parts) == 1}
        self.codes = {name: weight for name, weight in kept.items() if name not in self.plain}

    @cached_property
    def beside(self) -> list[tuple[StoredTensor, Dropped]]:
        """The tensors that go with kept weights, and are dropped with others."""
        # Each belongs to the module that it lies in, or to the next one around that has weights.
        # Where a module's codes are decoded or left out, so is what says how they are read.
        ledger = self._ledger
        is_all = bool(self.plain) and self.plain == ledger.weights.keys()
        if not self.codes and not is_all:
            return []  # they would be of no codes
        ruled = [left for left in ledger.dropped if left.reason != ASKED]
        dropped = [left for left in ruled if left.name in ledger.stored]
        left_out = {
            _module(left.name)
            for left in ledger.dropped
            if left.reason == ASKED
            and (tensor := ledger.stored.get(left.name))
            and tensor.dtype.kind != "float"
        }
        if left_out or self.codes.keys() | self.plain < ledger.weights.keys():
            known = {module for name in ledger.weights for module in around(name)} | left_out
            others = ledger.weights.keys() - self.codes.keys() - self.plain
            decoded = {_module(name) for name in others if ledger.weights[name].own_dtype is None}
            kept = {_module(name) for name in self.plain} - decoded - left_out
            kept |= {module for name in self.codes for module in around(name)}
            dropped = [
                left
                for left in dropped
                if next((module for module in around(left.name) if module in known), None) in kept
            ]
        return [(ledger.stored[left.name], left) for left in dropped]

    def metadata(
        self, metadata: Mapping[str, str], decoded: Mapping[str, str], gone: Collection[str]
    ) -> dict[str, str]:
        """Return what a file says of its codes, where some of them are codes no more."""
        kept = metadata_without(metadata, decoded, gone)
        if COMFY_METADATA_KEY in kept:
            try:
                parsed = json.loads(kept[COMFY_METADATA_KEY])
            except (ValueError, RecursionError):
                return kept  # another's, under the same key
            layers = parsed.get("layers") if isinstance(parsed, dict) else None
            if not isinstance(layers, dict):
                return kept  # it says nothing of any layer
            others = set(map(_module, (*decoded, *gone)))
            modules = set(map(_module, self._ledger.stored))
            called, _ = match_names({name: name for name in layers}, modules)
            goes = {name for module, name in called.items() if module in others}
            if goes:
                parsed["layers"] = {k: layer for k, layer in layers.items() if k not in goes}
                kept[COMFY_METADATA_KEY] = json.dumps(parsed)
        return kept


def check_kept(decided: Decided, config: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Refuse codes that would not be read as what they are where they are written."""
    # So it is where only a config says what they are, and none is written.
    kept, ledger, writer = decided.kept, decided.seen.ledger, decided.writer
    if not kept.codes:
        return

    def facts() -> QuantFacts:
        said, own = QuantFacts(), ledger.facts
        if not writer.self_contained:
            said = read_facts(config, metadata)
        tiles = own.tiles if writer.id == "safetensors" else False
        return said.given(None, own.conv1d, tiles, folds=own.folds)

    renamed = decided.request.renamed
    names = [*kept.plain, *(stored.name for stored, _ in kept.beside), *decided.passed]
    names += [part.name for weight in kept.codes.values() for part in weight.parts]
    names += [name for name, weight in ledger.weights.items() if weight.own_dtype is not None]
    there = [ledger.stored[name] for name in dict.fromkeys(names) if name in ledger.stored]
    written = {renamed(one.name): one._replace(name=renamed(one.name)) for one in there}
    again = claim_all(written, facts, self_contained=writer.self_contained)
    for weight in kept.codes.values():
        found = again.weights.get(renamed(weight.name))
        if found is None or _facts_of(found, str) != _facts_of(weight, renamed):
            as_what = "" if found is None else f", but as {found.scheme} {list(found.shape)}"
            raise UnsupportedError(
                f"{weight.name!r} cannot be kept as it is stored: what is written would not be"
                f" read as {weight.scheme} {list(weight.shape)}{as_what};"
                f" {_DECODE if decided.seen.checkpoint.root is None else _DIRECTORY}"
            )


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _facts_of(weight: Weight, renamed: Callable[[str], str]) -> tuple[Any, ...]:
    """Return what two weights of one stored form have in common if they are decoded alike."""
    parts = [(renamed(p.name), p.dtype, p.shape, type(p.source)) for p in weight.parts]
    return weight.id, weight.shape, weight.own_dtype, parts
