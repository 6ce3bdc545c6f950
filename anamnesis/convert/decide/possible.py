"""What becomes of a weight: what is asked for, as far as it is possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.convert.decide.wish import Asked, Wish
from anamnesis.formats.base import Writer
from anamnesis.schemes.core.edited import Edited
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Repack, Unmovable, unmovable
from anamnesis.schemes.core.plain import Moved, Plain, plain_dtype
from anamnesis.schemes.core.plain_encoding import PlainEncoding, plain_encoding
from anamnesis.schemes.core.weight import Weight

_SHORT = 1 << 20  # bytes of what a layout makes anew: shapes, second scales, markers, orders
_MAY_LOSE = "exclude it, or leave out lossless=True"

Move = Repack | Unmovable  # of a weight's own codes, or why they are not moved
Kind = Literal[
    "copied",  # its values, as they are stored
    "cast",  # its values, in another dtype
    "decoded",  # values of its codes
    "encoded",  # what is asked for, out of values or of other codes
    "moved",  # its own codes in another layout
    "already",  # in what is asked for
    "blocks",  # in the blocks that it is stored in, which the format has
    "kept",  # all that it is stored as, byte for byte
    "passed",  # a tensor that nobody can read
]


class Piece(NamedTuple):
    """What a weight is written as: one or more tensors, of one encoding."""

    weight: Weight
    encoding: Encoding
    name: str
    is_moved: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is written as values, or as it is stored."""
        return isinstance(self.encoding, PlainEncoding)


class Fate(NamedTuple):
    """What becomes of a weight."""

    weight: Weight
    kind: Kind
    pieces: tuple[Piece, ...]
    why: str | None = None  # it is plain although an encoding is asked for
    wish: Wish = Wish()
    move: Move | None = None

    @property
    def repack(self) -> Repack | None:
        """Its own codes in another layout, if that is what becomes of it."""
        return self.move if self.kind == "moved" and isinstance(self.move, Repack) else None

    @property
    def requantised(self) -> str | None:
        """In words, the codes out of which it is encoded anew."""
        is_anew = self.kind == "encoded" and not self.pieces[0].is_plain
        return self.weight.scheme if is_anew and _has_codes(self.weight) else None

    @property
    def is_quantised(self) -> bool:
        """Whether values become codes."""
        is_coded = self.kind == "encoded" and not self.pieces[0].is_plain
        return is_coded and self.weight.own_dtype is not None

    @property
    def is_beside(self) -> bool:
        """Whether codes are moved to settings of their own, though others could be quantised."""
        repack, ways = self.repack, self.wish.ways
        if repack is None or ways[0].codes is None:
            return False
        return {one.id for one in repack.encodings}.isdisjoint(way.id for way in ways)


def moves_of(asked: Iterable[tuple[Weight, Wish]]) -> dict[str, Move]:
    """Return whose own codes can be moved; an encoding is asked of all its weights at once."""
    by_way: dict[str, tuple[Encoding, list[Weight]]] = {}
    for weight, wish in asked:
        for way in wish.ways:
            by_way.setdefault(way.id, (way, []))[1].append(weight)
    found: dict[str, Move] = {}
    for way, weights in by_way.values():
        for name, move in way.repacks(weights).items():
            if isinstance(move, Unmovable) and way.codes is None and not move.is_cast:
                raise move
            if isinstance(move, Repack) or not isinstance(found.get(name), Repack):
                found[name] = move
    return found


