"""Calls of the functions for arrays in memory, of which `digests.py` records what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from digest_inputs import FLOATS, random_floats
from numpy.typing import NDArray

from anamnesis import _core, schemes

__all__ = ["array_calls"]

_CT = "compressed-tensors"

# By module and function: the settings of each call.
_QUANTIZE: Mapping[str, list[dict[str, Any]]] = {
    "fp8.quantize": [
        *({"kind": kind, "format": f} for kind in ("block", "channel") for f in ("e4m3", "e5m2")),
        *({"kind": kind, "flavour": _CT} for kind in ("block", "channel", "tensor")),
        {"block": (64, 32)},
        {"powers_of_two": True},
        {"kind": "tensor"},
    ],
    "gptq.quantize": [{"bits": bits, "group_size": n} for bits in (4, 8) for n in (32, 128)],
    "awq.quantize": [{}, {"group_size": 32}],
    "bnb.quantize_4bit": [
        {"kind": kind, "blocksize": n, "nested": nested}
        for kind in ("nf4", "fp4")
        for n in (64, 256)
        for nested in (False, True)
    ]
    + [{"second_zero": True}],
    "bnb.quantize_int8": [{}],
    "int4.quantize": [
        {"group_size": n, "symmetric": one} for n in (32, 128, None) for one in (True, False)
    ],
    "int8.quantize": [{}],
    "mlx.quantize": [
        {"bits": bits, "group_size": n} for bits in (2, 3, 4, 5, 6, 8) for n in (32, 64)
    ]
    + [{"mode": mode} for mode in ("mxfp4", "mxfp8", "nvfp4", "mxfp6")],
    "mx.quantize": [
        {"format": f, "producer": p} for f in ("mxfp4", "mxfp8") for p in (_CT, "ModelOpt", "MLX")
    ],
    "nvfp4.quantize": [{"producer": p} for p in (_CT, "ModelOpt", "torchao")] + [{"amax": 2.5}],
}


def array_calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield calls of the functions for arrays in memory, there and back, and what they are."""
    shapes = ((256, 512), (40, 96), (9, 7))
    inputs = {f"{d} {s}": random_floats(str(s), s, d) for d, s in product(FLOATS, shapes)}
    inputs |= {"empty": np.zeros((0, 128), np.float32), "any bits": _bits(np.float32, 128, 256)}
    inputs |= {"vector": inputs["F32 (9, 7)"][0], "stack": random_floats("stack", (2, 128, 256))}
    for function, settings in _QUANTIZE.items():
        for how, (label, array) in product(settings, inputs.items()):
            yield f"{function} {how} {label}", partial(_there_and_back, function, array, how)
    for dtype in ("bf16", "f16", "f32"):
        for block in _core.block_types():
            raw = _bits(np.uint8, 16, 8 * block.bytes)
            call = partial(schemes.ggml.dequantize, raw, block.name, dtype=dtype)
            yield f"ggml.dequantize {block.name} {dtype}", call
        for bits, told in product((2, 3, 4, 8), ("zeros_plus_one", "planar")):
            qweight, qzeros = _bits(np.int32, 8 * bits, 64), _bits(np.int32, 2, 2 * bits)
            how = {"bits": bits, "group_size": 128, told: False}
            call = partial(
                schemes.gptq.dequantize, qweight, qzeros, random_floats("s", (2, 64), "F16")
            )
            yield f"gptq.dequantize {how} {dtype}", partial(call, dtype=dtype, **how)
        for producer in ("", "gpt-oss", "torchao", "DeepSeek"):
            codes, powers = _bits(np.uint8, 256, 64), _bits(np.uint8, 256, 4)
            call = partial(schemes.mx.dequantize, codes, powers, producer=producer, dtype=dtype)
            yield f"mx.dequantize {producer} {dtype}", call


def _bits(dtype: Any, *shape: int) -> NDArray[Any]:
    """Return numbers of any bits."""
    n_bytes = np.dtype(dtype).itemsize * prod(shape)
    return np.frombuffer(np.random.default_rng(1).bytes(n_bytes), dtype).reshape(shape)


def _there_and_back(function: str, array: NDArray[Any], how: dict[str, Any]) -> list[Any]:
    """Quantise an array, and return the parts, and what each dtype makes of them again."""
    module, _, name = function.partition(".")
    functions = getattr(schemes, module)
    parts = getattr(functions, name)(array, **how)
    args: tuple[Any, ...] = tuple(parts)
    more: dict[str, Any] = {}
    if module == "int4":
        args = (parts,)
    elif name == "quantize_4bit":
        args, more = parts[:3], dict(zip(parts._fields[3:], parts[3:], strict=True))
    elif module == "fp8" and how.get("kind", "block") == "block":
        more = {"block_size": how.get("block", (128, 128))}
    elif module in ("gptq", "mlx"):
        more = how
    elif module == "nvfp4":
        more = {key: how[key] for key in how if key == "producer"}
    back = getattr(functions, name.replace("quantize", "dequantize"))
    return [*parts, *(back(*args, **more, dtype=dtype) for dtype in ("bf16", "f16", "f32"))]
