"""Metadata for a GGUF as command lines and JSON files write them."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from anamnesis.base.arguments import as_float
from anamnesis.formats.gguf.metadata import ValueType
from anamnesis.formats.gguf.values import FLOATS, SAID, Value, of_type, typed

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?")


def read_setting(text: str) -> tuple[str, Value]:
    """Read `KEY=VALUE` or `KEY=TYPE:VALUE`, as a flag has it."""
    # Without a type `true` and `false` are bools, numbers numbers, a JSON list an array, `{"type":
    # "uint32", "value": 7}` what it says, and all else is a string.
    key, equals, given = text.partition("=")
    if not equals or not key:
        raise ValueError(f"write KEY=VALUE or KEY=TYPE:VALUE, not {text!r}")
    name, colon, rest = given.partition(":")
    if not colon or name not in SAID:
        return key, typed(guessed(given))
    kind = SAID[name]
    if kind is ValueType.STRING:
        return key, of_type(kind, rest)
    value = guessed(rest)
    if kind is None:
        if type(value) is not int:
            raise ValueError(f"{rest!r} is no integer")
        return key, typed(value)
    if kind in FLOATS and isinstance(value, str):
        value = as_float(value)
    return key, of_type(kind, value)


def read_settings(text: str) -> dict[str, Any]:
    """Read a JSON object of metadata, from a file."""
    try:
        given = json.loads(text, object_pairs_hook=_object, parse_float=_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(given, dict):
        raise ValueError("must hold a JSON object")
    for key, value in given.items():
        try:
            _finite(value)
        except ValueError as error:
            raise ValueError(f"metadata {key!r}: {error}") from None
    return given


class _Beyond(str):
    """The digits of a number that is beyond every float."""


def _number(text: str) -> float | _Beyond:
    value = float(text)
    return _Beyond(text) if math.isinf(value) else value


def _finite(value: Any) -> Any:
    """Return a value; raise ValueError if a number of it is beyond every float."""
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, _Beyond):
            raise ValueError(f"{item} is beyond every float")
        if isinstance(item, (dict, list)):
            rest += item.values() if isinstance(item, dict) else item
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError for a key that it has twice."""
    given: dict[str, Any] = {}
    for key, value in pairs:
        if key in given:
            raise ValueError(f"has the key {key!r} twice; leave one")
        given[key] = value
    return given


def guessed(text: str) -> Any:
    """Return the value that a text is by itself: a number, a bool, a list or a text."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) < 25:  # what is longer is none that GGUF has
        return int(text)
    if _FLOAT.fullmatch(text):
        return _finite(_number(text))
    if text[:1] + text[-1:] not in ("[]", "{}"):
        return text
    try:
        given = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError):
        return text
    # Any other object is text, as a template that begins with a brace is.
    is_text = isinstance(given, dict) and set(given) != {"type", "value"}
    return text if is_text else _finite(given)
