"""Kinds of layers, by `layer_types` of config.json or by a period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anamnesis.architectures.arch import Key
from anamnesis.architectures.model_facts import CONFIG, Facts
from anamnesis.base.errors import ParseError

FULL, SLIDING = "full_attention", "sliding_attention"
WINDOW = Key("attention.sliding_window", "sliding_window")


def layer_types(facts: Facts, other: str, period: int) -> list[str]:
    """Return the kind of each layer; the last of each `period` has full attention by default."""
    n = facts.n_layers
    given: Any = facts.get("layer_types")
    if given is None:
        return [other if (i + 1) % period else FULL for i in range(n)]
    if not (isinstance(given, list) and len(given) == n and all(k in (FULL, other) for k in given)):
        raise ParseError(
            f"layer_types are not {n} of {other!r} and {FULL!r}, one for each layer", source=CONFIG
        )
    return given


def of_kind(facts: Facts, kind: str, period: int) -> list[bool]:
    """Return which layers do not have full attention, but another kind."""
    return [each == kind for each in layer_types(facts, kind, period)]


def layer_kinds(given: Sequence[bool], other: str = SLIDING) -> list[str]:
    """Return the kinds of layers, as in config.json."""
    if not isinstance(given, Sequence):
        raise ParseError("attention.sliding_window_pattern is no list, one for each layer")
    return [other if is_other else FULL for is_other in given]
