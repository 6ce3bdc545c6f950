"""Which weights mlx-lm quantises, and how its config says it of each layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries import mlx_models
from anamnesis.schemes.libraries.linear import LEFT, refusal

CONFIG_KEYS = ("quantization", "quantization_config")

_EXPERT = re.compile(r"\.experts\.[0-9]+\.")
# Its layers of several matrices, one for each expert or head.
_SEVERAL = re.compile(
    r"(^|\.)((switch_\w+|experts)\.\w+|embed_q|unembed_out|moe\.(gate|up|down)_proj)\.weight$"
)
_WEIGHT = ".weight"
_KV_B = ".kv_b_proj.weight"
_SPLIT = "kv_b_proj, which mlx-lm splits before it quantises"


def mlx_refusal(name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
    """Return why mlx-lm's `quantize_model` leaves a weight of any model."""
    # It takes every linear layer and embedding, heads among them, and the stacks of experts of its
    # `SwitchLinear` layers.
    is_stack = len(shape) == 3 and _SEVERAL.search(name) is not None
    return refusal(name, shape, dtype, ("norm",), 3 if is_stack else 2)


def left_in(shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what mlx-lm leaves of a model or only loads plain, and routers it may not take."""
    kind = mlx_models.class_of(config)
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    keeps_kv_b = not mlx_models.KEEPS_KV_B.isdisjoint({mlx_models.class_of(part) for part in parts})
    rows = dict(_rows(shapes, config))
    left = {name: row.why for name, row in rows.items() if row.way == "plain"}
    for name in shapes:
        if name.endswith(_KV_B) and not keeps_kv_b:
            left[name] = _SPLIT
        elif kind in mlx_models.PLAIN_EXPERTS and _EXPERT.search(name):
            left[name] = f"expert, which mlx-lm loads plain in {config['model_type']}"
        elif name not in rows and LEFT["router"].search(name.removesuffix(_WEIGHT)):
            left[name] = "router"
    return left


def in_8_bits(
    shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
) -> Mapping[str, str]:
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
        given[module] = given[mlx_models.path_in_mlx(mlx_models.class_of(config), module)] = entry
    return given


def _rows(
    shapes: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[tuple[str, mlx_models.Row]]:
    """Yield the weights that a model's class treats by itself, and how."""
    rows = mlx_models.rows_of(config)
    for name in shapes if rows else ():
        module = name.removesuffix(_WEIGHT)
        row = next((row for row in rows if row.fits(module, shapes)), None)
        if row is not None:
            yield name, row
