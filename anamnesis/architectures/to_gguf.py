"""A Hugging Face directory seen as the GGUF model that llama.cpp's script makes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from anamnesis.architectures import operations
from anamnesis.architectures.arch import Arch, Group, filled, groups, patterns, split
from anamnesis.architectures.check import check_tensors, n_words, of_floats
from anamnesis.architectures.conversion_operations import Stack
from anamnesis.architectures.differences import check_biases, computed_otherwise
from anamnesis.architectures.header import Header
from anamnesis.architectures.keys import model_keys
from anamnesis.architectures.model_facts import Facts, malformed, read_facts
from anamnesis.architectures.pooling import TEMPLATE_KEYS, cut_head, is_reranker, pooling_type
from anamnesis.architectures.tokenizers.folder import Folder, is_as_seen
from anamnesis.architectures.tokenizers.read import read_vocabulary
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.base.patterns import chooser
from anamnesis.base.stored import Dropped
from anamnesis.schemes.detect.ledger import Ledger

if TYPE_CHECKING:
    from anamnesis.checkpoint.open import Checkpoint
    from anamnesis.schemes.core.weight import Weight

_OTHER = "of another modality, which is a file of its own in llama.cpp (mmproj)"
_IN_GGUF = re.compile(r"(blk|enc|dec)\.\d+\.|token_embd\.|output(_norm)?\.")

# Tensors of vision, audio and speech, as the converter knows them.
_OF_OTHERS_FIRST = (
    *("mlp", "vit.", "vpm.", "siglip2.", "conformer.", "merger.", "resampler."),
    *("sound_encoder.", "sound_projection.", "speech_embeddings."),
)
_OF_OTHERS = re.compile(
    r"visual\.|vision\.|audio\.|talker\.|vision_|audio_|token2wav\.|code2wav\.|projector\."
    r"|pre_mm_projector_norm|image_newline|view_seperator|patch_embed|patch_merger\."
    r"|patch_merge_mlp\.|model\.connector\."
)
_COMPUTED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")

# Tensors of two dimensions and more that ggml wants in F32, by their names' ends.
_IN_F32 = (
    *("_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.weight"),
    *("token_types.weight", "ssm_conv1d.weight", "shortconv.conv.weight"),
    *("altup_correct_coef.weight", "altup_predict_coef.weight", "attn_rel_b.weight"),
)


@dataclass(frozen=True, slots=True)
class AsGguf:
    """A model with the names and the keys of a GGUF."""

    arch: Arch
    ledger: Ledger
    metadata: dict[str, Any]
    names: dict[str, tuple[str, ...]]
    otherwise: tuple[str, ...]


def has_gguf_names(names: Iterable[str]) -> bool:
    """Return whether tensors are called as llama.cpp calls them."""
    return any(_IN_GGUF.match(name) for name in names)


def as_gguf(
    checkpoint: Checkpoint, ledger: Ledger, budget: Budget, tokenizer_pre: str | None = None
) -> AsGguf:
    """See a model as GGUF."""
    from anamnesis.architectures.general_keys import general_keys

    seen, facts, folder = weights_as_gguf(checkpoint, ledger, budget)
    weights = seen.ledger.weights
    shapes = {name: weight.shape for name, weight in weights.items() if prod(weight.shape)}
    said = {
        "general.architecture": {"type": "string", "value": seen.arch.gguf},
        "general.type": {"type": "string", "value": "model"},
        **general_keys(folder.root, facts.values, shapes, folder.budget),
        **seen.metadata,
    }
    said |= _vocabulary(checkpoint, folder, seen.arch, facts, tokenizer_pre)
    return replace(seen, metadata=said)


def weights_as_gguf(
    checkpoint: Checkpoint, ledger: Ledger, budget: Budget
) -> tuple[AsGguf, Facts, Folder]:
    """See the weights of a directory as in GGUF, with the keys of its architecture alone."""
    root = checkpoint.root
    assert root is not None
    folder = Folder(root, budget)  # which reads each of its files once
    return *tensors_as_gguf(checkpoint.config, ledger, folder), folder


def tensors_as_gguf(
    config: Mapping[str, Any], ledger: Ledger, folder: Folder | None = None
) -> tuple[AsGguf, Facts]:
    """See the tensors of a model as in GGUF, with the keys of its architecture alone."""
    # The folder says how a model pools, and whether it ranks texts: its head is cut then.
    from anamnesis.architectures.registry import arch_of_class

    arch = arch_of_class(config)
    facts = read_facts(config, arch.model_type, arch.derived)
    weights, dropped = _taken(ledger, arch, facts)
    facts.names = frozenset(weights)
    if arch.pools:
        facts.values["pooling_type"] = None if folder is None else pooling_type(folder)
    ranks = False
    if folder is not None and arch.ranks and is_reranker(folder, facts.values):
        ranks = True
        dropped += cut_head(weights, facts, folder)
    made, names = _weights(weights, arch, facts)
    keys = model_keys(arch, facts)
    check_biases(arch, made, names)
    _check(arch, facts, keys, made, names, ledger.dropped)
    otherwise, kept = computed_otherwise(arch, facts, keys, made)
    kept |= TEMPLATE_KEYS if ranks else {}
    seen = replace(ledger, weights=made, dropped=[*ledger.dropped, *dropped])
    return AsGguf(arch, seen, keys | kept, names, otherwise), facts


# --- weights --------------------------------------------------------------------------------------


def _taken(ledger: Ledger, arch: Arch, facts: Facts) -> tuple[dict[str, Weight], list[Dropped]]:
    """Return the weights of the text model, by the names that rules speak of, and what is not."""
    weights: dict[str, Weight] = {}
    dropped = []
    goes = chooser(arch.dropped) if arch.dropped else lambda name: False
    names = [name.replace("language_model.", "") for name in ledger.weights]
    facts.names = frozenset(names)
    for name, (stored, weight) in zip(names, ledger.weights.items(), strict=True):
        why = None
        if stored.startswith(_OF_OTHERS_FIRST) or _OF_OTHERS.search(stored):
            why = _OTHER
        elif stored.endswith(_COMPUTED):
            why = "llama.cpp computes it"
        elif goes(name) or arch.left(facts, name):
            why = "llama.cpp does not take it"
        if why is None:
            called = arch.naming.there(name, facts)
            if called in weights:
                raise ParseError(f"{stored!r} and {weights[called].name!r} are both {called!r}")
            weights[called] = of_floats(weight)
        else:
            dropped += [Dropped(part.name, why) for part in weight.parts]
    if not weights:
        raise UnsupportedError(f"none of the tensors is of {arch.gguf}'s text model")
    return weights, dropped


def _weights(
    weights: Mapping[str, Weight], arch: Arch, facts: Facts
) -> tuple[dict[str, Weight], dict[str, tuple[str, ...]]]:
    found, unclaimed = groups(weights, arch.rules)
    if unclaimed:
        raise UnsupportedError(
            f"{unclaimed[0]!r} is no tensor of {arch.gguf} as llama.cpp has it"
            + (f", nor are {len(unclaimed) - 1:,} more" if len(unclaimed) > 1 else ""),
            remedy="drop=... leaves tensors out; names='keep' writes all under the names they have",
        )
    made: dict[str, Weight] = {}
    names: dict[str, tuple[str, ...]] = {}
    for name, array in arch.extra(facts).items():
        made[name] = operations.constant(name, array, next(iter(weights.values())))
        names[name] = ()
    for group in found:
        for name, weight in _grouped(group, weights, facts):
            if name in made:
                raise ParseError(f"{group.names[0]!r} and {names[name][0]!r} are both {name!r}")
            is_f32 = len(weight.shape) < 2 or name.endswith(_IN_F32) or not name.endswith(".weight")
            made[name] = operations.widened(weight, name) if is_f32 else weight
            names[name] = tuple(weights[one].name for one in group.names)
    return made, names


def _grouped(
    group: Group, weights: Mapping[str, Weight], facts: Facts
) -> Iterator[tuple[str, Weight]]:
    rule, names, new = group
    made = [weights[name] for name in names]
    if "{xid}" in rule.hf:
        _check_count(group, facts)
    try:
        if rule.ops and not all(weight.shape for weight in made):
            raise ValueError(f"{made[0].name} has no dimensions")
        for op in rule.ops:
            made = op.there(made, facts)
    except ValueError as error:  # shapes that the facts of config.json do not fit
        raise malformed(str(error)) from None
    for name, weight in zip(new, made, strict=True):
        yield name, operations.renamed(weight, name)


def _check_count(group: Group, facts: Facts) -> None:
    """Refuse a layer that has other experts, or norms of heads, than those from 0 on."""
    rule, names, new = group
    fact = next(op.counts for op in rule.ops if isinstance(op, Stack))
    n, (layer, _) = facts.number(fact), split(new[0])
    suffix = "" if rule.exact else f".{names[0].rpartition('.')[2]}"
    for i in range(n):
        name = filled(rule.hf, layer, i) + suffix
        if i == len(names) or names[i] != name:
            raise malformed(f"{fact} is {n:,}, and {name!r} is missing")
    if len(names) > n:
        raise malformed(f"{fact} is {n:,}, and there is {names[n]!r}")


def _check(
    arch: Arch,
    facts: Facts,
    keys: Mapping[str, Any],
    weights: Mapping[str, Weight],
    names: Mapping[str, tuple[str, ...]],
    dropped: list[Dropped],
) -> None:
    """Refuse tensors that are not those that config.json says."""

    def find(name: str) -> Any:
        typed = keys.get(f"{arch.gguf}.{name}")
        return typed["value"] if isinstance(typed, Mapping) else typed

    def called(name: str) -> str:
        if name in names:
            return names[name][0] if names[name] else name
        layer, pattern = split(name)
        known, stem = patterns(arch.rules), pattern.removesuffix(".bias")
        hf = known.get(pattern) or known[f"{stem}.weight"].removesuffix("weight") + "bias"
        return arch.naming.back(filled(hf, layer), facts)

    check_tensors(Header(arch, find, facts, n_words(facts, weights)), weights, dropped, called)


# --- metadata -------------------------------------------------------------------------------------


def _vocabulary(
    checkpoint: Checkpoint, folder: Folder, arch: Arch, facts: Facts, pre: str | None
) -> dict[str, Any]:
    """Return the keys of the tokenizer, which a model keeps while its files stay what they are."""
    asked = (arch.vocabulary, pre, facts.values)
    kept = checkpoint.vocabulary
    if kept is None or kept[0] != asked or not is_as_seen(folder.root, kept[1]):
        kind, options = arch.vocabulary
        keys = read_vocabulary(folder, facts.values, kind, pre=pre, **options)
        checkpoint.vocabulary = kept = (asked, folder.seen, keys)
    found: dict[str, Any] = kept[2]
    return found
