"""A GGUF model seen as the Hugging Face directory that transformers loads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anamnesis.architectures import operations
from anamnesis.architectures.arch import Arch, Rule
from anamnesis.architectures.config_of_keys import config_facts, shortest
from anamnesis.architectures.facts import Facts, read_facts
from anamnesis.architectures.model_card import CARD_NAME, model_card
from anamnesis.architectures.model_names import sizes
from anamnesis.architectures.names import filled
from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import UnsupportedError
from anamnesis.schemes.claim.ledger import Ledger

if TYPE_CHECKING:
    from anamnesis.schemes.core.weight import Weight

__all__ = ["AsHf", "as_hf"]

_ROPE_FREQS = "rope_freqs.weight"
_IN_CONFIG = "config.json says it (rope_parameters)"
_NO_PLACE = "metadata that a Hugging Face directory has no place for"
_TAKEN = ("general.architecture", "general.type", "general.alignment", "general.file_type")
_SAMPLING = {
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.temp": "temperature",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
_SUFFIXES = (".weight", ".bias")


@dataclass(frozen=True, slots=True)
class AsHf:
    """A model as Hugging Face has it.

    Attributes
    ----------
    arch : Arch
    ledger : Ledger
        Its weights under transformers' names.
    config : dict
        Of config.json.
    files : dict of str to bytes
        What lies beside it: generation_config.json, the tokenizer's.
    left : list of Dropped
        Metadata that none of them has a place for.
    names : dict of str to tuple of str
        Of each weight, the names of those that it is made of.
    """

    arch: Arch
    ledger: Ledger
    config: dict[str, Any]
    files: dict[str, bytes]
    left: list[Dropped]
    names: dict[str, tuple[str, ...]]


def as_hf(ledger: Ledger, metadata: Mapping[str, Any]) -> AsHf:
    """See a GGUF model as a directory.

    Parameters
    ----------
    ledger : Ledger
    metadata : mapping
        Of the GGUF, plain values.

    Raises
    ------
    UnsupportedError
        If its architecture is not known, a tensor is none of it, or a key has a value that
        config.json has no word for.
    ParseError
        If a key that is needed is missing, or not as it must be.
    """
    from anamnesis.architectures.rows import archs_of_gguf  # only here: a large table
    from anamnesis.architectures.tokenizers import vocabulary_files

    weights = ledger.weights
    arch = _fitting(archs_of_gguf(metadata), weights, metadata.get("tokenizer.ggml.model"))
    config, taken = config_facts(arch, metadata, weights)
    facts = read_facts(config, arch)
    facts.names = frozenset(weights)
    made, names = _weights(weights, arch, facts)
    dropped = []
    if _ROPE_FREQS in weights and _ROPE_FREQS not in _all_names(names):
        dropped = [Dropped(_ROPE_FREQS, _IN_CONFIG)]
    files = {"generation_config.json": _generation(config, metadata)}
    files |= vocabulary_files(metadata)
    card, in_card = model_card(metadata, sizes({n: w.shape for n, w in weights.items()}).n_all)
    files |= {CARD_NAME: card} if card else {}
    known = {*taken, *in_card, *_TAKEN, *_SAMPLING, "general.quantization_version"}
    left = [
        Dropped(key, _NO_PLACE)
        for key in metadata
        if key not in known and not key.startswith("tokenizer.")
    ]
    seen = replace(ledger, weights=made, dropped=[*ledger.dropped, *dropped])
    return AsHf(arch, seen, config, files, left, names)


def _all_names(names: Mapping[str, tuple[str, ...]]) -> set[str]:
    return {one for some in names.values() for one in some}


def _fitting(archs: tuple[Arch, ...], weights: Mapping[str, Weight], tokenizer: Any) -> Arch:
    """Return the first row whose rules claim all tensors; they are of one name in GGUF."""
    stray: list[str] = []
    of_tokenizer = tuple(arch for arch in archs if arch.tokenizer in ("", tokenizer))
    for arch in of_tokenizer or archs:
        known = {_blank(name) for rule in arch.rules for name in _full_names(rule)}
        stray = [n for n in weights if _blank(n) not in known and n not in _made_by(arch)]
        if not stray:
            return arch
    raise UnsupportedError(
        f"{stray[0]!r} is no tensor of {archs[0].gguf} that is known under transformers' names",
    )


def _made_by(arch: Arch) -> tuple[str, ...]:
    """Return the tensors that are made of config.json, and go back into it."""
    return (_ROPE_FREQS, "rope_factors_long.weight", "rope_factors_short.weight")


def _full_names(rule: Rule) -> Iterator[str]:
    for name in rule.gguf:
        if rule.exact:
            yield name
        else:
            yield from (name + suffix for suffix in _SUFFIXES)


_LAYER = re.compile(r"(?<=blk\.)\d+(?=\.)")


def _blank(name: str) -> str:
    return _LAYER.sub("{bid}", name, count=1)


def _weights(
    weights: Mapping[str, Weight], arch: Arch, facts: Facts
) -> tuple[dict[str, Weight], dict[str, tuple[str, ...]]]:
    layers = sorted({int(m[0]) for name in weights if (m := _LAYER.search(name)) is not None})
    made: dict[str, Weight] = {}
    names: dict[str, tuple[str, ...]] = {}
    claimed: set[str] = set()
    for rule in arch.rules:
        for layer in layers if "{bid}" in rule.gguf[0] else [0]:
            for suffix in ("",) if rule.exact else _SUFFIXES:
                given = tuple(filled(name, layer) + suffix for name in rule.gguf)
                if not all(name in weights for name in given) or claimed.issuperset(given):
                    continue
                claimed.update(given)
                for name, weight in _turned_back(rule, given, layer, suffix, weights, facts):
                    called = arch.naming.back(name, facts) if arch.naming else name
                    made[called], names[called] = operations.renamed(weight, called), given
    return made, names


def _turned_back(
    rule: Rule,
    given: tuple[str, ...],
    layer: int,
    suffix: str,
    weights: Mapping[str, Weight],
    facts: Facts,
) -> Iterator[tuple[str, Weight]]:
    made = [weights[name] for name in given]
    for op in reversed(rule.ops):
        made = op.back(made, facts)
    for i, weight in enumerate(made):
        name = filled(rule.hf, layer, i) + suffix
        yield name, operations.renamed(weight, name)


def _generation(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> bytes:
    """Return generation_config.json: the tokens that begin and end, and how to sample."""
    told: dict[str, Any] = {"_from_model_config": True}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if config.get(name) is not None:
            told[name] = config[name]
    sampling = {fact: shortest(metadata[key]) for key, fact in _SAMPLING.items() if key in metadata}
    if sampling:
        told = {**told, "do_sample": True, **sampling}
        del told["_from_model_config"]
    return json.dumps(told, indent=2).encode() + b"\n"
