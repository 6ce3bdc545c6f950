"""Which weights mlx-lm quantises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anamnesis.base.dtypes import DType
from anamnesis.schemes.linear import refusal

__all__ = ["PLAIN_EXPERTS", "mlx_leaves", "mlx_refusal"]

# Types of models of which mlx-lm stacks the experts of a file if they are plain, and misses them
# if they are quantised: the `sanitize` of their classes asks for weights alone.
PLAIN_EXPERTS = frozenset(
    {
        *("Klear", "bailing_moe_v3", "ernie4_5_moe", "kimi_linear", "lfm2_moe", "mellum"),
        *("minimax", "minimax_m2", "nemotron_h", "qwen3_moe", "qwen3_next"),
    }
)
_EXPERT = re.compile(r"\.experts\.[0-9]+\.")
# Its layers of several matrices, one for each expert.
_SWITCH = re.compile(r"(^|\.)(switch_\w+|experts)\.\w+\.weight$")


def mlx_refusal(name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
    """Return why mlx-lm's `quantize_model` leaves a weight, as far as its name tells.

    It takes every linear layer and embedding, heads among them, and the stacks of experts of its
    `SwitchLinear` layers. Routers it writes in 8 bits, or does not quantise, according to the
    model's class.
    """
    is_stack = len(shape) == 3 and _SWITCH.search(name) is not None
    return refusal(name, shape, dtype, ("router", "norm"), 3 if is_stack else 2)


def mlx_leaves(
    shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
) -> Mapping[str, str]:
    """Return the experts of models whose experts mlx-lm only loads plain, and that reason."""
    kind = config.get("model_type")
    experts = filter(_EXPERT.search, shapes) if kind in PLAIN_EXPERTS else ()
    return dict.fromkeys(experts, f"expert, which mlx-lm loads plain in {kind}")
