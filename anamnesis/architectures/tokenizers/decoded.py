"""What a token of tokenizer.json reads as, once its decoder has run."""

from __future__ import annotations

import re
from codecs import charmap_decode
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from anamnesis.architectures.tokenizers.folder import flat, section
from anamnesis.base.errors import LimitExceeded

DECODER_MAX_STEPS = 32  # a real one has four
DECODED_MAX_CHARS = 100_000

Step = Callable[[str], str]

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
# What a decoder that cleans up makes of English text whose tokens were joined with spaces.
_CLEANED = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't")),
    *((" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


@cache
def byte_alphabet() -> tuple[str, ...]:
    """Return GPT-2's character of each byte: itself if it prints, else one from U+0100 on."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in prints else next(others)) for byte in range(256))


def decoder_of(tokenizer: Mapping[str, Any]) -> Step:
    """Return what makes text of one token."""
    # Steps that do nothing to a single token, or that nobody knows, do nothing.
    steps: list[Step] = []
    for given in flat(section(tokenizer, "decoder"), "decoders"):
        if len(steps) == DECODER_MAX_STEPS:
            raise LimitExceeded("DECODER_MAX_STEPS", f"a decoder of over {DECODER_MAX_STEPS} steps")
        steps.append(_step(given))

    def decode(token: str) -> str:
        for step in steps:
            token = step(token)
            if len(token) > DECODED_MAX_CHARS:
                given = f"a token that decodes to more than {DECODED_MAX_CHARS:,} characters"
                raise LimitExceeded("DECODED_MAX_CHARS", given)
        return token

    return decode


def _step(given: Mapping[str, Any]) -> Step:
    match given:
        case {"type": "ByteLevel"}:
            return _byte_level
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if old:
            return partial(_replace, old, new)
        case {"type": "ByteFallback"}:
            return _byte_fallback
        case {"type": "Strip", "content": str(char), "start": int(start), "stop": int(stop)}:
            return partial(_strip, char, start, stop)
        case {"type": "Metaspace", "replacement": str(char)}:
            is_prepended = given.get("prepend_scheme") != "never"
            return partial(_replace, char, "" if is_prepended else " ")
        case {"type": "WordPiece", "cleanup": True}:
            return _clean
    return str


def _byte_level(token: str) -> str:
    """Characters that stand for bytes, if all of them do."""
    try:
        raw = bytes([_BYTES[char] for char in token])
    except KeyError:
        return token
    return raw.decode("utf-8", "replace")


def _replace(old: str, new: str, token: str) -> str:
    if len(token) + token.count(old) * (len(new) - len(old)) > DECODED_MAX_CHARS:
        return " " * (DECODED_MAX_CHARS + 1)  # refused by its length
    return token.replace(old, new)


def _byte_fallback(token: str) -> str:
    found = _BYTE.fullmatch(token)
    return bytes([int(found[1], 16)]).decode("utf-8", "replace") if found else token


def _strip(char: str, start: int, stop: int, token: str) -> str:
    left = len(token) - len(token.lstrip(char)) if len(char) == 1 else 0
    token = token[min(left, max(start, 0)) :]
    right = len(token) - len(token.rstrip(char)) if len(char) == 1 else 0
    return token[: len(token) - min(right, max(stop, 0))]


def _clean(token: str) -> str:
    for old, new in _CLEANED:
        token = token.replace(old, new)
    return token


_LETTERS = "".join(byte_alphabet())
_BYTES = {letter: byte for byte, letter in enumerate(_LETTERS)}


def bytes_as_letters(raw: bytes) -> str:
    """Return bytes as vocabularies of bytes spell them."""
    text, _ = charmap_decode(raw, "strict", _LETTERS)
    return text