@dataclass(frozen=True)
class Possible:
    """What an output may hold of a model."""

    asked: Asked
    writer: Writer
    stored: Mapping[str, StoredTensor]
    stack_of: Mapping[str, str]

    def fate(self, weight: Weight, wish: Wish, move: Move | None) -> Fate:
        """Return what becomes of a weight: kept, or moved, or encoded, or else its values."""
        if wish.keeps:
            return self._kept(weight, wish)
        if isinstance(move, Repack):
            return self._moved(weight, wish, move)
        why = wish.values
        if wish.encoding is not None:
            encoding = self.asked.fitted(weight, wish.encoding)
            turned, unfit = self.asked.fitting(weight, encoding)
            why_not = wish.refused or unfit
            if why_not is None:
                return self._encoded(weight, turned, encoding, wish, move)
            if wish.pattern is not None:
                raise UnsupportedError(
                    f"{weight.name!r} cannot be written as {encoding.id}, which the override"
                    f" {wish.pattern!r} asks for: {why_not}"
                )
            why = why_not if move is None else f"{move.why}; {why_not}"
        if self.asked.request.keep_blocks and self._has_blocks(weight):
            return Fate(weight, "blocks", self._same(weight.parts), why, wish, move)
        return self._values(weight, why, wish, move)

    def _kept(self, weight: Weight, wish: Wish) -> Fate:
        """Keep all that a weight is stored as; of a piece of a stack its values."""
        name, own, stack = weight.name, weight.own_dtype, self.stack_of.get(weight.name)
        if isinstance(weight, Edited):
            raise UnsupportedError(
                f"{name!r} cannot be edited and kept as it is stored: leave out one of them"
            )
        if stack is None:
            stored = [self.stored[part.name] for part in weight.parts]
            return Fate(weight, "kept", self._same(stored), wish.values, wish)
        if own is None:
            raise UnsupportedError(
                f"{name!r} cannot be kept as it is stored: it is a piece of {stack!r}; keep that,"
                " or none of it"
            )
        piece = self._piece(weight, plain_encoding(own))
        return Fate(weight, "copied", (piece,), wish.values, wish)

    def _moved(self, weight: Weight, wish: Wish, repack: Repack) -> Fate:
        if not repack.is_exact:
            why = "only BF16 and F16 would come out equal, and not F32"
            self._check_lossless(weight.name, why)
        way = f"{weight.id} as {repack.encodings[0].id}"
        pieces = [
            self._piece(Moved(part.name, part.shape, (part,), way), plain_encoding(part.dtype))
            for part in repack.parts
        ]
        pieces = [piece._replace(is_moved=True) for piece in pieces]
        return Fate(weight, "moved", tuple(pieces), None, wish, repack)

    def _encoded(
        self, weight: Weight, turned: Weight, encoding: Encoding, wish: Wish, move: Move | None
    ) -> Fate:
        if self._has_blocks(weight):
            (part, *_) = encoding.parts(weight.name, turned.shape)
            if part.dtype is weight.parts[0].dtype:
                return Fate(weight, "already", self._same(weight.parts), wish.values, wish, move)
        fate = Fate(weight, "encoded", (self._piece(turned, encoding),), wish.values, wish, move)
        if self.asked.request.lossless and not fate.pieces[0].is_plain:
            scheme = None if weight.own_dtype is not None else weight.scheme
            anew = "" if scheme is None else f" anew: {scheme} is not moved there"
            self._check_lossless(weight.name, f"it would be quantised as {encoding.id}{anew}", move)
        return fate

    def _values(self, weight: Weight, why: str | None, wish: Wish, move: Move | None) -> Fate:
        request, own = self.asked.request, weight.own_dtype
        target = self.writer.floats(weight.shape, request.dtype)
        dtype = plain_dtype(weight, target, cast=request.cast_all)
        kind: Kind = "decoded" if own is None else "copied" if own is dtype else "cast"
        if request.lossless and kind == "cast" and own is not None and not _holds_all(own, dtype):
            self._check_lossless(weight.name, f"it would be rounded from {own} to {dtype}", move)
        if request.lossless and kind == "decoded" and dtype.name != "F32":
            why_not = f"it would be decoded, and rounded to {dtype}"
            self._check_lossless(weight.name, why_not, move)
        return Fate(weight, kind, (self._piece(weight, plain_encoding(dtype)),), why, wish, move)

    def passed(self, tensor: StoredTensor) -> Fate:
        """Pass a tensor on; as its bytes, if the format has those but no such dtype."""
        if not self.writer.holds(tensor.dtype) and self.writer.holds(DTYPES["U8"]):
            tensor = tensor._replace(dtype=DTYPES["U8"], shape=(tensor.n_bytes,))
        (piece,) = self._same([tensor])
        return Fate(piece.weight, "passed", (piece,))

    def _same(self, stored: Iterable[StoredTensor]) -> tuple[Piece, ...]:
        """Return stored tensors as they are."""
        return tuple(
            [
                self._piece(Plain(one.name, one.shape, (one,)), plain_encoding(one.dtype))
                for one in stored
            ]
        )

    def _piece(self, weight: Weight, encoding: Encoding) -> Piece:
        """Return a weight as it is written, under its new name."""
        request = self.asked.request
        if request.math == "reference":
            target = encoding.dtype if isinstance(encoding, PlainEncoding) else encoding.values
            weight = weight.by_reference(target)
        return Piece(weight, encoding, request.renamed(weight.name))

    def _has_blocks(self, weight: Weight) -> bool:
        """Tell whether the format stores the very blocks that a weight is in."""
        is_block = weight.parts[0].dtype.kind == "block"
        return is_block and all(self.writer.holds(part.dtype) for part in weight.parts)

    def _check_lossless(self, name: str, why: str, move: Move | None = None) -> None:
        """Refuse what would change values, where nothing may be lost."""
        if self.asked.request.lossless:
            error = UnsupportedError(f"{name!r}: {why}", remedy=_MAY_LOSE)
            raise move if isinstance(move, Unmovable) else error


def given_up(fate: Fate, why: str) -> Unmovable:
    """Return why codes that could be moved are not."""
    weight = fate.weight
    return unmovable(weight.parts[0], weight.name, weight.shape, why)


def is_as_stored(fate: Fate, stored: Mapping[str, StoredTensor]) -> bool:
    """Tell whether moved codes are written as they are stored: same bytes, same names."""
    parts = [part for piece in fate.pieces for part in piece.weight.parts]
    names = {part.name for part in parts}
    return all(part.name in names for part in fate.weight.parts) and all(
        _is_same(part, stored.get(part.name)) for part in parts
    )


def _is_same(part: StoredTensor, stored: StoredTensor | None) -> bool:
    """Tell whether a tensor is one that is stored: by where it lies; if it is short, by bytes."""
    if stored is None or (part.dtype.name, part.shape) != (stored.dtype.name, stored.shape):
        return False
    if part.source is stored.source and part.offset == stored.offset:
        return True
    return part.n_bytes <= _SHORT and part.read() == stored.read()


def _has_codes(weight: Weight) -> bool:
    """Tell whether a weight's values are out of codes, and not an array in their place."""
    is_replaced = isinstance(weight, Edited) and not weight.is_made
    return weight.own_dtype is None and not is_replaced


def _holds_all(own: DType, dtype: DType) -> bool:
    """Tell whether a dtype has all values of another one."""
    return dtype.name == "F64" or (dtype.name == "F32" and own.bits <= 16)
