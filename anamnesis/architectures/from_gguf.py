"""A GGUF model seen as the Hugging Face directory that transformers loads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anamnesis.architectures import config_of_keys, operations
from anamnesis.architectures.arch import SUFFIXES, Arch, filled, patterns, split
from anamnesis.architectures.check import check_tensors, n_words, of_floats, switched
from anamnesis.architectures.general_keys import CARD_NAME, model_card
from anamnesis.architectures.header import Header, tensor_shape
from anamnesis.architectures.model_facts import FLOAT32_MOST, Facts, read_facts
from anamnesis.architectures.model_names import sizes
from anamnesis.architectures.tokenizers import vocabulary_files
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.stored import Dropped
from anamnesis.formats.base import n_items
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger

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
# Made of config.json, and going back into it.
_MADE = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


@dataclass(frozen=True, slots=True)
class AsHf:
    """A model with the names and the config of transformers."""

    arch: Arch
    ledger: Ledger
    config: dict[str, Any]
    files: dict[str, bytes | bytearray]
    left: list[Dropped]
    names: dict[str, tuple[str, ...]]


def as_hf(ledger: Ledger, metadata: Mapping[str, Any]) -> AsHf:
    """See a GGUF model as a directory."""
    seen = tensors_as_hf(ledger, metadata)
    generation = _generation(seen.config, metadata)
    files: dict[str, bytes | bytearray] = {"generation_config.json": generation}
    weights = ledger.weights
    card, said = model_card(metadata, sizes({n: w.shape for n, w in weights.items()}).n_all)
    files |= {CARD_NAME: card} if card else {}
    left = [dropped for dropped in seen.left if dropped.name not in said]
    return replace(seen, files=files | vocabulary_files(metadata), left=left)


def tensors_as_hf(ledger: Ledger, metadata: Mapping[str, Any]) -> AsHf:
    """See the tensors of a GGUF model as those of a directory, with config.json alone."""
    from anamnesis.architectures.registry import archs_of_gguf

    weights = ledger.weights
    arch = _fitting(archs_of_gguf(metadata), weights, metadata.get("tokenizer.ggml.model"))
    config, taken = config_of_keys.config_facts(arch, metadata, weights)
    facts = read_facts(config, arch.model_type, arch.derived)
    n_tokens = n_items(metadata, "tokenizer.ggml.tokens")
    header = Header(
        arch,
        lambda key: metadata.get(f"{arch.gguf}.{key}"),
        facts,
        n_words(facts, weights) if n_tokens is None else n_tokens,
        next(iter(weights.values())).parts[0].source.name if weights else None,
    )
    check_tensors(header, weights, ledger.dropped)
    dropped = [Dropped(name, _IN_CONFIG) for name in _said(arch, facts, weights)]
    weights = {name: _whole(header, of_floats(weight)) for name, weight in weights.items()}
    made, names = _weights(weights, arch, facts)
    claimed = {one for some in names.values() for one in some} | {drop.name for drop in dropped}
    for name in weights.keys() - claimed:
        raise _stray(arch, name)
    facts.names = frozenset(arch.naming.there(name, facts) for name in made)
    config_of_keys.check_required(arch, facts, metadata)
    known = {*taken, *_TAKEN, *_SAMPLING, "general.quantization_version"}
    left = [
        Dropped(key, _NO_PLACE)
        for key in metadata
        if key not in known and not key.startswith("tokenizer.")
    ]
    seen = replace(ledger, weights=made, dropped=[*ledger.dropped, *dropped])
    return AsHf(arch, seen, config, {}, left, names)


def _fitting(archs: tuple[Arch, ...], weights: Mapping[str, Weight], tokenizer: Any) -> Arch:
    """Return the first row that has all tensors; they are of one name in GGUF."""
    stray = ""
    seen = dict.fromkeys(split(name)[1] for name in weights)
    archs = tuple(arch for arch in archs if not arch.tells or arch.tells in weights)
    of_tokenizer = tuple(arch for arch in archs if arch.tokenizer in ("", tokenizer))
    for arch in of_tokenizer or archs:
        known = {*patterns(arch.rules), *_MADE, *switched(arch)}
        stray = next((pattern for pattern in seen if pattern not in known), "")
        if not stray:
            return arch
    raise _stray(archs[0], next(name for name in weights if split(name)[1] == stray))


def _stray(arch: Arch, name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name!r} is no tensor of {arch.gguf} that is known under transformers' names"
    )


def _whole(header: Header, weight: Weight) -> Weight:
    """Return a weight with the outer dimensions of 1 that ggml drops."""
    shape = tensor_shape(header, weight.name)
    if shape is None or len(shape) == len(weight.shape):
        return weight
    more = len(shape) - len(weight.shape)
    return operations.reshaped(weight, weight.name, (*(1,) * more, *weight.shape))


def _said(arch: Arch, facts: Facts, weights: Mapping[str, Weight]) -> Iterator[str]:
    """Yield the tensors that config.json says; those of the file must be the same."""
    for name, array in arch.extra(facts).items():
        if not config_of_keys.are_alike(config_of_keys.small_values(weights.get(name)), array):
            raise UnsupportedError(
                f"{name}: these factors are not those of a scaling that config.json can say"
            )
        yield name


def _weights(
    weights: Mapping[str, Weight], arch: Arch, facts: Facts
) -> tuple[dict[str, Weight], dict[str, tuple[str, ...]]]:
    layers = sorted({split(name)[0] for name in weights} - {-1})
    made: dict[str, Weight] = {}
    names: dict[str, tuple[str, ...]] = {}
    claimed: set[str] = set()
    for rule in arch.rules:
        for layer in layers if "{bid}" in rule.gguf[0] else [0]:
            for suffix in ("",) if rule.exact else SUFFIXES:
                given = tuple(filled(name, layer) + suffix for name in rule.gguf)
                if not all(name in weights for name in given) or claimed.issuperset(given):
                    continue  # what no other rule takes is found afterwards
                claimed.update(given)
                back = [weights[name] for name in given]
                try:
                    for op in reversed(rule.ops):
                        back = op.back(back, facts)
                except ValueError as error:  # shapes that do not fit
                    raise ParseError(f"{given[0]!r}: {error}") from None
                for i, weight in enumerate(back):
                    called = arch.naming.back(filled(rule.hf, layer, i) + suffix, facts)
                    if called in made:
                        raise ParseError(f"{given[0]!r} and {names[called][0]!r} are {called!r}")
                    made[called], names[called] = operations.renamed(weight, called), given
    return made, names


def _generation(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> bytes:
    """Return generation_config.json: the tokens that begin and end, and how to sample."""
    given: dict[str, Any] = {"_from_model_config": True}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if config.get(name) is not None:
            given[name] = config[name]
    sampling = {}
    for key, fact in _SAMPLING.items():
        value = metadata.get(key)
        if value is None:
            continue
        if type(value) not in (int, float) or not abs(value) < FLOAT32_MOST:
            raise ParseError(f"{key} is {value!r}, not a number of float32")
        sampling[fact] = config_of_keys.shortest(value)
    if sampling:
        given = {**given, "do_sample": True, **sampling}
        del given["_from_model_config"]
    return json.dumps(given, indent=2).encode() + b"\n"
