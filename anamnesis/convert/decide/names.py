"""Which weights an output has: stacks of experts taken apart, or put together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.decide.possible import Move
from anamnesis.convert.decide.wish import Asked
from anamnesis.schemes.core.layout import Repack
from anamnesis.schemes.core.plain import plain_dtype
from anamnesis.schemes.core.plain_encoding import PlainEncoding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DType
    from anamnesis.schemes.libraries.stacked_experts import MadeStack

_KEEP = "experts='keep' leaves them as they are"
_IN_GGUF = re.compile(r"(^|\.)ffn_(gate|up|down|gate_up)_exps\.weight$")


class Named(NamedTuple):
    """The weights of an output, and which stacks of experts they are pieces or made of."""

    weights: list[Weight]
    stack_of: Mapping[str, str] = {}
    pieces_of: Mapping[str, tuple[str, ...]] = {}
    left: Mapping[str, str] = {}  # stacks that stay whole, and why

    @property
    def aliases(self) -> dict[str, str]:
        """By weight, what patterns may call it too: its stack, or a piece of it, all alike."""
        return {**self.stack_of, **{stack: pieces[0] for stack, pieces in self.pieces_of.items()}}

    @property
    def taken_apart(self) -> dict[str, int]:
        """Stacks of which the pieces are written, and how many."""
        names = {weight.name for weight in self.weights} if self.stack_of else set()
        found = ((piece, stack) for piece, stack in self.stack_of.items() if stack not in names)
        return dict(Counter(stack for piece, stack in found if piece in names))

    @property
    def put_together(self) -> dict[str, int]:
        """Stacks that are made of single experts, and of how many."""
        return {stack: len(pieces) for stack, pieces in self.pieces_of.items()}


# --- as tools do ----------------------------------------------------------------------------------


def taken_apart(
    named: Named, asked: Asked, ledger: Ledger, *, in_codes: bool = False
) -> tuple[Named, set[str]]:
    """Return the weights with stacks of experts as a tool saves them, and which are encoded so."""
    # A module is taken apart where something of it is to be encoded; what else there is of it stays
    # plain, matrix by matrix.
    from anamnesis.schemes.libraries.split_experts import stacked_experts

    tool = asked.experts_tool
    assert tool is not None  # nobody else takes any apart
    by_name = {weight.name: weight for weight in named.weights}
    stack_of, left = dict(named.stack_of), dict(named.left)
    pieces: dict[str, list[Weight]] = {}
    encoded: set[str] = set()
    for stacks in stacked_experts(by_name, tool, lambda: ledger.facts.types, in_codes=in_codes):
        if stacks.why_not is not None:
            left |= dict.fromkeys(stacks.names, stacks.why_not)
            continue
        try:
            made = stacks.taken_apart(by_name)
        except UnsupportedError:  # codes that cannot be cut stay whole
            continue
        stack_of |= _stacks_of(made)
        whys = {name: [_why_whole(one, name, asked) for one in made[name]] for name in made}
        wanted = {name for name, each in whys.items() if None in each}
        if wanted:
            pieces |= made
            encoded |= wanted
        else:
            left |= {name: each[0] or "" for name, each in whys.items()}
    left = {name: why for name, why in left.items() if name not in pieces}
    return Named(_replaced(named.weights, pieces), stack_of, left=left), encoded


def codes_apart(named: Named, asked: Asked, ledger: Ledger, moves: Mapping[str, Move]) -> Named:
    """Return the weights with all stacks in codes apart, if one of them is not moved whole."""
    if not named.left:
        return named
    from anamnesis.schemes.libraries.split_experts import IN_CODES

    moved = {name for name, move in moves.items() if isinstance(move, Repack)}
    if all(name in moved for name, why in named.left.items() if why == IN_CODES):
        return named
    apart, encoded = taken_apart(named, asked, ledger, in_codes=True)
    if encoded <= moved:
        return named._replace(left={**named.left, **apart.left})
    return apart


def _why_whole(piece: Weight, stack: str, asked: Asked) -> str | None:
    """Return why a matrix is no reason to take its stack apart; None if it is one."""
    wish = asked.wish(piece, stack)
    if wish.encoding is None or wish.encoding.layout.experts_tool is None:
        return "a stack of experts"
    if wish.pattern is not None or wish.refused is not None:
        return wish.refused
    return asked.fitted(piece, wish.encoding)[2]


def put_together(weights: list[Weight], asked: Asked, ledger: Ledger) -> Named:
    """Return the weights with experts as the stacks that the model's own class has."""
    if not any(".experts.0." in f".{weight.name}" for weight in weights):
        return Named(weights)
    from anamnesis.schemes.libraries.stacked_experts import joined_experts

    by_name = {weight.name: weight for weight in weights}
    return _with_stacks(
        weights, joined_experts(by_name, _dtype_of(asked), lambda: ledger.facts.types)
    )


