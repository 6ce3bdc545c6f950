"""sentencepiece's model files, read and written: pieces, scores and types.

    ModelProto      1 pieces, repeated   2 trainer_spec   3 normalizer_spec
    SentencePiece   1 piece: string      2 score: float   3 type: enum
    TrainerSpec     3 model_type: enum (1 unigram, 2 BPE, 3 word, 4 character)
    NormalizerSpec  2 precompiled_charsmap: bytes         3 add_dummy_prefix: bool
                    4 remove_extra_whitespaces: bool

A field is a tag, `number << 3 | wire type`, and a value: 0 a varint, 1 eight bytes, 2 a length and
as many bytes, 5 four bytes. The last value of a field that is not repeated counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from anamnesis.architectures.tokenizers.stored import StoredVocabulary
from anamnesis.architectures.tokenizers.token_types import TokenType
from anamnesis.base.errors import ParseError
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.limits import Budget

UNIGRAM, BPE = 1, 2  # types of models
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LONGEST_VARINT = 10
_PIECE_BYTES = 200  # that each takes in Python
_KINDS = range(1, 7)
_SOME = 4096  # pieces that are accounted for together

Field = tuple[int, int, int, int, int]  # number, wire type, value, start and end of its bytes
_Piece = tuple[int, str, bytes, int]  # where it ends, text, score, type


class Pieces(NamedTuple):
    """Texts, scores, and types, which are those of `TokenType`."""

    texts: list[str]
    scores: NDArray[np.float32]
    types: NDArray[np.int32]


class SentencePieceModel(NamedTuple):
    """What a model file says that a GGUF has a place for."""

    pieces: Pieces
    model_type: int = UNIGRAM
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True


def parse_model(raw: bytes, source: str, budget: Budget) -> SentencePieceModel:
    """Read a model file."""
    found: list[_Piece] = []
    given: dict[str, int | bytes] = {}
    reader = _Reader(raw, source)
    at = 0
    while usual := _usual(raw, at):
        _account(budget, len(usual), usual[-1][0] - at)
        at = usual[-1][0]
        found += usual
    for number, wire, _, start, end in reader.fields(at, len(raw)):
        if wire != _BYTES:
            continue
        if number == 1:
            _account(budget, 1, end - start)
            found.append(_piece(reader, start, end))
        elif number in (2, 3):
            _read_spec(reader, number, start, end, given)
    if not found:
        raise ParseError("no sentencepiece model: it has no pieces", source=source)
    _, texts, scores, types = zip(*found, strict=True)
    return SentencePieceModel(
        Pieces(list(texts), np.frombuffer(b"".join(scores), "<f4"), np.array(types, np.int32)),
        int(given.get("model_type", UNIGRAM)),
        bytes(given.get("charsmap", b"")),
        bool(given.get("prefix", True)),
        bool(given.get("spaces", True)),
    )


def _account(budget: Budget, n: int, n_bytes: int) -> None:
    budget.items(n, "the pieces of a tokenizer.model")
    budget.alloc(_PIECE_BYTES * n + n_bytes, "the pieces of a tokenizer.model")


def _usual(raw: bytes, at: int) -> list[_Piece]:
    """Read some of the pieces that follow, as far as they are short and spelt as usual."""
    # That is a text, a score, and a type where it is not the first.
    found: list[_Piece] = []
    with suppress(IndexError, UnicodeDecodeError):  # which the reader of fields finds again
        while len(found) < _SOME and raw[at] == raw[at + 2] == 0x0A and raw[at + 3] < 0x70:
            end = at + 2 + raw[at + 1]
            score = at + 4 + raw[at + 3]
            typed = end - score - 5
            kind = raw[score + 6] if typed else 1
            is_typed = typed == 2 and raw[score + 5] == 0x18 and kind in _KINDS
            if raw[score] != 0x15 or end > len(raw) or (typed and not is_typed):
                break
            text = raw[at + 4 : score].decode()
            found.append((end, text, raw[score + 1 : score + 5], kind))
            at = end
    return found


def _piece(reader: _Reader, start: int, end: int) -> _Piece:
    raw, score, kind = b"", bytes(4), 1
    for number, wire, value, at, to in reader.fields(start, end):
        if number == 1 and wire == _BYTES:
            raw = reader.raw[at:to]
        elif number == 2 and wire == _FOUR:
            score = reader.raw[at:to]
        elif number == 3 and wire == _VARINT and value in _KINDS:
            kind = value  # one that nobody knows is as if it were not there
    try:
        return end, raw.decode(), score, kind
    except UnicodeDecodeError:
        raise reader.error("a piece is not UTF-8", start) from None


def _read_spec(
    reader: _Reader, which: int, start: int, end: int, given: dict[str, int | bytes]
) -> None:
    for number, wire, value, at, to in reader.fields(start, end):
        if which == 2 and number == 3 and wire == _VARINT:
            given["model_type"] = value
        elif which == 3 and number == 2 and wire == _BYTES:
            given["charsmap"] = reader.raw[at:to]
        elif which == 3 and number in (3, 4) and wire == _VARINT:
            given["prefix" if number == 3 else "spaces"] = value


class _Reader:
    """Fields of messages, which must end where their message does."""

    def __init__(self, raw: bytes, source: str) -> None:
        self.raw = raw
        self.source = source

    def fields(self, pos: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message from `pos` to `end`."""
        while pos < end:
            at = pos
            tag, pos = self.varint(pos, end)
            number, wire = tag >> 3, tag & 7
            value, start = 0, pos
            if wire == _VARINT:
                value, pos = self.varint(pos, end)
            elif wire == _BYTES:
                length, start = self.varint(pos, end)
                pos = start + length
            elif wire in (_EIGHT, _FOUR):
                pos += 8 if wire == _EIGHT else 4
            else:
                raise self.error(f"no sentencepiece model: a field of wire type {wire}", at)
            if pos > end or not number:
                raise self.error("no sentencepiece model: a field is cut off", at)
            yield number, wire, value, start, pos

    def varint(self, pos: int, end: int) -> tuple[int, int]:
        """Return a number of seven bits a byte, the lowest first, and where it ends."""
        value = 0
        for i in range(min(_LONGEST_VARINT, end - pos)):
            byte = self.raw[pos + i]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, pos + i + 1
        raise self.error("no sentencepiece model: a number is cut off", pos)

    def error(self, what: str, offset: int) -> ParseError:
        return ParseError(what, source=self.source, offset=offset)


