"""What mlx-lm makes of single layers, by the type of model, as rows of JSON.

Most of its classes quantise every linear layer and embedding alike. A `quant_predicate` gives some
layers 8 bits, or leaves them. What a `sanitize` renames or splits by its weight alone loses its
scales there, so that it can only be plain in a file with the names of transformers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.plain_json import json_table
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Config, Layers, Shapes
from anamnesis.schemes.libraries.left_plain import LEFT, refusal


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

# What a module of a file becomes in mlx-lm, where its config says something of it.
_PATHS: Mapping[str, Mapping[str, str]] = _TABLE["paths"]


def class_of(config: Mapping[str, Any]) -> str:
    """Return the type of model that mlx-lm has a config's class under; empty without one."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return ""
    given = config.get("architectures")
    names = given if isinstance(given, list) else [given]
    if kind == "bailing_hybrid" and "BailingMoeV3ForCausalLM" in names:
        return "bailing_moe_v3"
    return ALIASES.get(kind, kind)


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


CONFIG_KEYS = ("quantization", "quantization_config")

_EXPERT = re.compile(r"\.experts\.[0-9]+\.")
# Its layers of several matrices, one for each expert or head.
_SEVERAL = re.compile(
    r"(^|\.)((switch_\w+|experts)\.\w+|embed_q|unembed_out|moe\.(gate|up|down)_proj)\.weight$"
)
_WEIGHT = ".weight"
_SPLIT = "kv_b_proj, which mlx-lm splits before it quantises"


def mlx_refusal(name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
    """Return why mlx-lm's `quantize_model` leaves a weight of any model."""
    # It takes every linear layer and embedding, heads among them, and the stacks of experts of its
    # `SwitchLinear` layers.
    is_stack = len(shape) == 3 and _SEVERAL.search(name) is not None
    return refusal(name, shape, dtype, ("norm",), 3 if is_stack else 2)


def left_in(shapes: Shapes, config: Config) -> Mapping[str, str]:
    """Return what mlx-lm leaves of a model or only loads plain, and routers it may not take."""
    kind = class_of(config)
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    keeps_kv_b = not KEEPS_KV_B.isdisjoint({class_of(part) for part in parts})
    rows = dict(_rows(shapes, config))
    left = {name: row.why for name, row in rows.items() if row.way == "plain"}
    for name in shapes:
        if name.endswith(".kv_b_proj.weight") and not keeps_kv_b:
            left[name] = _SPLIT
        elif kind in PLAIN_EXPERTS and _EXPERT.search(name):
            left[name] = f"expert, which mlx-lm loads plain in {config['model_type']}"
        elif name not in rows and LEFT["router"].search(name.removesuffix(_WEIGHT)):
            left[name] = "router"
    return left


def in_8_bits(shapes: Shapes, config: Config) -> Mapping[str, str]:
    """Return the layers that mlx-lm has in 8 bits, whatever it has the others in."""
    return {name: "mlx-8bit" for name, row in _rows(shapes, config) if row.way == "8 bits"}


def with_each(
    section: dict[str, Any], layers: Mapping[str, Encoding], config: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return mlx-lm's section with an entry for each layer that is of other settings."""
    # mlx-lm looks for its own names, readers of the file for the file's. None if a layer is in
    # codes that are not MLX's.
    given = dict(section)
    for module, encoding in layers.items():
        if encoding.layout.config_keys != CONFIG_KEYS:
            return None
        entry = encoding.layout.declare(Layers(()))
        if entry["mode"] == "affine":  # as layers are that say no mode
            del entry["mode"]
        path = module
        for old, new in _PATHS.get(class_of(config), {}).items():
            if new not in path:
                path = path.replace(old, new)
        given[module] = given[path] = entry
    return given


def _rows(shapes: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield the weights that a model's class treats by itself, and how."""
    rows = rows_of(config)
    for name in shapes if rows else ():
        module = name.removesuffix(_WEIGHT)
        row = next((row for row in rows if row.fits(module, shapes)), None)
        if row is not None:
            yield name, row
