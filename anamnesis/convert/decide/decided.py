"""A decided model: each weight's fate, what follows of all, and their account."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.stored import ASKED, Dropped, StoredTensor
from anamnesis.checkpoint.metadata import left_behind
from anamnesis.convert.decide.declaration import Declaration
from anamnesis.convert.decide.keeping import Kept
from anamnesis.convert.decide.names import Named
from anamnesis.convert.decide.possible import Fate, Piece, is_as_stored
from anamnesis.convert.decide.seen import Seen
from anamnesis.convert.decide.wish import OVERRIDDEN, Asked
from anamnesis.convert.report.problems import first_of
from anamnesis.convert.report.report import Outcome
from anamnesis.convert.request.request import Request
from anamnesis.formats.base import Writer
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain import Edited, Plain
from anamnesis.schemes.core.plain_encoding import plain_encoding
from anamnesis.schemes.detect.not_weights import is_auxiliary

if TYPE_CHECKING:
    from anamnesis.convert.decide.mix import Mix


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Outcome):
    """What becomes of a model's stored tensors: what `Outcome` has, and this.

    Attributes
    ----------
    n_in, n_bytes_in : int
        How many there are, and the bytes that they take.
    n_parameters : int
        Values of all weights that can be read.
    dropped : tuple of Dropped
        Tensors, metadata and files that the output leaves out.
    problems : mapping of str to AnamnesisError
        Tensors that cannot be read or cannot be written; they stop the run unless they may pass.
    n_bytes_edited : int
        What weights that functions edit take in float32, as far as they are in memory at once: the
        largest, or two of several threads.
    """

    n_in: int = 0
    n_bytes_in: int = 0
    n_parameters: int = 0
    dropped: tuple[Dropped, ...] = ()
    problems: Mapping[str, AnamnesisError] = field(default_factory=dict)
    n_bytes_edited: int = 0


def account_of(
    decided: Decided, left: Iterable[Dropped] = (), described: Iterable[str] = ()
) -> Account:
    """Count what becomes of a model, of files `left` out and those that go on describing codes."""
    checkpoint, ledger, _ = decided.seen[:3]
    weights = list(ledger.weights.values())
    kept = {id(dropped) for _, dropped in decided.kept.beside}
    edited = [w for w in weights if isinstance(w, Edited) and w.name not in decided.problems]
    made = sorted([4 * weight.n_elements for weight in edited if weight.is_made])
    asked = [ledger.stored[one.name].n_bytes for one in ledger.dropped if one.reason == ASKED]
    dropped = [one for one in ledger.dropped if id(one) not in kept] + decided.unread
    dropped += left_behind(checkpoint.shards.values(), decided.writer.id)
    dropped += [*checkpoint.left_out, *(decided.mix.dropped if decided.mix else ()), *left]
    return Account(
        **_of_weights(decided.fates, ledger.stored),
        n_in=len(ledger.stored),
        n_bytes_in=sum([one.n_bytes for one in ledger.stored.values()]) - sum(asked),
        n_parameters=sum([weight.n_elements for weight in weights]),
        dropped=tuple(dropped),
        unknown=tuple(decided.passed),
        problems=decided.problems,
        still_quantized=tuple(described),
        taken_apart={**decided.seen.taken_apart, **decided.named.taken_apart},
        put_together={**decided.seen.put_together, **decided.named.put_together},
        made=tuple([name for name, stored in decided.seen.names.items() if not stored]),
        edited=tuple([weight.name for weight in edited]),
        matched={glob: tuple(names) for glob, names in decided.request.spelt.items()},
        n_bytes_edited=sum(made[-min(2, decided.request.threads) :]),
    )


def _of_weights(fates: Iterable[Fate], stored: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Return what becomes of weights, as the fields of an outcome."""
    of_kind: dict[str, dict[str, Fate]] = defaultdict(dict)
    for fate in fates:
        of_kind[fate.kind][fate.weight.name] = fate
    repacks = {name: move for name, fate in of_kind["moved"].items() if (move := fate.repack)}
    same = [name for name, fate in of_kind["moved"].items() if is_as_stored(fate, stored)]
    anew, cast = of_kind["requantised"], of_kind["cast"]
    unmovable = {name: why for name, fate in anew.items() if (why := fate.unmovable)}
    return {
        "plain": {fate.weight.name: fate.why for fate in fates if fate.why is not None},
        "repacked": {name: repack.encodings[0].id for name, repack in repacks.items()},
        "recast": tuple([name for name, repack in repacks.items() if repack.is_cast]),
        "unchanged": tuple([name for name in same if not repacks[name].is_cast]),
        "inexact": tuple([name for name, repack in repacks.items() if not repack.is_exact]),
        "requantised": {name: fate.weight.scheme for name, fate in anew.items()},
        "unmovable": {name: error.why for name, error in unmovable.items()},
        "cast": {name: (str(f.weight.own_dtype), str(f.piece.dtype)) for name, f in cast.items()},
        "kept": {name: f.weight.parts[0].dtype.name for name, f in of_kind["blocks"].items()},
    }


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
            remedy = None
            if encoding.codes is None:  # it only moves codes
                from anamnesis.convert.loaders.table import LAYOUTS
                from anamnesis.convert.loaders.verdicts import absent

                who = LAYOUTS.get(encoding.id, "use an encoding that does")
                remedy = absent(encoding.id) or f"it quantises nothing; {who}"
            raise UnsupportedError(
                f"no weight of the model suits {encoding.id}: {reasons}", remedy=remedy
            )

    def check_names(self) -> None:
        """Refuse to rename nothing, or a plain weight to what would be read as a part of codes."""
        if not self.request.rename:
            return
        request, names = self.request, [piece.weight.name for piece in self.pieces]
        for i, (pattern, _) in enumerate(request.rename):  # which matches before or after earlier
            matches = re.compile(pattern).search
            before = replace(request, rename=request.rename[:i]).renamed
            if not any(map(matches, names)) and not any(map(matches, map(before, names))):
                raise ValueError(f"rename: no tensor's name matches {pattern!r}")
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
