"""What becomes of a weight: what is asked for, as far as it is possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.convert.decide.wish import Asked, Wish
from anamnesis.convert.request.request import Request
from anamnesis.formats.base import Writer
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Repack, Unmovable
from anamnesis.schemes.core.plain import Edited, Moved, Plain, plain_dtype
from anamnesis.schemes.core.plain_encoding import PlainEncoding, plain_encoding
from anamnesis.schemes.core.weight import Weight

_SHORT = 1 << 20  # bytes of what a layout makes anew: shapes, second scales, markers, orders
_MAY_LOSE = "exclude it, or leave out lossless=True"

Move = Repack | Unmovable  # of a weight's own codes, or why they are not moved
_Made = tuple["Kind", "tuple[Piece, ...]"]
Kind = Literal[
    "copied",  # its values, as they are stored
    "cast",  # its values, in another dtype
    "decoded",  # values of its codes
    "typed",  # values, in a dtype that is asked for by name
    "quantised",  # codes of its values
    "requantised",  # codes of what other codes decode to
    "moved",  # its own codes in another layout
    "blocks",  # in the blocks that it is stored in, which the format has
    "kept",  # all that it is stored as, byte for byte
    "passed",  # a tensor that nobody can read
]


class Piece(NamedTuple):
    """What a weight is written as: one or more tensors, of one encoding."""

    weight: Weight
    encoding: Encoding
    name: str
    is_plain: bool = True
    is_moved: bool = False

    @property
    def dtype(self) -> DType:
        """What its first tensor is stored in."""
        return self.encoding.parts(self.name, self.weight.shape)[0].dtype


class Fate(NamedTuple):
    """What becomes of a weight."""

    weight: Weight
    kind: Kind
    piece: Piece
    why: str | None = None  # it is plain although an encoding is asked for
    wish: Wish = Wish()
    move: Move | None = None
    rest: tuple[Piece, ...] = ()  # of what is written as several: one tuple less for most weights

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (self.piece, *self.rest)

    @property
    def repack(self) -> Repack | None:
        """Its own codes in another layout, if that is what becomes of it."""
        return self.move if self.kind == "moved" and isinstance(self.move, Repack) else None

    @property
    def unmovable(self) -> Unmovable | None:
        """Why its own codes are not moved, if they are of the kind that is asked for."""
        return self.move if isinstance(self.move, Unmovable) else None

    @property
    def is_beside(self) -> bool:
        """Whether codes are moved to settings of their own, though others could be quantised."""
        ways = self.wish.ways
        if self.kind != "moved" or self.repack is None or ways[0].codes is None:
            return False
        return {one.id for one in self.repack.encodings}.isdisjoint(way.id for way in ways)


def moves_of(weights: Iterable[Weight], wishes: Iterable[Wish]) -> dict[str, Move]:
    """Return whose own codes can be moved; an encoding is asked of all its weights at once."""
    by_way: dict[str, tuple[Encoding, list[Weight]]] = {}
    for weight, wish in zip(weights, wishes, strict=True):
        for way in wish.ways:
            by_way.setdefault(way.id, (way, []))[1].append(weight)
    found: dict[str, Move] = {}
    for way, some in by_way.values():
        for name, move in way.repacks(some).items():
            if isinstance(move, Unmovable) and way.codes is None and not move.is_cast:
                raise move
            if isinstance(move, Repack) or not isinstance(found.get(name), Repack):
                found[name] = move
    return found


@dataclass(frozen=True)
class Possible:
    """What an output may hold of a model."""

    asked: Asked
    request: Request
    writer: Writer
    stored: Mapping[str, StoredTensor]
    stack_of: Mapping[str, str]

    def fate(self, weight: Weight, wish: Wish, move: Move | None) -> Fate:
        """Return what becomes of a weight: kept, or moved, or encoded, or else its values."""
        kind, pieces, why = self._becomes(weight, wish, move)
        fate = Fate(weight, kind, pieces[0], why, wish, move, pieces[1:])
        if self.request.lossless:
            _check_lossless(fate)
        return fate

    def _becomes(
        self, weight: Weight, wish: Wish, move: Move | None
    ) -> tuple[Kind, tuple[Piece, ...], str | None]:
        why = wish.values
        if wish.keeps:
            return *self._kept(weight), why
        if isinstance(move, Repack):
            way = f"{weight.id} as {move.encodings[0].id}"
            moved = [(Moved(p.name, p.shape, (p,), way), p.dtype) for p in move.parts]
            pieces = [self._piece(one, plain_encoding(of), is_moved=True) for one, of in moved]
            return "moved", tuple(pieces), None
        if wish.encoding is not None:
            encoding, turned, unfit = self.asked.fitted(weight, wish.encoding)
            why_not = wish.refused or unfit
            if why_not is None:
                return *self._encoded(weight, turned, encoding), why
            if wish.pattern is not None:
                raise UnsupportedError(
                    f"{weight.name!r} cannot be written as {encoding.id}, which the override"
                    f" {wish.pattern!r} asks for: {why_not}"
                )
            why = why_not if move is None else f"{move.why}; {why_not}"
        own, is_block = weight.own_dtype, weight.parts[0].dtype.kind == "block"
        has_blocks = is_block and all(self.writer.holds(part.dtype) for part in weight.parts)
        if self.request.keep_blocks and has_blocks:
            return "blocks", self._same(weight.parts), why
        dtype = self.writer.floats(weight.shape, self.request.dtype)
        dtype = plain_dtype(own, dtype, cast=self.request.cast_all)
        kind: Kind = "decoded" if own is None else "copied" if own is dtype else "cast"
        return kind, (self._piece(weight, plain_encoding(dtype)),), why

    def _kept(self, weight: Weight) -> _Made:
        """Keep all that a weight is stored as; of a piece of a stack its values."""
        name, own, stack = weight.name, weight.own_dtype, self.stack_of.get(weight.name)
        if isinstance(weight, Edited):
            raise UnsupportedError(
                f"{name!r} cannot be edited and kept as it is stored: leave out one of them"
            )
        if stack is None:
            return "kept", self._same([self.stored[part.name] for part in weight.parts])
        if own is None:
            raise UnsupportedError(
                f"{name!r} cannot be kept as it is stored: it is a piece of {stack!r}; keep that,"
                " or none of it"
            )
        return "copied", (self._piece(weight, plain_encoding(own)),)

    def _encoded(self, weight: Weight, turned: Weight, encoding: Encoding) -> _Made:
        piece = self._piece(turned, encoding)
        if piece.is_plain:
            return "typed", (piece,)
        is_replaced = isinstance(weight, Edited) and not weight.is_made
        has_codes = weight.own_dtype is None and not is_replaced
        return "requantised" if has_codes else "quantised", (piece,)

    def passed(self, tensor: StoredTensor) -> Fate:
        """Pass a tensor on; as its bytes, if the format has those but no such dtype."""
        if not self.writer.holds(tensor.dtype) and self.writer.holds(DTYPES["U8"]):
            tensor = tensor._replace(dtype=DTYPES["U8"], shape=(tensor.n_bytes,))
        (piece,) = self._same([tensor])
        return Fate(piece.weight, "passed", piece)

    def _same(self, stored: Iterable[StoredTensor]) -> tuple[Piece, ...]:
        same = [(Plain(one.name, one.shape, (one,)), plain_encoding(one.dtype)) for one in stored]
        return tuple([self._piece(*one) for one in same])

    def _piece(self, weight: Weight, encoding: Encoding, *, is_moved: bool = False) -> Piece:
        """Return a weight as it is written, under its new name."""
        request, name = self.request, weight.name
        is_plain = isinstance(encoding, PlainEncoding)
        if request.math == "reference":
            target = encoding.dtype if isinstance(encoding, PlainEncoding) else encoding.values
            weight = weight.by_reference(target)
        if request.rename or request.numbered:
            name = request.renamed(name)
        return Piece(weight, encoding, name, is_plain, is_moved)


def _check_lossless(fate: Fate) -> None:
    """Refuse what would change values."""
    weight, piece = fate.weight, fate.piece
    own, dtype, why = weight.own_dtype, piece.dtype, None
    holds_all = own is dtype or dtype.name == "F64"
    holds_all |= dtype.name == "F32" and own is not None and own.bits <= 16
    if fate.kind in ("quantised", "requantised"):
        anew = "" if own is not None else f" anew: {weight.scheme} is not moved there"
        why = f"it would be quantised as {piece.encoding.id}{anew}"
    elif fate.kind in ("cast", "typed") and own is not None and not holds_all:
        why = f"it would be rounded from {own} to {dtype}"
    elif fate.kind in ("decoded", "typed") and own is None and dtype.name != "F32":
        why = f"it would be decoded, and rounded to {dtype}"
    elif fate.repack is not None and not fate.repack.is_exact:
        why = "only BF16 and F16 would come out equal, and not F32"
    if why is not None:
        raise fate.unmovable or UnsupportedError(f"{weight.name!r}: {why}", remedy=_MAY_LOSE)


def is_as_stored(fate: Fate, stored: Mapping[str, StoredTensor]) -> bool:
    """Return whether moved codes are written as they are stored: same bytes, same names."""
    parts = [part for piece in fate.pieces for part in piece.weight.parts]
    names = {part.name for part in parts}
    return all(part.name in names for part in fate.weight.parts) and all(
        _is_same(part, stored.get(part.name)) for part in parts
    )


def _is_same(part: StoredTensor, stored: StoredTensor | None) -> bool:
    """Return whether a tensor is one that is stored: by where it lies; if it is short, by bytes."""
    if stored is None or (part.dtype.name, part.shape) != (stored.dtype.name, stored.shape):
        return False
    if part.source is stored.source and part.offset == stored.offset:
        return True
    return part.n_bytes <= _SHORT and part.read() == stored.read()
