"""HQQ's layers in a pickle, as the parts that its safetensors files have.

`save_quantized` writes a dictionary for each layer, whose settings are plain values; until 2024
all but the codes were in one of its own, and scales and zero points could be quantised, too:

    {"W_q": tensor, "scale": tensor, "zero": tensor, "nbits": 4, "shape": (64, 128), ...}
    {"W_q": tensor, "meta": {"scale": tensor, "zero_q": tensor, "meta_zero": {...}, ...}}

`encode_safetensor_type` of hqq.core.utils makes tensors of such values, and so does `as_parts`.
"""

from __future__ import annotations

import struct
from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.formats.torch.pickled_arrays import PickledArray
from anamnesis.formats.torch.values import TorchTensor

CODES = "W_q"
_NESTED = ("", "meta_scale.", "meta_zero.")
_PAIR = ("zero", "scale")  # in the order in which they are stacked where they are offloaded
_SETTINGS = (
    *("nbits", "group_size", "shape", "axis", "packing", "compute_dtype", "unpack_view_dtype"),
    *("view_as_float", "channel_wise", "optimize", "round_zero", "quant_scale", "quant_zero"),
    *("encoded_state_dict", "offload_meta", "stores_quant_config"),
)


def as_parts(tensors: dict[str, Any], others: dict[str, Any]) -> None:
    """Give the parts of each layer the names and the form that they have in safetensors files."""
    for codes in [name for name in tensors if name.rpartition(".")[2] == CODES]:
        module = codes.removesuffix(CODES)
        if f"{module}nbits" not in tensors:
            _move(f"{module}meta.", module, tensors, others)
            for name in [f"{module}{nested}{key}" for nested in _NESTED for key in _SETTINGS]:
                made = _encoded(others[name]) if name in others and name not in tensors else None
                if made is not None:
                    tensors[name] = made
                    del others[name]


def _move(head: str, to: str, tensors: dict[str, Any], others: dict[str, Any]) -> None:
    """Name what an older file has under `meta` like the layer's own."""
    both = tensors.get(f"{head}zero_scale")
    if type(both) is TorchTensor and both.shape[:1] == (2,):
        del tensors[f"{head}zero_scale"]
        end = "_q" if both.dtype.name == "U8" else ""
        for i, part in enumerate(_PAIR):
            offset = both.offset + i * both.strides[0]
            one = both._replace(offset=offset, shape=both.shape[1:], strides=both.strides[1:])
            tensors.setdefault(f"{to}{part}{end}", one)
    for nested in _NESTED:
        for values in (tensors, others):
            for part in (*_PAIR, "zero_q", "scale_q", *_SETTINGS):
                old, new = (f"{place}{nested}{part}" for place in (head, to))
                if old in values and new not in values:
                    values[new] = values.pop(old)


def _encoded(value: Any) -> PickledArray | None:
    """Return a plain value as a tensor; None for one that HQQ has no tensor for."""
    match value:
        case bool():
            return _array("U8", (), bytes([value]))
        case int() if -(1 << 31) <= value < 1 << 31:
            return _array("I32", (), struct.pack("<i", value))
        case float():
            return _array("F64", (), struct.pack("<d", value))
        case str() if value != "None":
            raw = value.encode("latin-1", "replace")
            return _array("U8", (len(raw),), raw)
        case list() if all(type(n) is int and 0 <= n < 1 << 63 for n in value):
            return _array("I64", (len(value),), struct.pack(f"<{len(value)}q", *value))
    return None


def _array(dtype: str, shape: tuple[int, ...], raw: bytes) -> PickledArray:
    return PickledArray(DTYPES[dtype], shape, (1,) * len(shape), raw, big_endian=False)
