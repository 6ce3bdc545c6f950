"""The JSON files beside weights, read with caps."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.file_names import HF_QUANT_NAME, PARAMS_NAME, QUANTO_MAP_NAME
from anamnesis.schemes.libraries.sections import QUANT_FILE_KEY
from anamnesis.sources.file import FileSource

JSON_MAX_BYTES = 100_000_000  # the largest real index has 20 MB
JSON_MAX_VALUES = 2_000_000  # and fewer than a quarter of a million values
JSON_MAX_DEPTH = 64
_UNCOUNTED = 100  # values, as an ordinary config has them
_VALUE_BYTES = 100  # that each value takes in Python, with its key and its place


def read_json(
    path: str | os.PathLike[str],
    budget: Budget,
    *,
    max_values: int = JSON_MAX_VALUES,
    cut: Callable[[bytes], bytes] | None = None,
    once: bool = False,
) -> dict[str, Any]:
    """Read a JSON object from a file of at most so many values."""
    with FileSource(path) as source:
        if source.size > JSON_MAX_BYTES:
            raise LimitExceeded("JSON_MAX_BYTES", f"{path}: {source.size:,} bytes of JSON")
        budget.alloc(source.size, os.path.basename(path))
        raw = source.read(0, source.size)
    return json_object(raw, path, budget, max_values=max_values, cut=cut, once=once)


def json_object(
    raw: bytes,
    path: str | os.PathLike[str],
    budget: Budget,
    *,
    max_values: int = JSON_MAX_VALUES,
    cut: Callable[[bytes], bytes] | None = None,
    once: bool = False,
) -> dict[str, Any]:
    """Return the JSON object that bytes of a file are."""
    most = len(raw) - len(raw.translate(None, b",[{"))  # those in strings too
    if most > max_values:
        raise LimitExceeded("JSON_MAX_VALUES", f"{path}: more than {max_values:,} values")
    most = max(0, most - _UNCOUNTED)
    name = os.path.basename(path)
    budget.items(most, f"the values of {name}")
    budget.alloc(_VALUE_BYTES * most, f"the values of {name}")
    if cut is not None:
        raw = cut(raw)
    try:
        value = json.loads(raw, object_pairs_hook=_once if once else None)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:
        raise ParseError(f"not valid JSON: {error}", source=str(path)) from None
    if not isinstance(value, dict):
        raise ParseError("must hold a JSON object", source=str(path))
    level: list[Any] = [value]
    for _ in range(JSON_MAX_DEPTH):  # deeper than any real config, so that walking it may recurse
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return value
    raise _too_deep(path)


def read_quant_files(
    folder: str | os.PathLike[str], names: Iterable[str], budget: Budget
) -> dict[str, Any]:
    """Read files that describe a quantisation, as one config."""
    # ModelOpt's is laid out like config.json, and Mistral's params.json has a section somewhere; in
    # the others the section is the whole file.
    found: dict[str, Any] = {}
    for name in names:
        told = read_json(os.path.join(folder, name), budget)
        if name == PARAMS_NAME:
            told = {name: told}
        elif name == QUANTO_MAP_NAME:
            told = {QUANT_FILE_KEY: {"quant_method": "quanto", "modules": told}}
        elif name != HF_QUANT_NAME:
            told = {QUANT_FILE_KEY: told}
        found |= told
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object; remove one")
    return value


def _too_deep(path: str | os.PathLike[str]) -> LimitExceeded:
    return LimitExceeded(
        "JSON_MAX_DEPTH",
        f"{path}: JSON nested too deeply; {JSON_MAX_DEPTH} objects and arrays in one another are"
        " allowed",
    )
