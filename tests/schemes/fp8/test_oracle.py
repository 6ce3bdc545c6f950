"""FP8 checkpoints as other libraries make and decode them, run here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import entry, quiet, random_codes, random_scales, raw_bytes
from helpers.handmade import safetensors_bytes, write_safetensors

ALL_CODES = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
ALL_BF16 = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)


def remembered(tensors: dict[str, torch.Tensor], output: Any = "bf16", **parse: Any) -> bytes:
    """The bytes of the one weight, the same at all levels."""
    model = an.parse(safetensors_bytes({k: entry(v) for k, v in tensors.items()}), **parse)
    (result,) = {
        raw_bytes(load(model.remember_to_bytes(output, level=level))["a.weight"])
        for level in supported_levels()
    }
    return result


def state(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"a.{name}": tensor for name, tensor in tensors.items()}


# --- compressed-tensors ---------------------------------------------------------------------------

STRATEGIES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "tensor": ({"strategy": "tensor"}, (1,)),
    "channel": ({"strategy": "channel"}, (192, 1)),
    "block": ({"strategy": "block", "block_structure": [128, 128]}, (2, 3)),
    "group": ({"strategy": "group", "group_size": 64}, (192, 5)),
}


def scheme(**args: Any) -> QuantizationScheme:
    weights = QuantizationArgs(num_bits=8, type="float", symmetric=True, dynamic=False, **args)
    return QuantizationScheme(targets=["Linear"], weights=weights)


def compressor(name: Any) -> type[BaseCompressor]:
    return BaseCompressor.get_value_from_registry(name)


@pytest.mark.parametrize("name", ["float-quantized", "naive-quantized"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_compressed_tensors(strategy: str, dtype: torch.dtype, name: Any) -> None:
    args, scale_shape = STRATEGIES[strategy]
    torch.manual_seed(0)
    dense = torch.randn(192, 320).to(dtype)
    scale = (torch.rand(scale_shape) / 100 + 1e-4).to(dtype)
    packed = compressor(name).compress({"weight": dense, "weight_scale": scale}, scheme(**args))
    assert packed["weight"].dtype == torch.float8_e4m3fn
    assert packed["weight_scale"].dtype == dtype
    decoded = compressor(name).decompress(packed, scheme(**args))["weight"]
    assert decoded.dtype == dtype
    output = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}[dtype]
    block = (128, 128) if strategy == "block" else None
    assert remembered(state(packed), output, block_size=block) == quiet(decoded)


def test_compressed_tensors_rounds_in_bf16_as_we_do() -> None:
    """It multiplies in the scale's dtype: all codes by all BF16 scales, the same bits."""
    decoded = []
    for codes in ALL_CODES.split(32):
        rows = codes.expand(1 << 16, 32)
        packed = {"weight": rows, "weight_scale": ALL_BF16.reshape(-1, 1)}
        result = compressor("float-quantized").decompress(packed, scheme(strategy="channel"))
        decoded.append(result["weight"])
        model = an.parse(safetensors_bytes({k: entry(v) for k, v in state(packed).items()}))
        for level in supported_levels():
            found = model["a.weight"].numpy("bf16", level=level).tobytes()
            assert found == quiet(result["weight"])
    assert all(d.dtype == torch.bfloat16 for d in decoded)


def test_compressed_tensors_mxfp8() -> None:
    """All codes by all U8 exponents. Its 255 is 2**128, OCP's NaN; no file has either."""
    args = scheme(strategy="group", group_size=32, scale_dtype=torch.uint8)
    codes = ALL_CODES.reshape(1, 256).expand(255, 256)
    exponents = torch.arange(255, dtype=torch.uint8).reshape(255, 1).expand(255, 8)
    packed = {"weight": codes, "weight_scale": exponents}
    decoded = compressor("mxfp8-quantized").decompress(packed, args)["weight"]
    assert decoded.dtype == torch.bfloat16
    assert remembered(state(packed)) == quiet(decoded)


def test_compressed_tensors_mxfp8_made_by_it() -> None:
    args = scheme(strategy="group", group_size=32, scale_dtype=torch.uint8)
    torch.manual_seed(0)
    dense = torch.randn(64, 160, dtype=torch.bfloat16)
    scale = torch.exp2(torch.randint(-9, 3, (64, 5))).to(torch.bfloat16)
    packed = compressor("mxfp8-quantized").compress({"weight": dense, "weight_scale": scale}, args)
    assert packed["weight_scale"].dtype == torch.uint8
    decoded = compressor("mxfp8-quantized").decompress(packed, args)["weight"]
    assert remembered(state(packed)) == quiet(decoded)


