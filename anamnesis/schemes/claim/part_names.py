"""Last names of parts of layouts, made by tools/part_names.py: do not edit."""

from __future__ import annotations

__all__ = ["PART_NAMES"]

PART_NAMES = frozenset(
    {
        "SCB",
        "W_q",
        "_data",
        "_scale",
        "_shift",
        "_zeropoint",
        "absmax",
        "biases",
        "blocks",
        "codebooks",
        "codes",
        "comfy_quant",
        "g_idx",
        "global_scale",
        "indices",
        "nested_absmax",
        "nested_quant_map",
        "perm",
        "qscale_weight",
        "quant_map",
        "qweight",
        "qzeros",
        "res_indices",
        "scale",
        "scale_weight",
        "scales",
        "weight_bias",
        "weight_blocks",
        "weight_format",
        "weight_g_idx",
        "weight_global_scale",
        "weight_packed",
        "weight_scale",
        "weight_scale_2",
        "weight_scale_inv",
        "weight_scales",
        "weight_shape",
        "weight_weight_scale",
        "weight_weight_scale_2",
        "weight_weight_scale_inv",
        "weight_zero_point",
        "zero",
    }
)
