"""What config.json and metadata of two models say otherwise, by meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anamnesis.base.errors import AnamnesisError
from anamnesis.checkpoint.metadata import all_metadata
from anamnesis.convert.compare.comparison import Change
from anamnesis.convert.compare.pairs import Side
from anamnesis.formats.base import CARRIED_HEADER
from anamnesis.formats.gguf.values import untyped

# What says how weights are encoded, or who wrote the file, and what is compared as the rope below.
_LEFT = {
    *("quantization_config", "compression_config", "quantization", "dtype", "torch_dtype"),
    *("transformers_version", "_name_or_path", "architectures", "_attn_implementation"),
    *("rope_parameters", "rope_scaling", "rope_theta", "text_config"),
    # Of training, and of how a program runs it.
    *("attention_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob", "hidden_dropout"),
    *("embd_pdrop", "resid_pdrop", "attn_pdrop", "classifier_dropout", "initializer_range"),
    *("router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "pretraining_tp"),
    *("use_cache", "output_router_logits", "output_attentions", "output_hidden_states"),
    *("return_dict", "gradient_checkpointing"),
}
_OTHERS = ("general", "tokenizer", "split", "quantize")  # keys of a GGUF, of no architecture
_ARRAY = 8  # items of an array that are shown


def config_changes(a: Side, b: Side) -> tuple[Change, ...]:
    """Return what the configs say otherwise; of a GGUF the keys of its architecture."""
    both = [_facts(side) for side in (a, b)]
    if None in both:
        return ()
    first, second = (found or {} for found in both)
    if a.keys is not None or b.keys is not None:  # which only one has says nothing
        first = {key: value for key, value in first.items() if key in second}
        second = {key: value for key, value in second.items() if key in first}
    return tuple(_changes(first, second))


def metadata_changes(a: Side, b: Side) -> tuple[Change, ...]:
    """Return what metadata of files say otherwise, if both are of one format."""
    if {c.id for c in a.checkpoint.shards.values()} != {c.id for c in b.checkpoint.shards.values()}:
        return ()
    first, second = (_metadata(side) for side in (a, b))
    return tuple(_changes(first, second))


def _metadata(side: Side) -> dict[str, Any]:
    found = all_metadata(side.checkpoint.shards.values())
    return {key: found[key] for key in found if key != CARRIED_HEADER}


def _facts(side: Side) -> dict[str, Any] | None:
    """Return what a model says of itself, in one spelling; None where it says nothing."""
    if side.keys is not None:
        return _of_architecture(untyped(dict(side.keys)))
    if side.checkpoint.self_contained:
        return _of_architecture(all_metadata(side.checkpoint.shards.values()))
    if not side.config:
        return None
    from anamnesis.architectures.model_facts import read_facts

    try:
        facts = read_facts(side.config, "", None)
    except AnamnesisError:  # it contradicts itself
        return dict(_flat(side.config))
    said = {key: value for key, value in facts.values.items() if key not in _LEFT}
    return dict(_flat({**said, "rope": facts.rope, "local_rope": facts.local_rope}))


def _of_architecture(metadata: Mapping[str, Any]) -> dict[str, Any]:
    name = f"{metadata.get('general.architecture')}."
    keys = [key for key in metadata if key.startswith(name) or name == "None."]
    return {key: metadata[key] for key in keys if key.partition(".")[0] not in _OTHERS}


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in (None, {}):
            yield f"{prefix}{key}", value


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Change]:
    for key in {**a, **b}:
        one, other = (side.get(key) for side in (a, b))
        if not _are_equal(one, other):
            yield Change(key, _shown(one, other), _shown(other, one))


def _are_equal(a: Any, b: Any) -> bool:
    if type(a) is float or type(b) is float:
        a, b = _float32(a), _float32(b)
        return bool(a == b or (a != a and b != b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_are_equal, a, b))
    return bool(a == b)


def _float32(value: Any) -> Any:
    """Return a number as GGUF has it."""
    import struct

    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except (struct.error, OverflowError):
        return value


def _shown(value: Any, other: Any) -> Any:
    """Return a value; of a long array how long it is, and where it first differs."""
    if not isinstance(value, list) or len(value) <= _ARRAY:
        return value
    if not isinstance(other, list):
        return f"{len(value):,} items"
    pairs = enumerate(zip(value, other, strict=False))
    at = next((i for i, (x, y) in pairs if not _are_equal(x, y)), min(len(value), len(other)))
    return f"{len(value):,} items, item {at:,} {value[at] if at < len(value) else 'missing'!r}"
