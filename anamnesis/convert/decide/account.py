"""What becomes of a model's stored tensors, counted when a conversion is planned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.stored import StoredTensor
from anamnesis.convert.decide.possible import Fate, is_as_stored
from anamnesis.convert.tell.result import Outcome
from anamnesis.schemes.core.layout import Unmovable

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


def counted(fates: Iterable[Fate], stored: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Return what becomes of weights, as the fields of an outcome."""
    of_kind: dict[str, list[Fate]] = defaultdict(list)
    plain = {}
    for fate in fates:
        of_kind[fate.kind].append(fate)
        if fate.why is not None:
            plain[fate.weight.name] = fate.why
    moved = {fate.weight.name: fate for fate in of_kind["moved"]}
    repacks = {name: repack for name, fate in moved.items() if (repack := fate.repack)}
    recast = tuple([name for name, repack in repacks.items() if repack.is_cast])
    same = [name for name, fate in moved.items() if is_as_stored(fate, stored)]
    anew = {fate.weight.name: fate for fate in of_kind["requantised"]}
    return {
        "plain": plain,
        "repacked": {name: repack.encodings[0].id for name, repack in repacks.items()},
        "recast": recast,
        "unchanged": tuple([name for name in same if name not in recast]),
        "inexact": tuple([name for name, repack in repacks.items() if not repack.is_exact]),
        "requantised": {name: fate.weight.scheme for name, fate in anew.items()},
        "unmovable": {
            name: fate.move.why for name, fate in anew.items() if isinstance(fate.move, Unmovable)
        },
        "cast": {
            fate.weight.name: (own.name, fate.pieces[0].dtype.name)
            for fate in of_kind["cast"]
            if (own := fate.weight.own_dtype) is not None
        },
        "kept": {fate.weight.name: fate.weight.parts[0].dtype.name for fate in of_kind["blocks"]},
    }