_N_BYTES = 256
_NONE = 2**64 - 1  # an id of -1, as protobuf has it


def piece_model(vocabulary: StoredVocabulary) -> bytearray | None:
    """Return the file; None if sentencepiece would not load it."""
    # It wants each piece once, one that is unknown, and all bytes or none.
    n = vocabulary.n_unpadded()
    tokens, types = vocabulary.tokens[:n], _with_unknown(vocabulary, vocabulary.types[:n])
    n_bytes = int(np.count_nonzero(types == TokenType.BYTE))
    if (
        len(set(tokens)) < n
        or "" in tokens
        or np.count_nonzero(types == TokenType.UNKNOWN) != 1
        or n_bytes not in (0, _N_BYTES)
        or not ((types >= 1) & (types <= 6)).all()
    ):
        return None
    has_prefix = vocabulary.flag("add_space_prefix") is not False
    normalizer = _bytes(1, b"identity") + _number(3, has_prefix) + _number(4, 0) + _number(5, 1)
    trainer = _number(3, BPE) + _number(4, n) + _number(35, n_bytes > 0)
    for field, name in ((40, "unk"), (41, "bos"), (42, "eos"), (43, "pad")):
        trainer += _number(field, vocabulary.ids.get(name, _NONE))
    for field, name in ((45, "unk"), (46, "bos"), (47, "eos"), (48, "pad")):
        if (text := vocabulary.text_of(name)) is not None:
            trainer += _bytes(field, text.encode())
    made = bytearray()
    for piece in _pieces(tokens, vocabulary.scores, types):
        made += piece
    return made + _bytes(2, trainer) + _bytes(3, normalizer)


def _with_unknown(vocabulary: StoredVocabulary, types: NDArray[Any]) -> NDArray[Any]:
    """Return types as in sentencepiece; Gemma's GGUFs have the unknown one as control."""
    unknown = vocabulary.ids.get("unk")
    if TokenType.UNKNOWN in types or unknown is None or unknown >= len(types):
        return types
    types = types.copy()
    types[unknown] = TokenType.UNKNOWN
    return types


def _pieces(tokens: list[str], scores: NDArray[Any], types: NDArray[Any]) -> Iterator[bytes]:
    packed = scores.astype("<f4").tobytes()
    for i, (token, kind) in enumerate(zip(tokens, types.tolist(), strict=True)):
        raw, score = token.encode(), packed[4 * i : 4 * i + 4]
        piece = b"\x0a%b%b\x15%b\x18%c" % (_varint(len(raw)), raw, score, kind)
        yield b"\x0a%b%b" % (_varint(len(piece)), piece)


@cache
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