# --- as is asked ----------------------------------------------------------------------------------


def as_asked(weights: list[Weight], asked: Asked, ledger: Ledger, container: str) -> Named:
    """Return the weights with experts as is asked: stacked, split, or as they are."""
    way = asked.request.experts
    if way == "keep":
        return Named(weights)
    split = way == "split"
    named = (
        _all_taken_apart(weights, ledger) if split else _all_put_together(weights, asked, ledger)
    )
    changed = [*named.taken_apart, *named.pieces_of] if container == "gguf" else []
    if split:
        changed += [weight.name for weight in weights if _IN_GGUF.search(weight.name)]
    if changed:
        raise UnsupportedError(
            f"{changed[0]!r}: GGUF has experts as stacks under names of its own,"
            " which stay as they are",
            remedy=_KEEP,
        )
    return named


def _all_taken_apart(weights: list[Weight], ledger: Ledger) -> Named:
    """Return the weights with every stack as matrices, of codes too."""
    from anamnesis.schemes.libraries.split_experts import every_stack

    by_name = {weight.name: weight for weight in weights}
    pieces: dict[str, list[Weight]] = {}
    for stacks in every_stack(by_name, ledger.facts.types):
        pieces |= stacks.taken_apart(by_name)
    stack_of = _stacks_of(pieces)
    for name, stack in stack_of.items():
        if name in by_name:
            raise UnsupportedError(
                f"{stack!r} cannot be taken apart: there is a weight {name!r} already",
                remedy=_KEEP,
            )
    return Named(_replaced(weights, pieces), stack_of)


def _all_put_together(weights: list[Weight], asked: Asked, ledger: Ledger) -> Named:
    """Return the weights with all single experts as stacks, all of which are asked for alike."""
    # Codes are joined where they lie, because they may be moved.
    from anamnesis.schemes.libraries.stacked_experts import every_stack_of_singles

    encoding = asked.request.encoding
    by_name = {weight.name: weight for weight in weights}
    made = every_stack_of_singles(
        by_name,
        _dtype_of(asked),
        ledger.facts.types,
        (None if encoding is None else encoding.layout.stacks_of) or "transformers",
        in_codes=encoding is not None or bool(asked.request.overrides),
    )
    named = _with_stacks(weights, made)
    for stack, names in named.pieces_of.items():
        wishes, why = [asked.wish(by_name[name]) for name in names], None
        if len({(wish.pattern, wish.refused) for wish in wishes}) > 1:
            why = "its pieces are asked for in different ways"
        elif wishes[0].keeps:
            why = "its pieces are to be kept as they are stored"
        elif (way := None if wishes[0].refused else wishes[0].encoding) is not None:
            has_stacks = way.layout.stacks_of is not None or isinstance(way, PlainEncoding)
            fits = (asked.fitted(by_name[name], way)[2] is None for name in names)
            if not has_stacks and any(fits):
                why = f"{way.id} has no stacks of experts"
        if why is not None:
            raise UnsupportedError(f"{stack!r} cannot be put together: {why}", remedy=_KEEP)
    return named


def _dtype_of(asked: Asked) -> Callable[[Weight], DType]:
    """Return what a matrix is written as that becomes a piece of a stack."""
    dtype, cast = asked.request.dtype, asked.request.cast_all
    return lambda weight: plain_dtype(weight.own_dtype, dtype, cast=cast)


# --- lists of weights -----------------------------------------------------------------------------


def _stacks_of(pieces: Mapping[str, list[Weight]]) -> dict[str, str]:
    return {piece.name: stack for stack, made in pieces.items() for piece in made}


def _replaced(weights: list[Weight], others: Mapping[str, list[Weight]]) -> list[Weight]:
    return [one for weight in weights for one in others.get(weight.name, [weight])]


def _with_stacks(weights: list[Weight], made: Iterable[MadeStack]) -> Named:
    place: dict[str, list[Weight]] = {}
    pieces_of = {}
    for stack, pieces in made:
        place |= {name: [] for name in pieces} | {pieces[0]: [stack]}
        pieces_of[stack.name] = pieces
    return Named(_replaced(weights, place), pieces_of=pieces_of)
