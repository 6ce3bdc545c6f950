"""Weights of two models matched one by one, under whatever names they have.

A directory is seen as GGUF beside a GGUF; names may lie below another prefix, experts be stacks or
single, a head be the embeddings, and a vocabulary be padded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.base.printable import shortened
from anamnesis.base.stored import Dropped
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.mtp import drafts_of
from anamnesis.schemes.libraries.sections import typed_sections
from anamnesis.schemes.libraries.tied_heads import EMBEDDINGS, head_of, says_tied

if TYPE_CHECKING:
    from anamnesis.architectures.to_gguf import AsGguf

_VOCABULARY = re.compile(
    r"embed|wte|shared\.weight|lm_head|output\.weight|head|decoder\.(weight|bias)"
)
_MOST_OF_PREFIX = 3  # words that one model has before its names, and the other has not
_MOST_PREFIXES = 16  # that are tried
_MOST_ALIKE = 8  # names of one shape that end alike: of more nothing says which are the same


@dataclass(slots=True, eq=False)
class Side:
    """One of two models: its weights, and what was left out to see it as the other one is."""

    checkpoint: Checkpoint
    weights: dict[str, Weight]
    config: Mapping[str, Any]
    unread: Mapping[str, AnamnesisError]
    left: list[Dropped] = field(default_factory=list)
    keys: Mapping[str, Any] | None = None  # of the GGUF that it is seen as
    joined: dict[str, int] = field(default_factory=dict)  # stacks, and of how many they are made


class Pair(NamedTuple):
    """A weight that both models have."""

    name: str
    a: Weight
    b: Weight
    note: str = ""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of what both have: all of it, or the rows of the shorter vocabulary."""
        a, b = self.a.shape, self.b.shape
        if a == b:
            return a
        if len(a) == len(b) and len(a) > 0 and a[1:] == b[1:] and _VOCABULARY.search(self.name):
            return (min(a[0], b[0]), *a[1:])
        return None


class Matched(NamedTuple):
    """The weights that both models have, those that one has, and how they were found."""

    pairs: list[Pair]
    only_a: dict[str, str]  # with what they are, where that is known
    only_b: dict[str, str]
    a: Side
    b: Side
    notes: list[str]


def side_of(checkpoint: Checkpoint, ledger: Ledger) -> Side:
    """Return a model as it is; what cannot be decoded is compared as it is stored."""
    config = {} if checkpoint.self_contained else checkpoint.read_config()
    return Side(checkpoint, {**ledger.weights, **unread(ledger)}, config, ledger.problems)


def unread(ledger: Ledger) -> dict[str, Weight]:
    """Return the stored tensors that cannot be decoded, as weights by themselves."""
    stored = (ledger.stored.get(name) for name in ledger.problems if name not in ledger.weights)
    return {one.name: Plain(one.name, one.shape, (one,)) for one in stored if one is not None}


def match(
    a: tuple[Checkpoint, Ledger], b: tuple[Checkpoint, Ledger], limits: ParseLimits
) -> Matched:
    """Return the weights of two models, matched one by one."""
    notes: list[str] = []
    sides = _of_one_kind([side_of(*a), side_of(*b)], [a[1], b[1]], limits, notes)
    types = frozenset(kind for side in sides for _, kind in typed_sections(side.config, 1))
    for one, other in (sides, sides[::-1]):
        _join_experts(one, other, types)
    _take_apart(sides, types)
    first, second = sides
    _rename(first, second, notes)
    pairs = [Pair(n, w, second.weights[n]) for n, w in first.weights.items() if n in second.weights]
    only = [
        {name: "" for name in one.weights if name not in other.weights}
        for one, other in (sides, sides[::-1])
    ]
    for i, (one, other) in enumerate((sides, sides[::-1])):
        for name, embeddings in _tied(one, other, only[i]):
            own, tied = one.weights[name], other.weights[embeddings]
            note = f"{'AB'[1 - i]} has it as {embeddings}"
            pairs.append(Pair(name, *((tied, own) if i else (own, tied)), note))
            del only[i][name]
        only[i] |= dict.fromkeys(drafts_of(only[i], one.config), "drafts tokens (MTP)")
    return Matched(pairs, only[0], only[1], first, second, notes)


# --- one seen as the other ------------------------------------------------------------------------


def _of_one_kind(
    sides: list[Side], ledgers: list[Ledger], limits: ParseLimits, notes: list[str]
) -> list[Side]:
    """Return both under llama.cpp's names, where one has these and the other has not."""
    from anamnesis.architectures.to_gguf import has_gguf_names

    are_gguf = [side.checkpoint.self_contained and has_gguf_names(side.weights) for side in sides]
    if are_gguf[0] is are_gguf[1]:
        return sides
    i = are_gguf.index(False)
    if has_gguf_names(sides[i].weights):
        return sides
    try:
        seen = seen_as_gguf(sides[i].checkpoint, ledgers[i], limits)
    except AnamnesisError as error:
        notes.append(f"{'AB'[i]} is not seen as GGUF: {error}")
        return sides
    sides[i] = replace(
        sides[i],
        weights=seen.ledger.weights,
        left=seen.ledger.dropped[len(ledgers[i].dropped) :],
        keys=seen.metadata,
        joined={name: len(made) for name, made in seen.names.items() if len(made) > 1},
    )
    notes.append(f"{'AB'[i]} is seen under llama.cpp's names")
    return sides


