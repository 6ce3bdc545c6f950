"""Names of stored tensors that are not weights: what some scheme must consume, and what is dropped.

One table for all schemes, also those that are not read yet, so that no scale, zero point or
codebook can pass for a weight.
"""

from __future__ import annotations

from anamnesis.formats.stored import StoredTensor

__all__ = ["activation_side", "is_auxiliary", "sibling"]

# Last components that only ever belong to a quantised weight.
_ALWAYS = frozenset(
    {
        # FP8, NVFP4, INT8 as compressed-tensors, ModelOpt, DeepSeek, ComfyUI and Mistral name them
        *("weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale"),
        *("weight_zero_point", "weight_packed", "weight_shape", "weight_g_idx"),
        *("scale_weight", "qscale_weight", "comfy_quant", "pre_quant_scale"),
        # GPTQ, AWQ, bitsandbytes, SVDQuant, HQQ, EXL2, EXL3, AQLM
        *("qweight", "qzeros", "g_idx", "SCB", "absmax", "quant_map", "nested_absmax"),
        *("nested_quant_map", "wscales", "W_q", "q_weight", "q_scale_max", "trellis", "codebooks"),
    }
)
_ALWAYS_SUFFIXES = (
    "_scale_inv",
    "_weight_scale",
    "_weight_scale_2",
    "_proj_scale",
    "_proj_bias_scale",
    *("_qweight", "_qzeros", "_g_idx"),  # stacked experts
)
_ALWAYS_INFIXES = (".quant_state.bitsandbytes__", "weight_quantizer.")  # the latter: Quark

# Marlin and QQQ give their parts a letter each, which counts where codes of theirs are.
_MARLIN_CODES = ("B", "B_24")
_MARLIN = frozenset({*_MARLIN_CODES, "B_meta", "s", "s_group", "s_channel"})

# Last components that are also ordinary parameters elsewhere: only beside quantised codes, as is
# whatever else has `scale` in its name.
_BESIDE_CODES = frozenset({"biases", "weight_format", "zeros", "zero", "zero_point", "_shift"})
_CODE_DTYPES = frozenset(
    {
        *("U8", "I8", "U32", "I32", "I16", "F4"),
        *("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    }
)
_CODE_NAMES = ("weight", "qweight", "weight_packed", "blocks", "_data")  # gpt-oss, quanto

# Ranges of activations and caches, measured for inference in 8 bits: a full-precision model has no
# use for them.
_ACTIVATION = frozenset(
    {
        *("input_scale", "input_scale_inv", "input_scale_ub", "activation_scale"),
        *("activation_scale_inv", "activation_scale_ub", "act_scale", "output_scale"),
        *("input_zero_point", "output_zero_point", "input_global_scale", "scale_input"),
        *("qscale_act", "k_scale", "v_scale", "q_scale", "kv_scale", "kv_cache_scale"),
        *("prob_scale", "k_zero_point", "v_zero_point"),
    }
)
_ACTIVATION_SUFFIXES = ("_input_scale", "_activation_scale", "_qscale_act", "_output_scale")


def sibling(name: str, last: str) -> str:
    """Return the name with its last component replaced."""
    head, dot, _ = name.rpartition(".")
    return f"{head}{dot}{last}"


def is_auxiliary(tensor: StoredTensor, stored: dict[str, StoredTensor]) -> bool:
    """Tell whether a stored tensor is a part of some quantised weight and not a weight itself."""
    last = tensor.name.rpartition(".")[2]
    if last in ("weight", "bias"):
        return False
    if last in _ALWAYS or last.endswith(_ALWAYS_SUFFIXES) or tensor.dtype.kind == "scale":
        return True
    for infix in _ALWAYS_INFIXES:
        if infix in tensor.name:
            return True
    if last in _MARLIN:
        packed = (stored.get(sibling(tensor.name, c)) for c in _MARLIN_CODES)
        return any(c is not None and c.dtype.name == "I32" for c in packed)
    if last.endswith(("_blocks", "_scales")):  # gpt-oss
        return tensor.dtype.name == "U8"
    if last in _BESIDE_CODES or "scale" in last:
        names = (tensor.name.rpartition(".")[0], *(sibling(tensor.name, c) for c in _CODE_NAMES))
        codes = (stored.get(name) for name in names)
        return any(c is not None and c.dtype.name in _CODE_DTYPES for c in codes)
    return False


def activation_side(name: str) -> bool:
    """Tell whether a name is that of a range of activations or of a cache."""
    last = name.rpartition(".")[2]
    return last in _ACTIVATION or last.endswith(_ACTIVATION_SUFFIXES)
