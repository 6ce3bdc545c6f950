"""T5's encoder alone, as image models have it: T5 and UMT5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find, Naming
from anamnesis.architectures.model_facts import Facts, unsupported
from anamnesis.architectures.table.rows import ROWS

_LENGTH = 512  # llama.cpp's converter's own, of a config that says none
_DISTANCE = 128  # llama.cpp's own
_ONE, _GATED = "DenseReluDense.wi.", "DenseReluDense.wi_1."
_TABLES = ("shared.weight", "encoder.embed_tokens.weight")
_SPELT = {"hidden_size": "d_model", "num_attention_heads": "num_heads", "head_dim": "d_kv"}


class _Names(Naming):
    """The embeddings under either of their names, and the way up of a layer without a gate.

    What is counted in a block is no layer: `layer.0` is `layer-0` in the rules.
    """

    def there(self, name: str, facts: Facts) -> str:
        """`encoder.embed_tokens.weight` -> `shared.weight`; `wi` -> `wi_1`."""
        if name == _TABLES[1]:
            return _TABLES[0]
        return name.replace(".layer.", ".layer-").replace(_ONE, _GATED)

    def back(self, name: str, facts: Facts) -> str:
        """`wi_1` -> `wi`, if there is no gate."""
        name = name.replace(".layer-", ".layer.")
        return name if facts.get("is_gated_act") else name.replace(_GATED, _ONE)


def _is_copy(facts: Facts, name: str) -> bool:
    """Return whether a tensor is the embeddings once more; the encoder's own come first."""
    return name == _TABLES[0] and _TABLES[1] in facts.names


def _derived(facts: Facts) -> Mapping[str, Any]:
    """Return what config.json may leave out, and whether layers have a gate."""
    kind = facts.get("feed_forward_proj")
    if kind not in ("relu", "gated-gelu"):
        raise unsupported(
            f"feed_forward_proj is {kind!r}; llama.cpp's t5encoder computes relu without"
            " a gate, and gated-gelu with one"
        )
    distance = facts.get("relative_attention_max_distance")
    if distance not in (None, _DISTANCE):
        raise unsupported(
            f"relative_attention_max_distance is {distance!r}, and llama.cpp computes"
            f" with {_DISTANCE}"
        )
    spelt = {usual: facts.get(own) for usual, own in _SPELT.items()}
    return {
        "is_gated_act": kind == "gated-gelu",
        "max_position_embeddings": _LENGTH,
        **{usual: value for usual, value in spelt.items() if value is not None},
    }


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return config.json's facts under the names of T5's class."""
    return {
        **{own: config[usual] for usual, own in _SPELT.items()},
        "num_layers": config["num_hidden_layers"],
        "n_positions": config["max_position_embeddings"],
        "layer_norm_epsilon": config["layer_norm_eps"],
        "feed_forward_proj": "gated-gelu" if config["is_gated_act"] else "relu",
    }


# UMT5 comes first: each of its layers has positions of its own.
ARCHS = tuple(
    replace(ROWS[name], derived=_derived, left=_is_copy, naming=_Names(), uncomputed=_config)
    for name in ("umt5", "t5")
)
