"""The merges of a tokenizer.json, taken out before Python makes objects of it.

They are most of what such a file holds: of Llama 3's, 280,000 lists of two strings, which take
60 MB as objects and 5 MB as bytes.
"""

from __future__ import annotations

import json
import re

from anamnesis.formats.gguf.strings import Strings

_KEY = re.compile(rb'(?<!\\)"merges"\s*:\s*\[')
_TEXT = rb'"(?:[^"\\\x00-\x1f]|\\.)*"'
_ITEM = re.compile(rb"\s*(?:\[\s*(" + _TEXT + rb")\s*,\s*(" + _TEXT + rb")\s*\]|(" + _TEXT + rb"))")
_NEXT = re.compile(rb"\s*([,\]])")
_SPACE = "Ġ".encode()  # GPT-2's letter for a space, which parts the halves


def cut_merges(raw: bytes) -> tuple[bytes, Strings | None]:
    """Return a JSON text without its merges, and these as GGUF has them: halves with a space.

    Where they are not as usual, or there are several such lists, the text comes back as it is, with
    None: who parses it says what is wrong.
    """
    keys = list(_KEY.finditer(raw))
    if len(keys) != 1:
        return raw, None
    start = keys[0].end()
    made = Strings()
    at = start
    while True:
        item = _ITEM.match(raw, at)
        text = None if item is None else _merge(item)
        if item is None or text is None:
            return raw, None
        made.add(text)
        after = _NEXT.match(raw, item.end())
        if after is None:
            return raw, None
        at = after.end()
        if after[1] == b"]":
            return raw[:start] + raw[at - 1 :], made


def _merge(item: re.Match[bytes]) -> bytes | None:
    """Return a merge in UTF-8; None if it is none."""
    left, right, whole = item.groups()
    if whole is not None:
        return _utf8(whole)
    halves = [_utf8(left), _utf8(right)]
    if halves[0] is None or halves[1] is None:
        return None
    return halves[0].replace(b" ", _SPACE) + b" " + halves[1].replace(b" ", _SPACE)


def _utf8(quoted: bytes) -> bytes | None:
    """Return what a string of JSON's says, in UTF-8; None if UTF-8 has no such text."""
    try:
        if b"\\" in quoted:
            text = json.loads(quoted)
            return str(text).encode()
        quoted.decode()
    except ValueError:
        return None
    return quoted[1:-1]
