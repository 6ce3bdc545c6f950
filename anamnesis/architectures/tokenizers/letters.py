"""GPT-2's letters for bytes."""

from __future__ import annotations

from codecs import charmap_decode

from anamnesis.architectures.tokenizers.decoded import byte_alphabet

_LETTERS = "".join(byte_alphabet())


def bytes_as_letters(raw: bytes) -> str:
    """Return bytes as vocabularies of bytes spell them."""
    text, _ = charmap_decode(raw, "strict", _LETTERS)
    return text
