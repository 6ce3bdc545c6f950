"""What becomes of a model's stored tensors, counted when a conversion is planned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.stored import ASKED, Dropped, StoredTensor
from anamnesis.checkpoint.metadata import left_behind
from anamnesis.convert.decide.possible import Fate, is_as_stored
from anamnesis.convert.report.report import Outcome
from anamnesis.schemes.core.plain import Edited

if TYPE_CHECKING:
    from anamnesis.convert.decide.decided import Decided

__all__ = ["Account"]


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
    weights, kept = (
        list(ledger.weights.values()),
        {id(dropped) for _, dropped in decided.kept.beside},
    )
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
