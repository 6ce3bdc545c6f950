"""Two models compared: by headers, and by values if that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from anamnesis.base.limits import ParseLimits
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.compare.comparison import Compared, Comparison, State, Stored, Summary
from anamnesis.convert.compare.configs import config_changes, metadata_changes
from anamnesis.convert.compare.pairs import Matched, Pair, Side, match
from anamnesis.convert.compare.values import Values, compare_values
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger


class Input(NamedTuple):
    """A model, and what it is called."""

    path: str
    checkpoint: Checkpoint
    ledger: Ledger


def compare(a: Input, b: Input, limits: ParseLimits, how: How | None) -> Comparison:
    """Compare two models: their headers, and with `how` their values."""
    found = match((a.checkpoint, a.ledger), (b.checkpoint, b.ledger), limits)
    weights = _by_headers(found) if how is None else _by_values(found, how)
    for one in (a, b):
        one.checkpoint.check_unchanged()
    return Comparison(
        _summary(a, found.a, found.only_a),
        _summary(b, found.b, found.only_b),
        tuple(weights),
        config_changes(found.a, found.b),
        metadata_changes(found.a, found.b),
        tuple(found.notes),
        values=how is not None,
    )


def _by_headers(found: Matched) -> list[Compared]:
    def state(pair: Pair) -> State:
        if pair.a.shape != pair.b.shape:
            return "other shape"
        alike = pair.a.family == pair.b.family and pair.a.scheme == pair.b.scheme
        return "alike" if alike else "other encoding"

    return [_compared(found, pair, state(pair)) for pair in found.pairs]


def _by_values(found: Matched, how: How) -> list[Compared]:
    comparable = [pair for pair in found.pairs if pair.shape is not None]
    values = dict(zip(map(id, comparable), compare_values(comparable, how), strict=True))
    weights = []
    for pair in found.pairs:
        if pair.shape is None:
            weights.append(_compared(found, pair, "other shape"))
            continue
        one = values[id(pair)]
        made = _compared(found, pair, _state(pair, one), one.problem)
        weights.append(replace(made, difference=one.difference))
    return weights


def _state(pair: Pair, values: Values) -> State:
    if values.problem:
        return "not compared"
    if values.difference is None:
        return "same bytes"
    if values.difference.differing:
        return "differs"
    return "same values" if pair.a.shape == pair.b.shape else "more rows"


def _compared(found: Matched, pair: Pair, state: State, problem: str = "") -> Compared:
    notes = [pair.note, problem]
    for letter, side, weight in (("A", found.a, pair.a), ("B", found.b, pair.b)):
        if weight.name in side.joined:
            notes.append(f"{letter} has it as {side.joined[weight.name]:,} tensors")
    rows = [weight.shape[0] if weight.shape else 1 for weight in (pair.a, pair.b)]
    if pair.a.shape != pair.b.shape and pair.shape is not None:
        longer = "A" if rows[0] > rows[1] else "B"
        notes.append(f"{longer} has {abs(rows[0] - rows[1]):,} more rows, which are not compared")
    note = "; ".join(filter(None, notes))
    return Compared(pair.name, _stored(pair.a), _stored(pair.b), state, None, note)


def _stored(weight: Weight) -> Stored:
    return Stored(weight.family, weight.scheme, weight.shape, weight.n_bytes)


def _summary(given: Input, side: Side, only: Mapping[str, str]) -> Summary:
    kinds: dict[str, int] = {}
    for weight in given.ledger.weights.values():
        kinds[weight.family] = kinds.get(weight.family, 0) + weight.n_bytes
    return Summary(
        given.path,
        next(iter(given.checkpoint.shards.values())).format,
        len(given.ledger.weights),
        sum(tensor.n_bytes for tensor in given.ledger.stored.values()),
        kinds,
        dict(only),
        {dropped.name: dropped.reason for dropped in side.left},
        {name: str(error) for name, error in side.unread.items()},
    )
