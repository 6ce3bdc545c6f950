"""Merges: taken out of a tokenizer.json, or made of scores of sentencepiece.

They are most of what such a file holds: of Llama 3's, 280,000 lists of two strings, which take
60 MB as objects and 5 MB as bytes; so they are cut out before Python makes objects of them.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anamnesis.base.errors import LimitExceeded
from anamnesis.base.lazy import NDArray, np
from anamnesis.formats.gguf.strings import Strings

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


_KEY = re.compile(rb'"merges"\s*:\s*\[')
_SPACE = rb"[ \t\r\n]*+"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*"'
_PAIR = rb"\[" + _SPACE + _TEXT + _SPACE + b"," + _SPACE + _TEXT + _SPACE + rb"\]"
_ITEM = _SPACE + b"(?:" + _PAIR + b"|" + _TEXT + b")" + _SPACE
_SOME = re.compile(b"(?:" + _ITEM + b",){1,4096}", re.DOTALL)
_LAST = re.compile(_ITEM + rb"\]", re.DOTALL)


def cut_merges(raw: bytes) -> tuple[bytes, Strings | None]:
    """Return a JSON text without its merges, and these as in GGUF: halves with a space."""
    # Where they are not as usual, or there are several such lists, the text comes back as it is,
    # with None: who parses it says what is wrong.
    found = [key.span() for key in _KEY.finditer(raw)]
    starts = [end for start, end in found if raw[start - 1 : start] != b"\\"]
    if len(starts) != 1:
        return raw, None
    made = Strings()
    at = starts[0]
    try:
        while some := _SOME.match(raw, at):
            made.extend(map(merge_text, json.loads(b"[%b]" % some[0][:-1])))
            at = some.end()
        last = _LAST.match(raw, at)
        if last is None:
            return raw, None
        made.extend(map(merge_text, json.loads(b"[" + last[0])))
    except ValueError:
        return raw, None
    return raw[: starts[0]] + raw[last.end() - 1 :], made


def merge_text(merge: str | list[str]) -> str:
    """Return a merge as in GGUF."""
    # GPT-2's letter for a space stands in the halves, which a space parts.
    if isinstance(merge, str):
        return merge
    left, right = merge
    return f"{left.replace(' ', 'Ġ')} {right.replace(' ', 'Ġ')}"
