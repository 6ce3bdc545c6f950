"""The types of tokens in a GGUF, and which look special though nothing says so."""

from __future__ import annotations

from enum import IntEnum

# What some models add without saying that it is special, besides the two forms below.
_SPECIAL = frozenset({"<pad>", "<mask>", "<2mass>", "[@BOS@]"})
_SPECIAL_FORMS = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))


class TokenType(IntEnum):
    """What a token is, as llama.cpp numbers it; sentencepiece numbers its pieces so, too."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def looks_special(text: str) -> bool:
    """Return whether a token that is not marked special is one that no text should have."""
    return text in _SPECIAL or any(
        text.startswith(start) and text.endswith(end) for start, end in _SPECIAL_FORMS
    )
