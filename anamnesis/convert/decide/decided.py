"""A decided model: each weight's fate, and what follows from all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.stored import Dropped
from anamnesis.convert.decide.declaration import Declaration
from anamnesis.convert.decide.keeping import Kept
from anamnesis.convert.decide.names import Named
from anamnesis.convert.decide.possible import Fate, Piece
from anamnesis.convert.decide.renames import Seen
from anamnesis.convert.decide.wish import OVERRIDDEN, Asked
from anamnesis.convert.report.problems import first_of
from anamnesis.convert.request.request import Request
from anamnesis.formats.base import Writer
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.plain_encoding import plain_encoding
from anamnesis.schemes.detect.not_weights import is_auxiliary

if TYPE_CHECKING:
    from anamnesis.convert.decide.mix import Mix


@dataclass(frozen=True)
class Decided:
    """What becomes of a model. Tensors with problems pass if the request allows that."""

    seen: Seen
    asked: Asked
    writer: Writer
    named: Named
    problems: Mapping[str, AnamnesisError]
    fates: list[Fate]
    unread: list[Dropped]  # what has no bytes to pass on

    @property
    def request(self) -> Request:
        return self.asked.request

    @property
    def mix(self) -> Mix | None:
        """The mix of GGUF's types."""
        return self.asked.mix

    @cached_property
    def kept(self) -> Kept:
        """The weights that are copied as they are stored, and what stays beside them."""
        return Kept(self.seen.ledger, (fate.weight for fate in self.fates if fate.kind == "kept"))

    @cached_property
    def pieces(self) -> list[Piece]:
        """All that is written, in the order of the model."""
        pieces = [piece for fate in self.fates for piece in fate.pieces]
        for stored, _ in self.kept.beside:
            same = Plain(stored.name, stored.shape, (stored,))
            name = self.request.renamed(stored.name)
            pieces.append(Piece(same, plain_encoding(stored.dtype), name))
        return pieces

    @property
    def passed(self) -> list[str]:
        """Tensors that nobody can read, and that pass."""
        return [fate.weight.name for fate in self.fates if fate.kind == "passed"]

    @property
    def dense(self) -> bool:
        """Whether nothing that is written is quantised as the source describes it."""
        return not self.problems and not self.kept.codes

    @cached_property
    def decoded(self) -> list[Piece]:
        """What is quantised in the source, and written as values."""
        return [
            one
            for one in self.pieces
            if one.is_plain and (one.weight.own_dtype is None or len(one.weight.parts) > 1)
        ]

    @cached_property
    def moved(self) -> dict[str, tuple[Encoding, ...]]:
        """Whose codes are moved, and into what; any of the encodings says it."""
        moved = [fate for fate in self.fates if fate.kind == "moved"]
        return {fate.weight.name: move.encodings for fate in moved if (move := fate.repack)}

    @property
    def encoded(self) -> list[str]:
        """The source's names of those that are quantised in the output as nothing of it was."""
        return [*(one.weight.name for one in self.pieces if not one.is_plain), *self.moved]

    @cached_property
    def declaration(self) -> Declaration:
        """What the output says of the encodings of its weights."""
        return Declaration(self)

    @property
    def why_undeclared(self) -> str | None:
        """Why the output cannot say what it is in; None if it can."""
        is_directory = self.seen.checkpoint.root is not None
        try:
            if self.request.form.becomes_file(directory=is_directory):
                self.declaration.settings()
            elif self.seen.checkpoint.has_config:
                self.declaration.sections()
        except UnsupportedError as error:
            return error.message
        return None

    # --- what may not be -----------------------------------------------------------------------

    def check(self) -> None:
        """Refuse what may not pass."""
        request, encoding = self.request, self.request.encoding
        if self.problems and not request.allow_unknown:
            raise first_of(self.problems)
        if self.seen.checkpoint.lone_part is not None and not request.allow_unknown:
            raise UnsupportedError(self.seen.checkpoint.lone_part)
        for name in self.seen.ledger.problems:
            if name in self.seen.ledger.weights:
                raise UnsupportedError(f"a weight and a tensor that is passed on are {name!r}")
        whys = [fate.why for fate in self.fates if fate.kind != "passed"]
        unfit = [why for why in whys if why not in (None, OVERRIDDEN)]
        if encoding is not None and len(unfit) == len(whys):
            reasons = "; ".join(dict.fromkeys(map(str, unfit))) or "there is none"
            raise UnsupportedError(
                f"no weight of the model suits {encoding.id}: {reasons}",
                remedy=_who_quantises(encoding),
            )

    def check_names(self) -> None:
        """Refuse to rename nothing, or a plain weight to what would be read as a part of codes."""
        if not self.request.rename:
            return
        self.request.check_renaming([piece.weight.name for piece in self.pieces])
        if self.writer.self_contained:
            return
        plain = {piece.name: piece for piece in self.pieces if piece.is_plain}
        parts = {
            name: piece.weight.parts[0]._replace(name=name, dtype=piece.dtype)
            for name, piece in plain.items()
        }
        for name, piece in plain.items():
            was = is_auxiliary(piece.weight.parts[0], self.seen.ledger.stored)
            if name != piece.weight.name and not was and is_auxiliary(parts[name], parts):
                raise UnsupportedError(
                    f"{piece.weight.name!r} cannot be called {name!r}, which is read as a part of a"
                    " quantised weight; give it another name"
                )


def _who_quantises(encoding: Encoding) -> str | None:
    """Return what to do where an encoding that only moves codes finds none."""
    if encoding.codes is not None:
        return None
    from anamnesis.convert.loaders.absent import absent, who_quantises

    return absent(encoding.id) or f"it quantises nothing; {who_quantises(encoding.id)}"
