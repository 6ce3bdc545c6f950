"""GPT-2's letters for bytes: printable ones as they are, the others from 256 on."""

from __future__ import annotations


def _letters() -> tuple[str, ...]:
    is_printable = [33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255 for b in range(256)]
    others = iter(range(256, 512))
    return tuple(chr(b if is_printable[b] else next(others)) for b in range(256))


_LETTERS = _letters()


def bytes_as_letters(raw: bytes) -> str:
    """Return bytes as vocabularies of bytes spell them."""
    return "".join([_LETTERS[byte] for byte in raw])
