"""A Hugging Face directory seen as the GGUF model that llama.cpp's script makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from anamnesis.architectures import operations
from anamnesis.architectures.arch import Arch
from anamnesis.architectures.check import check_sizes
from anamnesis.architectures.facts import CONFIG, Facts, read_facts
from anamnesis.architectures.keys import model_keys
from anamnesis.architectures.llama_cpp import check_biases, computed_otherwise
from anamnesis.architectures.names import Group, groups
from anamnesis.architectures.ops import Stack
from anamnesis.architectures.pooling import pooling_type
from anamnesis.architectures.reranker import TEMPLATE_KEYS, cut_head, is_reranker
from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.base.patterns import chooser
from anamnesis.schemes.claim.ledger import Ledger

if TYPE_CHECKING:
    from anamnesis.checkpoint.open import Checkpoint
    from anamnesis.schemes.core.weight import Weight

__all__ = ["AsGguf", "as_gguf", "has_gguf_names"]

_OTHER = "of another modality, which is a file of its own in llama.cpp (mmproj)"
_COMPUTES = "llama.cpp computes it"
_NOT_TAKEN = "llama.cpp does not take it"
_IN_GGUF = re.compile(r"(blk|enc|dec)\.\d+\.|token_embd\.|output(_norm)?\.")

# Tensors of vision, audio and speech, as the converter knows them.
_OF_OTHERS_FIRST = (
    *("mlp", "vit.", "vpm.", "siglip2.", "conformer.", "merger.", "resampler."),
    *("sound_encoder.", "sound_projection.", "speech_embeddings."),
)
_OF_OTHERS = (
    *("visual.", "vision.", "audio.", "talker.", "vision_", "audio_", "token2wav.", "code2wav."),
    *("projector.", "pre_mm_projector_norm", "image_newline", "view_seperator", "patch_embed"),
    *("patch_merger.", "patch_merge_mlp.", "model.connector."),
)
_COMPUTED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")

# Tensors of two dimensions and more that ggml wants in F32, by their names' ends.
_IN_F32 = (
    *("_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.weight"),
    *("token_types.weight", "ssm_conv1d.weight", "shortconv.conv.weight"),
    *("altup_correct_coef.weight", "altup_predict_coef.weight"),
)


@dataclass(frozen=True, slots=True)
class AsGguf:
    """A model as GGUF has it.

    Attributes
    ----------
    arch : Arch
    ledger : Ledger
        Its weights under llama.cpp's names; what is not taken is among those dropped.
    metadata : dict
        Typed values by key, in the converter's order, without `general.file_type`.
    names : dict of str to tuple of str
        Of each weight, the names of those that it is made of.
    otherwise : tuple of str
        What llama.cpp computes otherwise than the class of transformers does.
    """

    arch: Arch
    ledger: Ledger
    metadata: dict[str, Any]
    names: dict[str, tuple[str, ...]]
    otherwise: tuple[str, ...]


def has_gguf_names(names: Mapping[str, object]) -> bool:
    """Tell whether tensors are called as llama.cpp calls them."""
    return any(_IN_GGUF.match(name) for name in names)


def as_gguf(
    checkpoint: Checkpoint, ledger: Ledger, budget: Budget, tokenizer_pre: str | None = None
) -> AsGguf:
    """See a model as GGUF.

    Parameters
    ----------
    checkpoint : Checkpoint
        Of a directory with config.json.
    ledger : Ledger
    budget : Budget
        What reading tokenizers may cost.
    tokenizer_pre : str, optional
        The name of the pre-tokenizer, where files do not tell.

    Raises
    ------
    UnsupportedError
        If the architecture is not known, a tensor is none of it, or something else is not.
    ParseError, LimitExceeded
        If config.json or a tokenizer's file is malformed, lacks what is needed, or is too large.
    """
    from anamnesis.architectures.rows import arch_of_class  # only here: a large table

    assert checkpoint.root is not None
    arch = arch_of_class(checkpoint.config)
    facts = read_facts(checkpoint.config, arch)
    weights, dropped = _taken(ledger, arch, facts)
    facts.names = frozenset(weights)
    if arch.pools:
        facts.values["pooling_type"] = pooling_type(checkpoint.root, budget)
    ranks = arch.ranks and is_reranker(checkpoint.root, facts.values, budget)
    if ranks:
        dropped += cut_head(weights, facts, checkpoint.root, budget)
    made, names = _weights(weights, arch, facts)
    keys = model_keys(arch, facts)
    check_sizes(arch, keys, made)
    check_biases(arch, made, names)
    otherwise, kept = computed_otherwise(arch, facts, keys, made)
    kept |= TEMPLATE_KEYS if ranks else {}
    metadata = _metadata(checkpoint, arch, facts, made, keys | kept, budget, tokenizer_pre)
    seen = replace(ledger, weights=made, dropped=[*ledger.dropped, *dropped])
    return AsGguf(arch, seen, metadata, names, otherwise)


# --- weights --------------------------------------------------------------------------------------


def _taken(ledger: Ledger, arch: Arch, facts: Facts) -> tuple[dict[str, Weight], list[Dropped]]:
    """Return the weights of the text model, by the names that rules speak of, and what is not."""
    weights: dict[str, Weight] = {}
    dropped = []
    goes = chooser(arch.dropped) if arch.dropped else lambda name: False
    for stored, weight in ledger.weights.items():
        name = stored.replace("language_model.", "")
        why = _why_left(stored)
        if why is None and (goes(name) or (arch.left is not None and arch.left(facts, name))):
            why = _NOT_TAKEN
        if why is None:
            weights[arch.naming.there(name, facts) if arch.naming else name] = weight
        else:
            dropped += [Dropped(part.name, why) for part in weight.parts]
    return weights, dropped


def _why_left(name: str) -> str | None:
    if name.startswith(_OF_OTHERS_FIRST) or any(word in name for word in _OF_OTHERS):
        return _OTHER
    return _COMPUTES if name.endswith(_COMPUTED) else None


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
    for name, weight in _extra(arch, facts, next(iter(weights.values()))):
        made[name], names[name] = weight, ()
    for group in found:
        for name, weight in _grouped(group, weights, facts):
            if name in made:
                raise ParseError(f"{group.names[0]!r} and {names[name][0]!r} are both {name!r}")
            made[name], names[name] = _in_ggmls_dtype(name, weight), group.names
    return made, names


def _grouped(
    group: Group, weights: Mapping[str, Weight], facts: Facts
) -> Iterator[tuple[str, Weight]]:
    rule, names, new = group
    made = [weights[name] for name in names]
    if "{xid}" in rule.hf:
        _check_count(group, facts)
    try:
        for op in rule.ops:
            made = op.there(made, facts)
    except ValueError as error:  # shapes that the facts of config.json do not fit
        raise ParseError(str(error), source=CONFIG) from None
    for name, weight in zip(new, made, strict=True):
        yield name, operations.renamed(weight, name)


def _check_count(group: Group, facts: Facts) -> None:
    """Refuse a layer that lacks an expert, or a head's norm."""
    n = next(facts.number(*op.counts) for op in group.rule.ops if isinstance(op, Stack))
    if len(group.names) != n:
        raise ParseError(
            f"{group.new[0]!r} is made of {n} tensors, of which {len(group.names)} are there:"
            f" {group.names[0]!r}, …"
        )