def seen_as_gguf(checkpoint: Checkpoint, ledger: Ledger, limits: ParseLimits) -> AsGguf:
    """Return the weights of a model of transformers as llama.cpp has them."""
    from anamnesis.architectures.to_gguf import tensors_as_gguf, weights_as_gguf

    if checkpoint.root is None:
        return tensors_as_gguf(checkpoint.read_config(), ledger)[0]
    checkpoint.complete()
    with checkpoint.named():
        return weights_as_gguf(checkpoint, ledger, Budget(limits))[0]


# --- experts --------------------------------------------------------------------------------------


def _join_experts(one: Side, other: Side, types: frozenset[str]) -> None:
    """Put experts together that one model has one by one, and the other as stacks."""
    if not any(".experts.0." in name for name in one.weights):
        return
    from anamnesis.schemes.libraries.stacked_experts import every_stack_of_singles

    for stacks in ("transformers", "mlx-lm"):
        try:
            made = list(
                every_stack_of_singles(
                    one.weights, lambda weight: DTYPES["F32"], types, stacks, in_codes=False
                )
            )
        except UnsupportedError:
            continue
        made = [stack for stack in made if stack.stack.name in other.weights]
        for stack, pieces in made:
            for name in pieces:
                del one.weights[name]
            one.weights[stack.name] = stack
            one.joined[stack.name] = len(pieces)
        if made:
            return


def _take_apart(sides: list[Side], types: frozenset[str]) -> None:
    """Take stacks apart that both models have, each in its own way."""
    from anamnesis.schemes.libraries.split_experts import every_stack

    made: list[dict[str, list[Weight]]] = []
    for one, other in (sides, sides[::-1]):
        only = {name: w for name, w in one.weights.items() if name not in other.weights}
        try:
            found = [stacks.taken_apart(only) for stacks in every_stack(only, types)]
        except UnsupportedError:
            return
        made.append({name: pieces for some in found for name, pieces in some.items()})
    if not all(made):  # what one of them alone has as stacks, the other lacks
        return
    for side, pieces in zip(sides, made, strict=True):
        side.weights = {
            one.name: one
            for name, weight in side.weights.items()
            for one in pieces.get(name, [weight])
        }


# --- names ----------------------------------------------------------------------------------------


def _rename(a: Side, b: Side, notes: list[str]) -> None:
    """Let weights of B that lie below another prefix have A's names."""
    for _ in range(_MOST_PREFIXES):
        ends = [_prefixes(one, other) for one, other in ((a, b), (b, a))]
        votes: Counter[tuple[str, str]] = Counter()
        for end in ends[0].keys() & ends[1].keys():
            if max(len(prefixes[end]) for prefixes in ends) <= _MOST_ALIKE:
                votes.update(product(ends[0][end], ends[1][end]))
        best = max(votes.items(), key=lambda vote: (vote[1], -len("".join(vote[0]))), default=None)
        if best is None or (best[1] == 1 and all(best[0])):  # which may be another's
            return
        of_a, of_b = best[0]
        found = {}
        for name, weight in b.weights.items():
            other = of_a + name.removeprefix(of_b)
            is_one = name.startswith(of_b) and name not in a.weights and other not in b.weights
            found[other if is_one and other in a.weights else name] = weight
        b.weights = found
        below = [shortened(prefix) or "nothing" for prefix in best[0]]
        notes.append(f"names below {below[1]} in B are those below {below[0]} in A")


def _prefixes(one: Side, other: Side) -> dict[tuple[str, tuple[int, ...]], list[str]]:
    """Return what stands before each end of a name that the other model has not, by its shape."""
    found: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for name, weight in one.weights.items():
        if name not in other.weights:
            for prefix, end in _cut(name):
                found.setdefault((end, weight.shape), []).append(prefix)
    return found


def _cut(name: str) -> Iterator[tuple[str, str]]:
    """Yield a name in two: none to a few of its words, with their dots, and the rest of it."""
    at = 0
    for _ in range(_MOST_OF_PREFIX + 1):
        yield name[:at], name[at:]
        at = name.find(".", at) + 1
        word, dot, _ = name[at:].partition(".")
        if not (at and dot and any(c.isalpha() for c in word)):
            return


def _tied(one: Side, other: Side, only: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a head that one model alone has, and what the other has in its place."""
    heads = (f"{head_of(one.config or other.config) or 'lm_head'}.weight", "output.weight")
    if any(name in other.weights for name in heads) or says_tied(other.config) is False:
        return
    found = next(filter(EMBEDDINGS.fullmatch, other.weights), None)
    width = () if found is None else other.weights[found].shape[1:]
    for name in heads:
        if found is not None and name in only and one.weights[name].shape[1:] == width:
            yield name, found