# --- block FP8 as DeepSeek publishes it -----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F8_E8M0"])
@pytest.mark.parametrize("shape", [(576, 7168), (128, 128), (1, 300), (300, 1), (257, 255)])
def test_deepseek_by_compressed_tensors(shape: tuple[int, int], dtype: Any, rng: Any) -> None:
    codes = random_codes(rng, shape)
    grid = (-(-shape[0] // 128), -(-shape[1] // 128))
    scale = random_scales(rng, grid, dtype)
    tensors = {"a.weight": codes, "a.weight_scale_inv": scale}
    for output, torch_dtype in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        canonical = FP8BlockDequantizer(dtype=torch_dtype)
        want = canonical.process(dict(tensors))["a.weight"]
        assert want.dtype == torch_dtype
        assert remembered(tensors, output, block_size=(128, 128)) == quiet(want)


BLOCKS = ((128, 128), (1, 32), (64, 128))


@pytest.mark.parametrize(
    ("block", "dtype"),
    [
        *((block, dtype) for block in BLOCKS for dtype in ("F32", "BF16", "F8_E8M0")),
        (BLOCKS[1], "U8"),
    ],
)
@pytest.mark.parametrize("shape", [(256, 384), (3, 256, 384), (2, 3, 128, 256)])
def test_transformers(shape: tuple[int, ...], block: tuple[int, int], dtype: Any, rng: Any) -> None:
    codes = random_codes(rng, shape)
    scale = random_scales(rng, (*shape[:-2], shape[-2] // block[0], shape[-1] // block[1]), dtype)
    canonical = Fp8Dequantize(None)
    for output, torch_dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        want = canonical._dequantize_one(codes, scale, torch_dtype)
        tensors = {"a.weight": codes, "a.weight_scale_inv": scale}
        assert remembered(tensors, output) == quiet(want)


# --- other publishers: their tensors, their configs, torch's formula ------------------------------

CONFIGS: dict[str, dict[str, Any]] = {
    "modelopt": {
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "FP8",
            "producer": {"name": "modelopt", "version": "0.29.0"},
            "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        }
    },
    "fbgemm": {
        "quantization_config": {
            "quant_method": "fbgemm_fp8",
            "activation_scale_ub": 1200.0,
            "modules_to_not_convert": ["lm_head"],
        }
    },
    "mistral": {"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}},
}


@pytest.mark.parametrize(
    ("publisher", "scale_shape", "names"),
    [
        ("modelopt", (), ("a.weight_scale", "a.input_scale", "k_proj.k_scale", "v_proj.v_scale")),
        ("fbgemm", (96, 1), ("a.weight_scale", "a.input_scale_ub")),
        ("mistral", (), ("a.qscale_weight", "a.qscale_act")),
    ],
)
def test_publisher(
    publisher: str, scale_shape: tuple[int, ...], names: tuple[str, ...], tmp_path: Path, rng: Any
) -> None:
    codes, scale = random_codes(rng, (96, 80)), random_scales(rng, scale_shape)
    norm = torch.randn(80, dtype=torch.bfloat16)
    tensors = {"a.weight": codes, names[0]: scale, "norm.weight": norm}
    tensors |= {name: torch.ones(()) for name in names[1:]}
    path = write_safetensors(
        tmp_path / "model.safetensors", {k: entry(v) for k, v in tensors.items()}
    )
    path.with_name("config.json").write_text(json.dumps(CONFIGS[publisher]))
    out = tmp_path / "out.safetensors"
    with an.parse(path) as model:
        report = model.remember(out)
    assert sorted(d.name for d in report.dropped) == sorted(names[1:])
    found = load(out.read_bytes())
    assert sorted(found) == ["a.weight", "norm.weight"]
    want = (codes.to(torch.float32) * scale.to(torch.float32)).to(torch.bfloat16)
    assert raw_bytes(found["a.weight"]) == quiet(want)
    assert raw_bytes(found["norm.weight"]) == raw_bytes(norm)
