"""Weights of every class of torchao's that is read, as torchao itself makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchao.prototype.gptq.api import _int4_row_dequantize_zp
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import MXTensor, QuantizeTensorToMXKwargs
from torchao.prototype.mx_formats.nvfp4_tensor import (
    NVFP4Tensor,
    QuantizeTensorToNVFP4Kwargs,
    per_tensor_amax_to_scale,
)
from torchao.prototype.quantization.float8_static_quant.prototype_float8_tensor import (
    PrototypeFloat8Tensor,
)
from torchao.quantization import (
    Float8MMConfig,
    Float8Tensor,
    Int4Tensor,
    Int8Tensor,
    IntxUnpackedToInt8Tensor,
    MappingType,
)
from torchao.quantization.granularity import PerBlock, PerGroup, PerRow, PerTensor
from torchao.quantization.quantize_.common import KernelPreference
from torchao.quantization.quantize_.workflows import (
    QuantizeTensorToFloat8Kwargs,
    QuantizeTensorToInt8Kwargs,
)
from torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor import (
    IntxUnpackedToInt8TensorActivationQuantization,
)

__all__ = ["CASES", "DTYPES", "dequantized", "make", "values"]

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
Make = Callable[[torch.Tensor], Any]

_MM = Float8MMConfig(use_fast_accum=True)
_PER_TOKEN = IntxUnpackedToInt8TensorActivationQuantization.INT8_ASYM_PER_TOKEN
_HALF = torch.tensor([[0.5]])


def _intx(block: tuple[int, ...], dtype: torch.dtype, **rest: Any) -> Make:
    return lambda w: IntxUnpackedToInt8Tensor.from_hp(w, block, dtype, **rest)


def _int4(group: int, batch: int = 0) -> Make:
    """Int4Tensor's own encoder needs a GPU's package; any codes will do."""

    def made(w: torch.Tensor) -> Int4Tensor:
        rows, cols = w.shape[-2:]
        lead = (batch,) if batch else ()
        codes = torch.randint(-128, 128, (*lead, rows, cols // 2), dtype=torch.int8)
        scale = torch.randn(*lead, cols // group, rows).to(w.dtype)
        zeros = torch.randn(*lead, cols // group, rows).to(w.dtype)
        block = [*(1,) * (len(lead) + 1), group]
        return Int4Tensor(codes, scale, zeros, block, torch.Size([*lead, rows, cols]))

    return made


def _float_zeros(w: torch.Tensor) -> Any:
    scale, zeros = torch.rand(w.shape[0], 4).to(w.dtype) + 0.1, torch.randn(w.shape[0], 4)
    return IntxUnpackedToInt8Tensor(
        torch.randint(-8, 8, w.shape, dtype=torch.int8),
        scale,
        (7 * zeros).to(w.dtype),
        torch.int4,
        (1, w.shape[1] // 4),
        w.dtype,
        None,
    )


def _nvfp4(**rest: Any) -> Make:
    def made(w: torch.Tensor) -> NVFP4Tensor:
        amax = w.float().abs().amax()
        return NVFP4Tensor.to_nvfp4(w, per_tensor_scale=per_tensor_amax_to_scale(amax), **rest)

    return made


def _nvfp4_experts(w: torch.Tensor) -> NVFP4Tensor:
    amax = w.float().abs().amax(dim=(1, 2), keepdim=True)
    return NVFP4Tensor.to_nvfp4(w, per_tensor_scale=per_tensor_amax_to_scale(amax))


# By name: the shape of a weight, and what makes it.
CASES: dict[str, tuple[tuple[int, ...], Make]] = {
    "float8-row": ((37, 50), lambda w: Float8Tensor.from_hp(w)),
    "float8-column": ((37, 50), lambda w: Float8Tensor.from_hp(w, granularity=PerRow(dim=0))),
    "float8-tensor": ((3, 7), lambda w: Float8Tensor.from_hp(w, granularity=PerTensor())),
    "float8-one-row": ((1, 24), lambda w: Float8Tensor.from_hp(w)),
    "float8-blocks": (
        (36, 60),
        lambda w: Float8Tensor.from_hp(w, granularity=PerBlock([12, 10])),
    ),
    "float8-groups": ((6, 48), lambda w: Float8Tensor.from_hp(w, granularity=PerGroup(12))),
    "float8-experts": ((3, 5, 24), lambda w: Float8Tensor.from_hp(w)),
    "float8-experts-tensor": (
        (3, 5, 24),
        lambda w: Float8Tensor.from_hp(w, granularity=PerTensor()),
    ),
    "float8-e5m2": ((9, 17), lambda w: Float8Tensor.from_hp(w, float8_dtype=torch.float8_e5m2)),
    "float8-dynamic": (
        (16, 32),
        lambda w: Float8Tensor.from_hp(
            w,
            mm_config=_MM,
            act_quant_kwargs=QuantizeTensorToFloat8Kwargs(
                torch.float8_e4m3fn, PerRow(), _MM, 1e-3, 448.0, KernelPreference.TORCH
            ),
            kernel_preference=KernelPreference.TORCH,
        ),
    ),
    "float8-static": (
        (16, 32),
        lambda w: PrototypeFloat8Tensor.from_hp(
            w,
            granularity=PerTensor(),
            mm_config=_MM,
            act_quant_kwargs=QuantizeTensorToFloat8Kwargs(granularity=PerTensor()),
            act_quant_scale=_HALF,
        ),
    ),
    "int8-row": ((37, 50), lambda w: Int8Tensor.from_hp(w, PerRow())),
    "int8-column": ((37, 50), lambda w: Int8Tensor.from_hp(w, PerRow(dim=0))),
    "int8-tensor": ((7, 3), lambda w: Int8Tensor.from_hp(w, PerTensor())),
    "int8-blocks": ((36, 60), lambda w: Int8Tensor.from_hp(w, PerBlock([12, 10]))),
    "int8-groups": ((6, 48), lambda w: Int8Tensor.from_hp(w, PerGroup(12))),
    "int8-asymmetric": (
        (11, 33),
        lambda w: Int8Tensor.from_hp(w, PerRow(), mapping_type=MappingType.ASYMMETRIC),
    ),
    "int8-experts": ((3, 5, 24), lambda w: Int8Tensor.from_hp(w, PerRow())),
    "int8-experts-tensor": ((3, 5, 24), lambda w: Int8Tensor.from_hp(w, PerTensor())),
    "int8-dynamic": (
        (16, 32),
        lambda w: Int8Tensor.from_hp(
            w,
            PerRow(),
            act_quant_kwargs=QuantizeTensorToInt8Kwargs(
                granularity=PerRow(), mapping_type=MappingType.ASYMMETRIC
            ),
        ),
    ),
    "int8-static": (
        (16, 32),
        lambda w: Int8Tensor.from_hp(
            w,
            PerRow(),
            act_quant_kwargs=QuantizeTensorToInt8Kwargs(granularity=PerTensor()),
            act_quant_scale=_HALF,
            act_quant_zero_point=torch.zeros(1, 1, dtype=torch.int8),
        ),
    ),
    **{
        f"intx-{bits}": (
            (10, 96),
            _intx((1, 32), getattr(torch, f"int{bits}"), mapping_type=MappingType.ASYMMETRIC),
        )
        for bits in range(1, 9)
    },
    "intx-8da4w": (
        (9, 64),
        _intx((1, 32), torch.int4, activation_quantization="int8_asym_per_token"),
    ),
    "intx-rows": ((9, 22), _intx((1, 22), torch.int4, activation_quantization=_PER_TOKEN)),
    "intx-square": ((4, 16), _intx((1, 4), torch.int4)),
    "intx-conv": ((6, 4, 3, 3), _intx((1, 4, 3, 3), torch.int4)),
    "intx-conv-groups": ((6, 8, 3, 3), _intx((1, 4, 3, 3), torch.int4)),
    "intx-float-zeros": ((6, 32), _float_zeros),
    "int4": ((20, 96), _int4(32)),
    "int4-square": ((4, 16), _int4(4)),
    "int4-experts": ((12, 64), _int4(32, batch=3)),
    "mxfp8": ((33, 96), lambda w: MXTensor.to_mx(w, torch.float8_e4m3fn, 32)),
    "mxfp8-e5m2": ((33, 96), lambda w: MXTensor.to_mx(w, torch.float8_e5m2, 32)),
    "mxfp8-tiled": (
        (130, 160),
        lambda w: MXTensor.to_mx(w, torch.float8_e4m3fn, 32, is_swizzled_scales=True),
    ),
    "mxfp8-experts": ((3, 7, 64), lambda w: MXTensor.to_mx(w, torch.float8_e4m3fn, 32)),
    "mxfp4": ((33, 96), lambda w: MXTensor.to_mx(w, torch.float4_e2m1fn_x2, 32)),
    "mxfp4-dynamic": (
        (16, 64),
        lambda w: MXTensor.to_mx(
            w,
            torch.float4_e2m1fn_x2,
            32,
            act_quant_kwargs=QuantizeTensorToMXKwargs(scaling_mode=ScaleCalculationMode.RCEIL),
        ),
    ),
    "mxfp4-tiled": (
        (130, 160),
        lambda w: MXTensor.to_mx(w, torch.float4_e2m1fn_x2, 32, is_swizzled_scales=True),
    ),
    "mxfp4-experts": ((3, 7, 64), lambda w: MXTensor.to_mx(w, torch.float4_e2m1fn_x2, 32)),
    "nvfp4": ((33, 48), lambda w: NVFP4Tensor.to_nvfp4(w)),
    "nvfp4-second": ((33, 48), _nvfp4()),
    "nvfp4-tiled": ((130, 80), _nvfp4(is_swizzled_scales=True)),
    "nvfp4-dynamic": (
        (16, 64),
        _nvfp4(
            act_per_tensor_scale=torch.tensor(0.5),
            act_quant_kwargs=QuantizeTensorToNVFP4Kwargs(),
        ),
    ),
    "nvfp4-experts": ((3, 7, 64), _nvfp4_experts),
    "nvfp4-experts-tiled": (
        (2, 128, 64),
        lambda w: NVFP4Tensor.to_nvfp4(w, is_swizzled_scales=True),
    ),
}


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Of every magnitude, with zeros."""
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-12, 9, shape, generator=generator)
    w = torch.randn(shape, generator=generator) * torch.exp2(exponents.float())
    return torch.where(torch.rand(shape, generator=generator) < 0.05, torch.zeros(()), w).to(dtype)


def make(case: str, dtype: torch.dtype, seed: int = 0) -> Any:
    """A weight of a case."""
    torch.manual_seed(seed)
    shape, made = CASES[case]
    return made(values(shape, dtype, seed))


def dequantized(weight: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """What torchao makes of it, in its own dtype or in another one that it computes in."""
    if isinstance(weight, Int4Tensor):  # which has no such method
        codes = weight.qdata
        signed = torch.stack([(codes << 4) >> 4, codes >> 4], dim=-1).flatten(-2)
        scale, zeros = weight.scale, weight.zero_point
        if dtype is not None:
            scale, zeros = scale.to(dtype), zeros.to(dtype)
        parts = (signed, scale, zeros)
        batches = (
            zip(*(p.flatten(0, -3) for p in parts), strict=True) if codes.ndim > 2 else [parts]
        )
        made = [_int4_row_dequantize_zp(*batch, weight.block_size[-1]) for batch in batches]
        return torch.stack(made).reshape(weight.shape).to(dtype or weight.dtype)
    if isinstance(weight, IntxUnpackedToInt8Tensor):
        return weight.dequantize() if dtype is None else weight.to(dtype=dtype).dequantize()
    return weight.dequantize() if dtype is None else weight.dequantize(dtype)
