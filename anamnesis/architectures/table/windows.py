"""Which layers of a model see a window only, where llama.cpp does not assume it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import CONFIG, Facts
from anamnesis.base.errors import ParseError

_PATTERN = "attention.sliding_window_pattern"
_MOST_LAYERS = 512  # of a model that llama.cpp runs
_WINDOW, _FULL = "sliding_attention", "full_attention"


def window_pattern(facts: Facts, period: int) -> Mapping[str, Any]:
    """Return the key that says it, if it is not that the last of each `period` layers sees all."""
    n, given = facts.number("num_hidden_layers"), facts.get("layer_types")
    own = facts.get("sliding_window_pattern") or facts.get("_sliding_window_pattern")
    if given is None and own in (None, period):
        return {}
    if given is None:
        given = _types(n, own) if type(own) is int and own > 0 and n <= _MOST_LAYERS else own
    is_given = isinstance(given, list) and len(given) == n
    if not is_given or not all(kind in (_WINDOW, _FULL) for kind in given):
        raise ParseError(f"layer_types are no {n} of {_WINDOW!r} and {_FULL!r}", source=CONFIG)
    if given == _types(n, period):
        return {}
    return {_PATTERN: {"type": "bool", "value": [kind == _WINDOW for kind in given]}}


def layer_types(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what config.json says by that key, a list or a period; nothing without it."""
    given = find(_PATTERN)
    if given is None:
        return {}
    if isinstance(given, int):
        return {"layer_types": _types(config["num_hidden_layers"], given)}
    return {"layer_types": [_WINDOW if windowed else _FULL for windowed in given]}


def _types(n: int, period: int) -> list[str]:
    return [_WINDOW if (i + 1) % period else _FULL for i in range(n)]
