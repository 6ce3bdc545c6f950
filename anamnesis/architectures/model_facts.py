"""What config.json says of a model, or its class fills in, in one spelling."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.plain_json import json_table
from anamnesis.checkpoint.metadata import CONTEXT_LENGTH

CONFIG = "config.json"
_CLASSES = Path(__file__).with_name("config_defaults.json")  # by tools/config_defaults.py

# Each fact, and all its spellings in llama.cpp's converter's order of preference.
_SPELLINGS: Mapping[str, Sequence[str]] = {
    **{fact: words.split() for fact, words in json_table(__file__).items()},
    "max_position_embeddings": CONTEXT_LENGTH,
}
# Those of which another spelling is never something else.
_SIZES = {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads"}
_THETAS = ("rope_theta", "rotary_emb_base", "global_rope_theta")
_LOCAL_THETAS = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")
_PARTIAL = ("partial_rotary_factor", "rope_pct", "rope_percent")
_ORIGINAL = "original_max_position_embeddings"
_TYPES = {"type": "rope_type"}
_MOST = 1 << 32
LAYERS_MAX = 512  # llama.cpp's own
HEAD_DIM_MAX = 1 << 16  # the largest real heads have 576 values
FLOAT32_MOST = 2.0**127


@dataclass(eq=False, repr=False)
class Facts:
    """Facts by their names in config.json."""

    values: dict[str, Any]
    rope: dict[str, Any]
    local_rope: dict[str, Any]
    names: frozenset[str] = frozenset()
    given: Mapping[str, Any] = field(default_factory=dict)  # without what the class fills in

    def get(self, name: str) -> Any:
        """Return a fact; None if it is not there, or null."""
        return self.values.get(name)

    def number(self, name: str) -> int:
        """Return a fact that must be there, a positive integer."""
        value = self.get(name)
        if value is None:
            raise missing(name)
        if type(value) is not int or not 0 < value < _MOST:
            raise malformed(f"{name} is {value!r}, not a positive integer")
        return value

    def limited(self, most: int, name: str) -> int:
        """Return a positive integer that is no more than what llama.cpp takes, or a real
        model has.
        """
        value = self.number(name)
        if value > most:
            raise malformed(f"{name} is {value:,}, more than {most:,}")
        return value

    @property
    def n_layers(self) -> int:
        return self.limited(LAYERS_MAX, "num_hidden_layers")

    @property
    def head_dim(self) -> int:
        if self.get("head_dim") is not None:
            return self.limited(HEAD_DIM_MAX, "head_dim")
        return self.number("hidden_size") // self.number("num_attention_heads")


def real(section: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number of a section, such as the rope's."""
    value = section.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not abs(value) < FLOAT32_MOST:
        raise malformed(f"{name} is {value!r}, no number of float32")
    return float(value)


def malformed(what: str) -> ParseError:
    """Return the error for a config.json that cannot be right."""
    return ParseError(what, source=CONFIG)


def unsupported(what: str) -> UnsupportedError:
    """Return the error for what config.json says, and llama.cpp or its files cannot."""
    return UnsupportedError(f"{CONFIG}: {what}")


def missing(name: str) -> ParseError:
    """Return the error for a fact that config.json must have."""
    others = [other for other in _SPELLINGS.get(name, ()) if other != name]
    beside = f" (or {', '.join(others)})" if others else ""
    return malformed(f"has no {name}{beside}, which the GGUF header needs")


def read_facts(
    config: Mapping[str, Any],
    usual_type: str,
    derived: Callable[[Facts], Mapping[str, Any]] | None,
) -> Facts:
    """Return the facts of a model, with those that its architecture derives from others."""
    text = _section(config, "text_config")
    own = text or config
    model_type = own.get("model_type") if isinstance(own.get("model_type"), str) else None
    classes = _classes()
    of_class = classes.get(model_type or "") or classes.get(usual_type, {})
    spellings = of_class.get("spellings", {})
    values: dict[str, Any] = {}
    for given in (of_class.get("defaults", {}), config, text):
        values |= _spelt(given, spellings)  # null stays: a class has its own for what is not there
    if config.get("tie_word_embeddings") is True:  # of the whole, whatever the text's says
        values["tie_word_embeddings"] = True
    facts = Facts(values, *_ropes(values))
    facts.given = {**config, **text}
    for name, value in (derived(facts) if derived else {}).items():
        if facts.get(name) is None:
            facts.values[name] = value
    return facts


@cache
def _classes() -> Mapping[str, Any]:
    """Return what each class of transformers fills in, and how it also spells facts."""
    found: Mapping[str, Any] = json.loads(_CLASSES.read_text("utf-8"))["classes"]
    return found


def _spelt(given: Mapping[str, Any], of_class: Mapping[str, str]) -> dict[str, Any]:
    """Return facts in one spelling: the class's own first, then the converter's order."""
    values = dict(given)
    for other, name in of_class.items():
        value = values.get(other)
        if value is None:
            continue
        if values.get(name) not in (None, value):
            raise malformed(
                f"{name} is {values[name]!r} and {other} is {value!r}, which are one fact"
            )
        values[name] = value
    for name, spellings in _SPELLINGS.items():
        said = {s: values[s] for s in spellings if values.get(s) is not None}
        if name in _SIZES and any(value != values[next(iter(said))] for value in said.values()):
            raise malformed(f"{' and '.join(said)} are one fact, and differ")
        if said or any(spelling in values for spelling in spellings):
            values[name] = next(iter(said.values()), None)
    return values


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise malformed(f"{name} is no object")
    return section


def _ropes(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rope of full attention and of windows: transformers 5's spelling, or 4's."""
    given, older = dict(_section(values, "rope_parameters")), _section(values, "rope_scaling")
    of_all = _section(given, "full_attention") or given
    if of_all and any(of_all.get(_TYPES.get(key, key)) != older[key] for key in older):
        raise malformed("rope_parameters and rope_scaling are one fact, and differ")
    given = given or dict(older)

    def first(names: Iterable[str]) -> Any:
        return next((values[n] for n in names if values.get(n) is not None), None)

    local = given.get("sliding_attention")
    if isinstance(given.get("full_attention"), Mapping) or isinstance(local, Mapping):
        return dict(_section(given, "full_attention")), dict(_section(given, "sliding_attention"))
    if "rope_theta" not in given and first(_THETAS) is not None:
        given["rope_theta"] = first(_THETAS)
    if "rope_type" not in given and given.get("type") is not None:
        given["rope_type"] = given["type"]
    if "partial_rotary_factor" not in given and first(_PARTIAL) is not None:
        given["partial_rotary_factor"] = first(_PARTIAL)
    if values.get(_ORIGINAL) is not None:  # which wins over the rope's own
        given[_ORIGINAL] = values[_ORIGINAL]
    theta = first(_LOCAL_THETAS)
    return given, {} if theta is None else {"rope_theta": theta}
