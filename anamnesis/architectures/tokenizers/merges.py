"""Merges that join pieces by scores: sentencepiece's way said as BPE's."""

from __future__ import annotations

from collections.abc import Mapping

from anamnesis.base.errors import LimitExceeded

PIECE_MAX_CHARS = 1000  # Llama 2's longest has 16, Gemma's 31


def merges_by_score(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return all pairs of pieces that make a piece, those of a better one first.

    Of one piece's pairs that comes first whose left part has the better score, then the right.
    """
    found: list[tuple[float, float, float, str, str]] = []
    for text, score in scores.items():
        if len(text) > PIECE_MAX_CHARS:
            told = f"a token of {len(text):,} characters is made of others"
            raise LimitExceeded("PIECE_MAX_CHARS", told)
        for at in range(1, len(text)):
            left, right = text[:at], text[at:]
            if left in scores and right in scores:
                found.append((-score, -scores[left], -scores[right], left, right))
    found.sort(key=lambda pair: pair[:3])
    return [(left, right) for *_, left, right in found]
