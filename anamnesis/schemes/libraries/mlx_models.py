"""What mlx-lm makes of single layers, by the type of model, as rows of JSON.

Most of its classes quantise every linear layer and embedding alike. A `quant_predicate` gives some
layers 8 bits, or leaves them. What a `sanitize` renames or splits by its weight alone loses its
scales there, so that it can only be plain in a file with the names of transformers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from anamnesis.base.plain_json import json_table


class Row(NamedTuple):
    """What becomes of some layers."""

    modules: str
    way: Literal["plain", "alike", "8 bits"]
    why: str = ""
    beside: str = ""
    when: str = ""

    def fits(self, module: str, shapes: Mapping[str, Any]) -> bool:
        """Return whether it is about a module of a model with such weights."""
        match = _ending(self.modules).search(module)
        return match is not None and (
            not self.beside or f"{module[: match.start()]}{self.beside}.weight" in shapes
        )


@cache
def _ending(modules: str) -> re.Pattern[str]:
    return re.compile(f"(?:{modules})$")


def _types(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_TABLE = json_table(__file__)
# Of every model, and before its own.
_OF_ALL = (Row(r"(^|\.)lm_head", "plain", "tied to the embedding", when="tie_word_embeddings"),)
# The first row that fits is that of a layer. Routers that no row fits are plain: in many classes
# they are no linear layers.
ROWS = {kind: tuple(Row(**row) for row in rows) for kind, rows in _TABLE["rows"].items()}
# Types of which mlx-lm uses `kv_b_proj` as it is. All other classes split it before they quantise,
# and take one that is quantised for affine integers, or for plain.
KEEPS_KV_B = _types([_TABLE["keeps_kv_b"]])
# Types of models of which mlx-lm stacks the experts of a file if they are plain, and misses them
# if they are quantised: the `sanitize` of their classes asks for weights alone.
PLAIN_EXPERTS = _types(_TABLE["plain_experts"])
CLASSES = _types(_TABLE["classes"])  # types that mlx-lm has a class for
# Types whose class is another's: `MODEL_REMAPPING` of mlx-lm.
ALIASES: Mapping[str, str] = _TABLE["aliases"]
_BY_ARCHITECTURE = {("bailing_hybrid", "BailingMoeV3ForCausalLM"): "bailing_moe_v3"}

# What a module of a file becomes in mlx-lm, where its config says something of it.
_NESTED = (("model.language_model.", "language_model.model."),)
_PATHS = {
    "gemma4": _NESTED,
    "kimi_k3": ((".block_sparse_moe.gate", ".mlp.gate"),),
    "qwen3_5": _NESTED,
    "qwen3_5_moe": _NESTED,
    "qwen3_vl_moe": _NESTED,
    "step3p5": ((".moe.gate", ".mlp.gate.gate"),),
}


def class_of(config: Mapping[str, Any]) -> str:
    """Return the type of model that mlx-lm has a config's class under; empty without one."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return ""
    given = config.get("architectures")
    names = filter(
        lambda name: isinstance(name, str), given if isinstance(given, list) else [given]
    )
    by_architecture = (_BY_ARCHITECTURE.get((kind, name)) for name in names)
    return next(filter(None, by_architecture), ALIASES.get(kind, kind))


def rows_of(config: Mapping[str, Any]) -> list[Row]:
    """Return the rows that a config's model has, the first of which counts."""
    given = [part for part in (config, config.get("text_config")) if isinstance(part, dict)]
    said = {key for part in given for key, value in part.items() if value is True}
    counts = [n for n in (part.get("num_hidden_layers") for part in given) if type(n) is int]
    last = str(counts[-1] - 1) if counts else ""
    rows = (*_OF_ALL, *ROWS.get(class_of(config), ()))
    return [
        row._replace(modules=row.modules.replace("LAST", last))
        for row in rows
        if not row.when or row.when in said
    ]


def path_in_mlx(kind: str, module: str) -> str:
    """Return what mlx-lm calls a module of a file, of a type of models."""
    for old, new in _PATHS.get(kind, ()):
        if new not in module:
            module = module.replace(old, new)
    return module
