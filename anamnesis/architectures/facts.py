"""What config.json says of a model, or its class fills in, in one spelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.architectures.config_defaults import DEFAULTS
from anamnesis.base.errors import ParseError

if TYPE_CHECKING:
    from anamnesis.architectures.arch import Arch

__all__ = ["CONFIG", "HEAD_DIM_MAX", "LAYERS_MAX", "Facts", "missing", "read_facts", "real"]

CONFIG = "config.json"

_THETAS = ("rope_theta", "rotary_emb_base", "global_rope_theta")
_LOCAL_THETAS = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")
_PARTIAL = ("partial_rotary_factor", "rope_pct", "rope_percent")
_MOST = 1 << 32
LAYERS_MAX = 512  # llama.cpp's own
HEAD_DIM_MAX = 1 << 16  # the largest real heads have 576 values
_MOST_REAL = 1 << 127


class Facts:
    """Facts by their names in config.json.

    Attributes
    ----------
    values : dict
    rope : dict
        Of layers with full attention: `rope_theta`, `rope_type`, `factor`, …
    local_rope : dict
        Of layers with a sliding window; empty where they have no own.
    names : frozenset of str
        The stored tensors of the model.
    """

    def __init__(
        self, values: dict[str, Any], rope: dict[str, Any], local_rope: dict[str, Any]
    ) -> None:
        self.values = values
        self.rope = rope
        self.local_rope = local_rope
        self.names: frozenset[str] = frozenset()

    def get(self, *names: str) -> Any:
        """Return the first of some facts that is there and not null; None if none is."""
        return next((self.values[n] for n in names if self.values.get(n) is not None), None)

    def number(self, *names: str) -> int:
        """Return a fact that must be there, a positive integer.

        Raises
        ------
        ParseError
            If there is none, or it is none.
        """
        value = self.get(*names)
        if value is None:
            raise missing(names)
        if type(value) is not int or not 0 < value < _MOST:
            raise ParseError(f"{names[0]} is {value!r}, not a positive integer", source=CONFIG)
        return value

    def limited(self, most: int, *names: str) -> int:
        """Return a positive integer that is no more than what llama.cpp takes, or a real model has.

        Raises
        ------
        ParseError
            If there is none, or it is none, or more.
        """
        value = self.number(*names)
        if value > most:
            raise ParseError(f"{names[0]} is {value:,}, more than {most:,}", source=CONFIG)
        return value

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return self.limited(LAYERS_MAX, "num_hidden_layers", "n_layer")

    @property
    def head_dim(self) -> int:
        """The values of a head."""
        if self.get("head_dim") is not None:
            return self.limited(HEAD_DIM_MAX, "head_dim")
        return self.number("hidden_size") // self.number("num_attention_heads")


def real(section: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number of a section, such as the rope's.

    Raises
    ------
    ParseError
        If it is there and none that float32 holds.
    """
    value = section.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not abs(value) < _MOST_REAL:
        raise ParseError(f"{name} is {value!r}, no number of float32", source=CONFIG)
    return float(value)


def missing(names: Iterable[str]) -> ParseError:
    """Return the error for a fact that config.json must have."""
    first, *others = names
    beside = f" (or {', '.join(others)})" if others else ""
    return ParseError(f"has no {first}{beside}, which the GGUF header needs", source=CONFIG)


def read_facts(config: Mapping[str, Any], arch: Arch) -> Facts:
    """Return the facts of a model.

    Parameters
    ----------
    config : mapping
        Of config.json; facts of its text model count before its own.
    arch : Arch

    Raises
    ------
    ParseError
        If a section of it is no object.
    """
    text = _section(config, "text_config")
    told = {**config, **text}
    own = text or config
    model_type = own.get("model_type") if isinstance(own.get("model_type"), str) else None
    defaults = DEFAULTS.get(model_type or arch.model_type, DEFAULTS.get(arch.model_type, {}))
    values = {**defaults, **told}  # null stays: a class has its own for what is not there only
    facts = Facts(values, *_ropes(values))
    if arch.derived is not None:
        for name, value in arch.derived(facts).items():
            if facts.get(name) is None:
                facts.values[name] = value
    return facts


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise ParseError(f"{name} is no object", source=CONFIG)
    return section


def _ropes(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rope of full attention and of windows: transformers 5's spelling, or 4's."""
    told = dict(_section(values, "rope_parameters") or _section(values, "rope_scaling"))

    def first(names: Iterable[str]) -> Any:
        return next((values[n] for n in names if values.get(n) is not None), None)

    local = told.get("sliding_attention")
    if isinstance(told.get("full_attention"), Mapping) or isinstance(local, Mapping):
        return dict(_section(told, "full_attention")), dict(_section(told, "sliding_attention"))
    if "rope_theta" not in told and first(_THETAS) is not None:
        told["rope_theta"] = first(_THETAS)
    if "rope_type" not in told and told.get("type") is not None:
        told["rope_type"] = told["type"]
    for name, spellings in {
        "partial_rotary_factor": _PARTIAL,
        "original_max_position_embeddings": ("original_max_position_embeddings",),
    }.items():
        if name not in told and first(spellings) is not None:
            told[name] = first(spellings)
    theta = first(_LOCAL_THETAS)
    return told, {} if theta is None else {"rope_theta": theta}
