"""Encodings that are known but cannot be decoded yet, and how they show.

One row each. An encoding that gets a decoder loses its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.detect.config_facts import QuantFacts

UNREAD = "cannot be decoded yet"
ADVICE = "use the original weights, or a copy of the model in another encoding"
_REMEDY = (
    f"{ADVICE}; allow_unknown=True copies the codes as they are stored, which gives no usable model"
)


class _Row(NamedTuple):
    """How an encoding shows."""

    encoding: str
    producer: str
    parts: str
    method: str = ""


class _Whole(NamedTuple):
    """What a weight of an encoding that is read has."""

    encoding: str
    codes: str
    needs: str
    method: str = ""


_ELSEWHERE = (
    "give the whole directory if it lies in another shard; allow_unknown=True copies the codes as"
    " they are stored, which gives no usable model"
)


class Known(NamedTuple):
    """A `quant_method`, or a format, that programs know: whether files in it are read here.

    `state` is `written`, `read`, `refused`, or `runtime`: a program's name for how it runs a model.
    """

    name: str
    state: str
    programs: str
    words: str


class _Table(NamedTuple):
    """What unread.json has: the first row that fits counts.

    For encodings that only the config names, how it spells a method, and the usual spelling.
    """

    rows: tuple[_Row, ...]
    wholes: tuple[_Whole, ...]
    names: Mapping[str, str]
    methods: tuple[Known, ...]
    formats: tuple[Known, ...]


@cache
def _table() -> _Table:
    found = json_table(__file__)
    rows = tuple(_Row(*row) for row in found["unread"])
    wholes = tuple(_Whole(*row) for row in found["whole"])
    methods, formats = (tuple(Known(*row) for row in found[key]) for key in ("methods", "formats"))
    return _Table(rows, wholes, found["names"], methods, formats)


def known() -> tuple[Known, ...]:
    """Return all methods and formats that programs know."""
    return (*_table().methods, *_table().formats)


def name_encoding(parts: Mapping[str, StoredTensor], facts: QuantFacts) -> str | None:
    """Return the encoding of a weight in words, or None if neither names nor config show it."""
    by_config = (facts.declared or "").partition(",")[0]
    for row in _table().rows:
        if row.method.lower() in by_config.lower() and _fits(row.parts, parts):
            producer = row.producer or _table().names.get(by_config.lower(), "")
            is_given = not producer or producer == row.encoding
            return row.encoding if is_given else f"{row.encoding} ({producer})"
    return _table().names.get(by_config.lower())


def missing_parts(
    weight: str,
    parts: Mapping[str, StoredTensor],
    stored: Mapping[str, StoredTensor],
    facts: QuantFacts,
) -> AnamnesisError | None:
    """Return the error for a weight whose parts are missing; None if it is of no known kind."""
    by_config = (facts.declared or "").partition(",")[0].lower()
    for whole in _table().wholes:
        if whole.method.lower() in by_config and _fits(whole.codes, parts):
            missing = [
                ends
                for ends in whole.needs.split()
                if not any(f"{weight}.{end}" in stored for end in ends.split("|"))
            ]
            if missing:
                codes = parts[whole.codes.split()[0].partition(":")[0]]
                names = ", no ".join(name.replace("|", " or ") for name in missing)
                why = f"{codes} holds {whole.encoding}, but there is no {names} beside it"
                return codes.unsupported(why, remedy=_ELSEWHERE)
    return None


def _fits(shown: str, parts: Mapping[str, StoredTensor]) -> bool:
    for part in shown.split():
        name, _, dtypes = part.partition(":")
        tensor = parts.get(name)
        if tensor is None or (dtypes and tensor.dtype.name not in dtypes.split(",")):
            return False
    return True


def refuse_encoding(codes: StoredTensor, encoding: str, facts: QuantFacts) -> UnsupportedError:
    """Return the error for a weight with these codes, whose encoding cannot be decoded yet."""
    return unread_error(f"{codes.source.name}: {codes}", encoding, facts)


def unread_error(what: str, encoding: str, facts: QuantFacts) -> UnsupportedError:
    """Return the error for a weight, `what`, whose encoding in words is `encoding`."""
    said = f"; the config says {facts.declared}" if facts.declared else ""
    error = UnsupportedError(f"{what}: {encoding} {UNREAD}{said}", remedy=_REMEDY)
    error.encoding = encoding
    return error
