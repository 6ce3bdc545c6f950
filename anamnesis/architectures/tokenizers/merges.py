"""Merges that join pieces by scores: sentencepiece's way said as BPE's."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import LimitExceeded
from anamnesis.base.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIECE_MAX_CHARS = 1000  # Llama 2's longest has 16, Gemma's 31


def merges_by_score(
    ids: Mapping[str, int], tokens: Sequence[str], scores: NDArray[Any]
) -> Iterator[tuple[str, str]]:
    """Return all pairs of pieces that make a piece, those of a better one first."""
    # Of one piece's pairs that comes first whose left part has the better score, then the right.
    longest = max(map(len, ids), default=0)
    if longest > PIECE_MAX_CHARS:
        given = f"a token of {longest:,} characters is made of others"
        raise LimitExceeded("PIECE_MAX_CHARS", given)
    found = np.frombuffer(_pairs(ids), np.intc).reshape(-1, 3)
    whole, left, right = -scores.astype(float)[found.T]
    columns = found[np.lexsort((right, left, whole))].T
    halves = (map(tokens.__getitem__, array("i", column.tobytes())) for column in columns[1:])
    return zip(*halves, strict=True)


def _pairs(ids: Mapping[str, int]) -> array[int]:
    """Return the ids of a piece, its left part and its right part, of all that are pieces."""
    found = array("i")
    get = ids.get
    for text, whole in ids.items():
        for at in range(1, len(text)):
            left = get(text[:at])
            if left is not None and (right := get(text[at:])) is not None:
                found.extend((whole, left, right))
    return found
