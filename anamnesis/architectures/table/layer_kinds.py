"""Kinds of layers, which llama.cpp calls blocks: of full attention, of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import LAYERS_MAX, Facts, malformed
from anamnesis.base.errors import ParseError

FULL, SLIDING = "full_attention", "sliding_attention"
_PATTERN = "attention.sliding_window_pattern"


def layer_types(facts: Facts, other: str, period: int) -> list[str]:
    """Return the kind of each layer; the last of each `period` has full attention by default."""
    n = facts.n_layers
    given: Any = facts.get("layer_types")
    if given is None:
        return _by_period(n, period, other)
    if not (isinstance(given, list) and len(given) == n and all(k in (FULL, other) for k in given)):
        raise malformed(f"layer_types are not {n} of {other!r} and {FULL!r}, one for each layer")
    return given


def of_kind(facts: Facts, kind: str, period: int) -> list[bool]:
    """Return which layers do not have full attention, but another kind."""
    return [each == kind for each in layer_types(facts, kind, period)]


def layer_kinds(given: Sequence[bool], other: str = SLIDING) -> list[str]:
    """Return the kinds of layers, as in config.json."""
    if not isinstance(given, Sequence):
        raise ParseError("attention.sliding_window_pattern is no list, one for each layer")
    return [other if is_other else FULL for is_other in given]


def _by_period(n: int, period: int, other: str = SLIDING) -> list[str]:
    return [other if (i + 1) % period else FULL for i in range(n)]


# --- of windows, where llama.cpp assumes another pattern ------------------------------------------


def window_pattern(facts: Facts, period: int) -> Mapping[str, Any]:
    """Return the key that says it, if it is not that the last of each `period` layers sees all."""
    n, given = facts.number("num_hidden_layers"), facts.get("layer_types")
    own = facts.get("sliding_window_pattern") or facts.get("_sliding_window_pattern")
    if given is None and own in (None, period):
        return {}
    if given is None:
        given = _by_period(n, own) if type(own) is int and own > 0 and n <= LAYERS_MAX else own
    is_given = isinstance(given, list) and len(given) == n
    if not is_given or not all(kind in (SLIDING, FULL) for kind in given):
        raise malformed(f"layer_types are no {n} of {SLIDING!r} and {FULL!r}")
    if given == _by_period(n, period):
        return {}
    return {_PATTERN: {"type": "bool", "value": [kind == SLIDING for kind in given]}}


def types_by_window(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what config.json says by that key, a list or a period; nothing without it."""
    given = find(_PATTERN)
    if given is None:
        return {}
    if isinstance(given, int):
        return {"layer_types": _by_period(config["num_hidden_layers"], given)}
    return {"layer_types": [SLIDING if windowed else FULL for windowed in given]}
