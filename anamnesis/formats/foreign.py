"""Files that are no model: what they are, and what to pass instead.

Consulted only when a file could not be parsed, so it costs nothing otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from anamnesis.base.errors import ParseError
from anamnesis.base.plain_json import json_table
from anamnesis.base.source import Source

_TABLE: Mapping[str, Any] = json_table(__file__)
_PASS_A_MODEL, _UNPACK, _EXPORT, _DOWNLOAD = (
    _TABLE["remedies"][name] for name in ("pass", "unpack", "export", "download")
)

# Offset, what is there, what the file is, what to do.
_MAGICS = tuple(
    (offset, magic.encode("latin-1"), what, _TABLE["remedies"][remedy])
    for offset, magic, what, remedy in _TABLE["magics"]
)

# The same where no fixed bytes identify it. ONNX begins with a version and its producer's name.
_PATTERNS = (
    (re.compile(rb"\x08[\x01-\x20](?:\x12.[A-Za-z]|[:B])", re.DOTALL), "an ONNX model", _EXPORT),
    (re.compile(rb"\x08[\x01-\x20]\x12"), "a Core ML or TensorFlow model (protobuf)", _EXPORT),
    (re.compile(rb"\s*+<(?:!doctype html|html)", re.IGNORECASE), "a web page", _DOWNLOAD),
    (re.compile(rb"\s*+<(?:\?xml|svg)"), "an XML file", _PASS_A_MODEL),
    (re.compile(rb"\0{64}"), "a file of zeros: a download that did not finish", _DOWNLOAD),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_TEXT_PICKLE = re.compile(rb"[(\]})dlt]*+(?:p\d++\n|q\0|[ci][\w.]++\n[\w.]++\n|[IFLSV][^\n]*+\n|N)")

_LOOK_AT = 512
_NOT_TEXT = bytes({*range(32), 127} - set(b"\t\n\f\r"))


def foreign_error(source: Source) -> ParseError | None:
    """Return an error that says what kind of file this is; None if it is unknown."""
    what, remedy = _kind(source)
    if not what:
        return None
    error = source.error(f"this is {what}, not a model file", remedy=remedy)
    error.offset = 0  # of no use in the message
    return error


def foreign_kind(source: Source) -> str | None:
    """Return what kind of file this is, and that it must be unpacked; None if it is unknown."""
    what, remedy = _kind(source)
    return f"{what}; unpack it" if remedy == _UNPACK else what or None


def _kind(source: Source) -> tuple[str, str]:
    """Return what a file is, and what to do about it; empty texts if it is unknown."""
    head = source.read(0, min(_LOOK_AT, source.size))
    if not head:
        return "an empty file", _DOWNLOAD
    for offset, magic, what, remedy in _MAGICS:
        if head.startswith(magic, offset):
            return what, remedy
    for pattern, what, remedy in _PATTERNS:
        if pattern.match(head):
            return what, remedy
    if looks_like_a_pickle(source):
        return "a pickle that PyTorch did not save", "anamnesis.scan shows what it refers to"
    if not _is_text(head):
        return "", ""
    if not head.lstrip().startswith((b"{", b"[")):
        return "text", _PASS_A_MODEL
    if source.path is None:
        return "JSON", "pass the directory of the model that it belongs to"
    folder = os.path.dirname(source.path) or os.curdir
    return "JSON", f"pass the model's directory, {folder!r}"


def looks_like_a_pickle(source: Source) -> bool:
    """Return whether a file begins, and if it is text also ends, like a pickle."""
    head = source.read(0, min(_LOOK_AT, source.size))
    if _PICKLE.match(head):
        return True
    return _TEXT_PICKLE.match(head) is not None and source.read(source.size - 1, 1) == b"."


def _is_text(head: bytes) -> bool:
    if head.translate(None, _NOT_TEXT) != head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.end == len(head) == _LOOK_AT and error.start > len(head) - 4  # a cut character
    return True
