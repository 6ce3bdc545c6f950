"""Two models compared: by headers and config, and by values if asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import ParseLimits
from anamnesis.checkpoint.metadata import all_metadata
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.compare import comparison
from anamnesis.convert.compare.pairs import Matched, Pair, Side, match
from anamnesis.convert.compare.values import Values, compare_values
from anamnesis.convert.request.request import How
from anamnesis.formats.base import CARRIED_HEADER
from anamnesis.formats.gguf.values import untyped
from anamnesis.schemes.detect.ledger import Ledger

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


class Input(NamedTuple):
    """A model, and what it is called."""

    path: str
    checkpoint: Checkpoint
    ledger: Ledger


def compare(a: Input, b: Input, limits: ParseLimits, how: How | None) -> comparison.Comparison:
    """Compare two models: their headers, and with `how` their values."""
    found = match((a.checkpoint, a.ledger), (b.checkpoint, b.ledger), limits)
    values: dict[int, Values] = {}
    if how is not None:
        comparable = [pair for pair in found.pairs if pair.shape is not None]
        values = dict(zip(map(id, comparable), compare_values(comparable, how), strict=True))
    for one in (a, b):
        one.checkpoint.check_unchanged()
    return comparison.Comparison(
        _summary(a, found.a, found.only_a),
        _summary(b, found.b, found.only_b),
        tuple([_compared(found, pair, values.get(id(pair))) for pair in found.pairs]),
        config_changes(found.a, found.b),
        metadata_changes(found.a, found.b),
        tuple(found.notes),
        values=how is not None,
    )


def _state(pair: Pair, values: Values | None) -> comparison.State:
    if values is None:  # only headers, or other shapes
        if pair.a.shape != pair.b.shape:
            return "other shape"
        alike = pair.a.family == pair.b.family and pair.a.scheme == pair.b.scheme
        return "alike" if alike else "other encoding"
    if values.problem:
        return "not compared"
    if values.difference is None:
        return "same bytes"
    if values.difference.differing:
        return "differs"
    return "same values" if pair.a.shape == pair.b.shape else "more rows"


def _compared(found: Matched, pair: Pair, values: Values | None) -> comparison.Compared:
    notes = [pair.note, values.problem if values else ""]
    for letter, side, weight in (("A", found.a, pair.a), ("B", found.b, pair.b)):
        if weight.name in side.joined:
            notes.append(f"{letter} has it as {side.joined[weight.name]:,} tensors")
    rows = [weight.shape[0] if weight.shape else 1 for weight in (pair.a, pair.b)]
    if pair.a.shape != pair.b.shape and pair.shape is not None:
        longer = "A" if rows[0] > rows[1] else "B"
        notes.append(f"{longer} has {abs(rows[0] - rows[1]):,} more rows, which are not compared")
    note = "; ".join(filter(None, notes))
    difference = values.difference if values else None
    a, b = (
        comparison.Stored(weight.family, weight.scheme, weight.shape, weight.n_bytes)
        for weight in (pair.a, pair.b)
    )
    return comparison.Compared(pair.name, a, b, _state(pair, values), difference, note)


def _summary(given: Input, side: Side, only: Mapping[str, str]) -> comparison.Summary:
    kinds: dict[str, int] = {}
    for weight in given.ledger.weights.values():
        kinds[weight.family] = kinds.get(weight.family, 0) + weight.n_bytes
    return comparison.Summary(
        given.path,
        next(iter(given.checkpoint.shards.values())).format,
        len(given.ledger.weights),
        sum(tensor.n_bytes for tensor in given.ledger.stored.values()),
        kinds,
        dict(only),
        {dropped.name: dropped.reason for dropped in side.left},
        {name: str(error) for name, error in side.unread.items()},
    )


def config_changes(a: Side, b: Side) -> tuple[comparison.Change, ...]:
    """Return what the configs say otherwise; of a GGUF the keys of its architecture."""
    both = [_facts(side) for side in (a, b)]
    if None in both:
        return ()
    first, second = (found or {} for found in both)
    if a.keys is not None or b.keys is not None:  # which only one has says nothing
        first = {key: value for key, value in first.items() if key in second}
        second = {key: value for key, value in second.items() if key in first}
    return tuple(_changes(first, second))


def metadata_changes(a: Side, b: Side) -> tuple[comparison.Change, ...]:
    """Return what metadata of files say otherwise, if both are of one format."""
    if {c.id for c in a.checkpoint.shards.values()} != {c.id for c in b.checkpoint.shards.values()}:
        return ()
    both = [all_metadata(side.checkpoint.shards.values()) for side in (a, b)]
    first, second = ({k: one[k] for k in one if k != CARRIED_HEADER} for one in both)
    return tuple(_changes(first, second))


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


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[comparison.Change]:
    for key in {**a, **b}:
        one, other = (side.get(key) for side in (a, b))
        if not _are_equal(one, other):
            yield comparison.Change(key, _shown(one, other), _shown(other, one))


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
