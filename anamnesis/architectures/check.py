"""Whether the tensors of a model are those that its keys say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from anamnesis.architectures.arch import IN_LAYER, Arch, filled, patterns, split, tail_of
from anamnesis.architectures.differences import UNTIED
from anamnesis.architectures.header import KEYS, Header, check_shape, is_windowed
from anamnesis.architectures.model_facts import CONFIG, LAYERS_MAX, Facts
from anamnesis.base.errors import ParseError
from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import ASKED, Dropped
from anamnesis.schemes.core.weight import Weight

_TABLE = json_table(__file__)
# Which layers have a tensor, or whether the file has it at all; all by default. Those with `?` may
# have it.
_GROUPS = {name: group for group, names in _TABLE["groups"].items() for name in names.split()}
# The keys that say which layers are of a group, for errors to name.
_SWITCHED: Mapping[str, str] = _TABLE["switched"]
# Keys whose numbers are at most those of others.
_AT_MOST: Mapping[str, str] = _TABLE["at_most"]

_STARTS = ("", f"enc.{IN_LAYER}")  # of names, beside those of a layer
_INTERVAL = 4  # of full attention among states, llama.cpp's own
_OWN = {"own-keys", "own-values"}
_NEVER_ELSEWHERE = {"first", "attends", "recurs", "dense", "sparse", "predicts", "in-turn", *_OWN}


@dataclass(frozen=True, slots=True)
class _Layers:
    """How many layers there are, how many of these predict further tokens, and which share keys."""

    n: int
    n_predicting: int
    first_shared: int

    def predicts(self, layer: int) -> bool:
        return layer >= self.n - self.n_predicting


def check_tensors(
    header: Header,
    weights: Mapping[str, Weight],
    dropped: Iterable[Dropped],
    called: Callable[[str], str] = str,
) -> None:
    """Refuse a model that lacks a tensor, has one too many, or of another shape than it says."""
    layers = _layers(header, weights)
    _check_counts(header)
    kinds = {layer: _kinds(header, layers, layer) for layer in range(-1, layers.n)}
    asked = {drop.name.replace("language_model.", "") for drop in dropped if drop.reason == ASKED}
    for name, why in _missing(header, weights, layers, kinds):
        if called(name) not in asked:
            raise header.error(f"{why}{called(name)!r} is missing")
    for name, weight in weights.items():
        layer, pattern = split(name)
        tail = tail_of(pattern)
        group = _group(header.arch, tail)
        if group.removesuffix("?") in _NEVER_ELSEWHERE - kinds[layer]:
            raise header.error(
                f"{_because(header, group)}{called(name)!r} is no tensor of its layer"
            )
        if 0 in weight.shape:
            raise header.error(f"{called(name)!r} has no values: {list(weight.shape)}")
        check_shape(header, layer, tail, weight.shape, partial(called, name))


def _check_counts(header: Header) -> None:
    """Refuse numbers that contradict each other."""
    for few, many in _AT_MOST.items():
        n, most = header.count(few), header.count(many)
        if most is None and many == "attention.key_length":
            most = (header.count("embedding_length") or 0) // (
                header.count("attention.head_count") or 1
            )
        elif most is None and many == "expert_group_count":
            most = 1
        if n is not None and most is not None and n > most:
            raise header.error(f"{header.word(few)} is {n:,}, and {header.word(many)} {most:,}")
    n, n_groups = header.count("expert_count") or 0, header.count("expert_group_count") or 1
    if n % n_groups or 1 < n_groups == n:
        raise header.error(
            f"{header.word('expert_count')} is {n:,}, and {header.word('expert_group_count')}"
            f" {n_groups:,}"
        )
    if n and not header.count("expert_used_count"):
        raise header.error(f"has experts, and no {header.word('expert_used_count')}")


def n_words(facts: Facts, weights: Mapping[str, Weight]) -> int | None:
    """Return how many tokens config.json says, or has rows for."""
    embedding = weights.get("token_embd.weight")
    if facts.get("vocab_size") is None and embedding is not None and embedding.shape:
        return embedding.shape[0]
    return facts.number("vocab_size")


def of_floats(weight: Weight) -> Weight:
    """Return a weight."""
    if weight.own_dtype is not None and weight.own_dtype.kind in ("int", "bool", "complex"):
        raise ParseError(f"{weight.name!r} is {weight.own_dtype.name}, and no weight of floats")
    return weight


def _layers(header: Header, weights: Mapping[str, Weight]) -> _Layers:
    """Return the layers, which must be those that the tensors are of."""
    n, more = header.count("block_count"), header.count("nextn_predict_layers") or 0
    if not n or n > LAYERS_MAX:
        raise header.error(f"{header.word('block_count')} is {n}, not from 1 to {LAYERS_MAX}")
    found = {layer for layer, _ in map(split, weights)} - {-1}
    if more < n and found.isdisjoint(range(n - more, n)):
        n, more = n - more, 0  # as transformers saves it, and llama.cpp loads it
    shared = n - (header.count("attention.shared_kv_layers") or 0)
    # Files of the hub store some in each layer that shares those of others, transformers' none.
    stores = (
        layer >= shared and _group(header.arch, tail_of(pattern)) in _OWN
        for layer, pattern in map(split, weights)
    )
    layers = _Layers(n, min(more, n), n if any(stores) else shared)
    lacking = next((i for i in range(n) if i not in found), None)
    if lacking is not None:
        if layers.predicts(lacking):
            what = f"{header.word('nextn_predict_layers')} is {more:,}"
        else:
            what = f"{header.word('block_count')} is {n - layers.n_predicting:,}"
        raise header.error(f"{what}, and there are no tensors of layer {lacking:,}")
    if found and max(found) >= n:
        raise header.error(
            f"{header.word('block_count')} is {n - layers.n_predicting:,}, and there are tensors of"
            f" layer {max(found):,}"
        )
    return layers


def _missing(
    header: Header,
    weights: Mapping[str, Weight],
    layers: _Layers,
    kinds: Mapping[int, frozenset[str]],
) -> Iterator[tuple[str, str]]:
    """Yield names of tensors that must be there and are not, and why they must."""
    known = patterns(header.arch.rules)
    switches = switched(header.arch)
    seen = {split(name)[1] for name in weights}
    for pattern in {**known, **switches, **dict.fromkeys(seen)}:
        fact, group = switches.get(pattern, ""), _group(header.arch, tail_of(pattern))
        inside = range(layers.n) if "{bid}" in pattern else (-1,)
        of_group = [i for i in inside if group.removesuffix("?") in kinds[i]]
        is_known = not group.endswith("?") and (pattern in switches or pattern in known)
        if is_known and (not fact or bool(header.facts.get(fact))):
            why = f"{fact} is set, and " if fact else _because(header, group)
        elif pattern in seen:
            # There is no such tensor; of a bias config.json must say so, not its class.
            is_off = not pattern.endswith(".bias") or header.facts.given.get(fact) is False
            if pattern in switches and is_off:
                raise header.error(f"{fact} is not set, and there is {pattern!r}")
            why = "other layers have it, and "
            of_group = [i for i in of_group if not layers.predicts(i)]
        else:
            continue
        for name in (filled(pattern, i) for i in of_group):
            if name not in weights:
                yield name, why


def switched(arch: Arch) -> dict[str, str]:
    """Return the names, for any layer, of tensors that a fact says, and the fact."""
    known, found = patterns(arch.rules), dict[str, str]()
    for fact, some in arch.switches.items():
        for tail in some:
            stem = tail.removesuffix(".bias").removesuffix(".weight")
            starts = (start for start in _STARTS if f"{start}{stem}.weight" in known)
            found[next(starts, IN_LAYER) + tail] = fact
    return found


def _group(arch: Arch, tail: str) -> str:
    """Return the group of a tensor; that of its weight if it is a bias."""
    stem = tail.removesuffix(".weight")
    for known in (arch.groups, _GROUPS):
        for name in (stem, stem.removesuffix(".bias")):
            if name in known:
                return known[name]
    return "all"


def _because(header: Header, group: str) -> str:
    key = _SWITCHED.get(group)
    value = None if key is None else header.find(key)
    if key is None or value is None:
        return ""
    return f"{header.word(key)} is {'a list' if isinstance(value, list) else repr(value)}, and "


def _kinds(header: Header, layers: _Layers, layer: int) -> frozenset[str]:
    """Return the groups of tensors that a layer has; -1 stands for what is of no layer."""
    names = patterns(header.arch.rules)
    predicts, recurs = layers.predicts(layer), layer >= 0 and _recurs(header, layers, layer)
    leading = header.count("leading_dense_block_count") or 0
    has_router = "blk.{bid}.ffn_gate_inp.weight" in names
    is_sparse = has_router and bool(header.count("expert_count")) and layer >= leading
    is_full = header.find("attention.key_length_swa") is not None and not is_windowed(header, layer)
    own_keys = not recurs and layer < layers.first_shared  # others take those of a layer before
    found = {
        "all": True,
        "first": layer == 0,
        "head": _has_head(header),
        "attends": not recurs,
        "recurs": recurs,
        "own-keys": own_keys,
        "own-values": own_keys and not (is_full and header.facts.get("attention_k_eq_v")),
        "ranks": bool(header.count("attention.q_lora_rank")),
        "no-ranks": not header.count("attention.q_lora_rank"),
        "sparse": is_sparse,
        "dense": not has_router or layer < leading,
        "shared": is_sparse
        and bool(header.count("expert_shared_count") or header.count(KEYS["fs"])),
        "inputs": bool(header.count("embedding_length_per_layer_input")),
        "predicts": predicts,
        "in-turn": not header.find("use_parallel_residual"),
    }
    return frozenset(group for group, holds in found.items() if holds)


def _has_head(header: Header) -> bool:
    """Return whether a model has a head of its own, which one that embeds texts does not need."""
    facts = header.facts
    if header.source != CONFIG and header.arch.gguf in UNTIED:
        return True
    classes = facts.get("architectures")
    is_bare = isinstance(classes, list) and any(str(name).endswith("Model") for name in classes)
    return not (is_bare or facts.get("tie_word_embeddings") or facts.get("pooling_type"))


def _recurs(header: Header, layers: _Layers, layer: int) -> bool:
    """Return whether a layer has states instead of attention."""
    names = patterns(header.arch.rules)
    if "blk.{bid}.shortconv.conv.weight" in names:
        return header.count("attention.head_count_kv", layer) == 0
    if "blk.{bid}.ssm_out.weight" not in names:
        return False
    if header.find("attention.recurrent_layers") is not None:
        return bool(header.count("attention.recurrent_layers", layer))
    interval = header.count("full_attention_interval") or _INTERVAL
    return not layers.predicts(layer) and (layer + 1) % interval != 0
