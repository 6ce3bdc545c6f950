"""One tokenizer.model in memory under limits, which the first three bytes of the input choose."""

from __future__ import annotations

from limited import limit_from
from structured import Choices
from structured_tokenizers import model_file
from traced import fuzz

import anamnesis as an
from anamnesis.architectures.tokenizers.sentencepiece import SentencePieceModel, parse_model
from anamnesis.base.limits import UNLIMITED, Budget


def file_from(data: bytes) -> bytes:
    """Return the file that an input stands for."""
    return model_file(Choices(data[1:])) if data[:1] == b"S" else data


def read(raw: bytes, limits: an.ParseLimits = UNLIMITED) -> SentencePieceModel | None:
    """Return what is read; None if it is refused."""
    try:
        return parse_model(raw, "tokenizer.model", Budget(limits))
    except an.AnamnesisError:
        return None


def check(data: bytes) -> None:
    """Raise if pieces are not what they must be, or if limits change them or let more through."""
    single, total, items = (limit_from(byte) for byte in data[:3].ljust(3, b"\xff"))
    limits = an.ParseLimits(max_single_alloc=single, max_total_bytes=total, max_item_count=items)
    raw = file_from(data[3:])
    found = read(raw, limits)
    if found is None:
        return
    texts, scores, types = found.pieces
    assert 0 < len(texts) == len(scores) == len(types)
    assert items is None or len(texts) <= items
    assert total is None or sum(map(len, texts)) <= total
    assert all(1 <= kind <= 6 for kind in types)
    again = read(raw)
    assert again is not None
    assert repr(again) == repr(found), "limits change nothing"


if __name__ == "__main__":
    fuzz(check)