def _extra(arch: Arch, facts: Facts, like: Weight) -> Iterator[tuple[str, Weight]]:
    if arch.extra is not None:
        for name, array in arch.extra(facts).items():
            yield name, operations.constant(name, array, like)


def _in_ggmls_dtype(name: str, weight: Weight) -> Weight:
    """Return a weight whose own dtype is F32 where ggml takes no other."""
    is_f32 = len(weight.shape) <= 1 or name.endswith(_IN_F32) or not name.endswith(".weight")
    return operations.widened(weight, name) if is_f32 else weight


# --- metadata -------------------------------------------------------------------------------------


def _metadata(
    checkpoint: Checkpoint,
    arch: Arch,
    facts: Facts,
    weights: Mapping[str, Weight],
    keys: Mapping[str, Any],
    budget: Budget,
    tokenizer_pre: str | None,
) -> dict[str, Any]:
    from anamnesis.architectures.general import general_keys
    from anamnesis.architectures.tokenizers.read import read_vocabulary

    root = checkpoint.root
    assert root is not None
    vocabulary = arch.vocabulary
    return {
        "general.architecture": {"type": "string", "value": arch.gguf},
        "general.type": {"type": "string", "value": "model"},
        **general_keys(root, facts.values, _shapes(weights), budget),
        **keys,
        **read_vocabulary(
            root, facts.values, vocabulary.kind, budget, pre=tokenizer_pre, **vocabulary.options
        ),
    }


def _shapes(weights: Mapping[str, Weight]) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in weights.items() if prod(weight.shape)}
