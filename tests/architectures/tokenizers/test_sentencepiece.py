"""tokenizer.model is read field by field, and what is cut off or unknown is refused or passed."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import anamnesis as an
from anamnesis.architectures.tokenizers import vocabulary_files
from anamnesis.architectures.tokenizers.sentencepiece import SentencePieceModel, parse_model
from anamnesis.base.limits import Budget
from helpers.tokenizer_dirs import BYTES, CONTROL, FIRST, NORMAL, PIECES, model_file

SMALL = [*FIRST, ("\u2581a", -1.5, NORMAL)]


def rows(found: SentencePieceModel) -> list[tuple[str, float, int]]:
    texts, scores, types = found.pieces
    return list(zip(texts, scores.tolist(), types.tolist(), strict=True))


def test_pieces_and_settings() -> None:
    raw = model_file(PIECES, model_type=1, charsmap=b"\0\1")
    found = parse_model(raw, "x", Budget())
    assert rows(found) == PIECES
    assert (found.model_type, found.charsmap) == (1, b"\0\1")
    assert found.add_dummy_prefix
    assert not found.remove_extra_whitespaces


def test_what_is_missing_has_protobufs_defaults() -> None:
    found = parse_model(b"\x0a\x03\x0a\x01a", "x", Budget())
    assert rows(found) == [("a", 0.0, NORMAL)]
    assert found.add_dummy_prefix
    assert found.remove_extra_whitespaces


def test_the_last_of_a_field_counts_and_others_are_passed_over() -> None:
    score = struct.pack("<f", 2)
    piece = (
        b"\x0a\x01a\x15" + score + b"\x0a\x01b\x18\x03\x18\x63" + b"\x22\x01z" + b"\x29" + bytes(8)
    )
    raw = b"\x0a" + bytes([len(piece)]) + piece + b"\x20\x07"
    found = parse_model(raw, "x", Budget())
    assert rows(found) == [("b", 2.0, CONTROL)]


def test_each_cut_is_refused_or_ends_a_piece() -> None:
    raw = model_file(SMALL)
    whole = rows(parse_model(raw, "x", Budget()))
    for n in range(len(raw)):
        try:
            found = parse_model(raw[:n], "x", Budget())
        except an.ParseError:
            continue
        assert rows(found) == whole[: len(rows(found))]


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "no pieces"),
        (b"\x0a\x03\x0a\x01\xff", "not UTF-8"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cut off"),
        (b"\xff" * 11, "a number is cut off"),
        (b"\x00\x00", "cut off"),
    ],
)
def test_what_is_no_model_is_refused(raw: bytes, match: str) -> None:
    with pytest.raises(an.ParseError, match=match):
        parse_model(raw, "x", Budget())


def test_what_is_written_is_read_again() -> None:
    texts, scores, types = zip(*[*FIRST, *BYTES, ("\u2581a", -1.5, NORMAL)], strict=True)
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(texts),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.add_space_prefix": False,
    }
    found = parse_model(bytes(vocabulary_files(keys)["tokenizer.model"]), "x", Budget())
    assert rows(found) == list(zip(texts, scores, types, strict=True))
    assert not found.add_dummy_prefix
    assert found.model_type == 2
