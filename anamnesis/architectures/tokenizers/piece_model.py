"""sentencepiece's model file of a GGUF's vocabulary: its pieces with their scores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from anamnesis.architectures.tokenizers.sentencepiece import BPE
from anamnesis.architectures.tokenizers.stored import StoredVocabulary
from anamnesis.architectures.tokenizers.tokens import TokenType
from anamnesis.base.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
