"""`math="reference"` beside the libraries that round in between, run here on any bits.

A library that is not installed is left out: its checkpoints are compared in test_real.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import quiet, raw_bytes

pytestmark = pytest.mark.against("MLX, HQQ, torchao, ModelOpt, comfy-kitchen")

Tensors = dict[str, torch.Tensor]
OUTPUTS: dict[Any, Any] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
}


def check(
    folder: Path, stored: Tensors, config: dict[str, Any], expected: torch.Tensor, output: Any
) -> None:
    """Compare `a.weight` with the library's, at all levels, in memory and written."""
    save_file(
        {name: tensor.contiguous() for name, tensor in stored.items()}, folder / "m.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config))
    wanted = quiet(expected.to(OUTPUTS[output]))
    with an.parse(folder) as model:
        tensor = model["a.weight"]
        assert tensor.shape == tuple(expected.shape)
        for level in supported_levels():
            found = tensor.numpy(output, level=level, math="reference")
            assert found.tobytes() == wanted, level
        written = load(model.remember_to_bytes(output, math="reference"))
        assert raw_bytes(written["a.weight"]) == wanted


def any_bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    """Floats of any bits: NaNs, infinities and subnormals among them."""
    generator = torch.Generator().manual_seed(seed)
    n_bytes = torch.Size(shape).numel() * dtype.itemsize
    raw = torch.randint(0, 256, (n_bytes,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def usual(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    """Floats of usual sizes, which no rounding makes infinite."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).mul(0.37).to(dtype)


# --- in the dtype of the scales -----------------------------------------------------------------


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("scale", OUTPUTS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("floats", [any_bits, usual])
def test_mlx(bits: int, scale: str, output: str, floats: Any, tmp_path: Path) -> None:
    """`mx.dequantize` on a CPU, whose `dtype` is what the result is cast to."""
    mx = pytest.importorskip("mlx.core")
    dtype = OUTPUTS[scale]
    codes = any_bits((40, 128 * bits // 32), torch.uint32)
    scales, biases = floats((40, 2), dtype, 2), floats((40, 2), dtype, 3)
    own = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}
    integers = {2: torch.uint16, 4: torch.uint32}[dtype.itemsize]
    given = [mx.view(mx.array(t.view(integers).numpy()), own[scale]) for t in (scales, biases)]
    with mx.stream(mx.cpu):
        found = mx.dequantize(mx.array(codes.numpy()), *given, group_size=64, bits=bits)
        wide = np.array(found.astype(mx.float32))
        assert found.dtype == own[scale]
    stored = {"a.weight": codes, "a.scales": scales, "a.biases": biases}
    config = {"quantization": {"bits": bits, "group_size": 64}}
    check(tmp_path, stored, config, torch.from_numpy(wide), output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("scale", OUTPUTS)
@pytest.mark.parametrize(("axis", "group"), [(0, 32), (1, 32), (0, 48 * 96)])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("floats", [any_bits, usual])
def test_hqq(
    bits: int, axis: int, group: int, scale: str, output: str, floats: Any, tmp_path: Path
) -> None:
    """`Quantizer.dequantize`, whose `compute_dtype` is that of the scales."""
    hqq = pytest.importorskip("hqq.core.quantize").Quantizer
    dtype, shape = OUTPUTS[scale], (48, 96)
    matrix = (48 * 96 // group, group) if axis == 1 else (group, 48 * 96 // group)
    grid = (matrix[0], 1) if axis == 1 else (1, matrix[1])
    codes = any_bits((matrix[0] * bits // 8, matrix[1]), torch.uint8)
    scales, zeros = floats(grid, dtype, 2), floats(grid, dtype, 3)
    meta = {
        "scale": scales,
        "zero": zeros,
        "shape": shape,
        "nbits": bits,
        "axis": axis,
        "compute_dtype": dtype,
        "packing": hqq.bit_to_packing[bits],
        "view_as_float": False,
    }
    expected = hqq.dequantize(codes, meta)
    stored = {
        "a.W_q": codes,
        "a.scale": scales,
        "a.zero": zeros,
        "a.shape": torch.tensor(shape),
        "a.nbits": torch.tensor([bits]),
        "a.axis": torch.tensor([axis]),
    }
    check(tmp_path, stored, {}, expected, output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("scale", OUTPUTS)
@pytest.mark.parametrize("floats", [any_bits, usual])
def test_torchao(scale: str, output: str, floats: Any, tmp_path: Path) -> None:
    """What `Int4Tensor` is decoded by: only what code 0 stands for is rounded."""
    api = pytest.importorskip("torchao.prototype.gptq.api")
    dtype = OUTPUTS[scale]
    codes = any_bits((24, 64), torch.int8)
    signed = torch.stack([(codes << 4) >> 4, codes >> 4], dim=-1).reshape(24, 128)
    scales, zeros = floats((4, 24), dtype, 2), floats((4, 24), dtype, 3)
    expected = api._int4_row_dequantize_zp(signed, scales, zeros, 32)
    stored = {"a._weight_qdata": codes, "a._weight_scale": scales, "a._weight_zero_point": zeros}
    check(tmp_path, stored, {}, expected, output)


# --- in the dtype that is asked for -------------------------------------------------------------


def modelopt(algorithm: str) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm}}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("shape", [(), (40,)])
@pytest.mark.parametrize("floats", [any_bits, usual])
def test_modelopt_fp8(shape: tuple[int, ...], output: str, floats: Any, tmp_path: Path) -> None:
    """`FP8QTensor.dequantize`, for all and for a row."""
    qtensor = pytest.importorskip("modelopt.torch.quantization.qtensor").FP8QTensor
    codes = any_bits((40, 96), torch.uint8).view(torch.float8_e4m3fn)
    scales = floats(shape or (1,), torch.float32, 2).reshape(shape)
    scale = scales[:, None] if shape else scales
    made = qtensor(codes.shape, OUTPUTS[output], codes)
    expected = made.dequantize(OUTPUTS[output], scale=scale)
    config = modelopt("FP8_PER_CHANNEL_PER_TOKEN" if shape else "FP8")
    check(tmp_path, {"a.weight": codes, "a.weight_scale": scales}, config, expected, output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("floats", [any_bits, usual])
def test_modelopt_int8(output: str, floats: Any, tmp_path: Path) -> None:
    """`from_quantized_weight`."""
    utils = pytest.importorskip("modelopt.torch.export.quant_utils")
    codes, scales = any_bits((40, 96), torch.int8), floats((40,), torch.float32, 2)
    expected = utils.from_quantized_weight(
        codes, scales, utils.QUANTIZATION_INT8_WO, OUTPUTS[output]
    )
    config = modelopt("W8A16")
    check(tmp_path, {"a.weight": codes, "a.weight_scale": scales}, config, expected, output)


def marker(**told: Any) -> torch.Tensor:
    return torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("value", [0.1422991007566452, 1e-41, 3e38, 70000.0, float("nan")])
def test_comfy_fp8(
    value: float, is_old: bool, dtype: torch.dtype, output: str, tmp_path: Path
) -> None:
    """`dequantize_per_tensor_fp8`, also under the names of older files."""
    eager = pytest.importorskip("comfy_kitchen.backends.eager.quantization")
    codes, scale = any_bits((40, 96), torch.uint8).view(dtype), torch.tensor(value)
    expected = eager.dequantize_per_tensor_fp8(codes, scale, OUTPUTS[output])
    stored = {"a.weight": codes, "a.scale_weight": scale, "scaled_fp8": codes[:0, 0]}
    if not is_old:
        words = str(dtype).removeprefix("torch.")
        stored = {"a.weight": codes, "a.weight_scale": scale, "a.comfy_quant": marker(format=words)}
    check(tmp_path, stored, {}, expected, output)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("second", [0.014973958022892475, 1e-41, 3e38, 250.0, float("inf")])
def test_comfy_nvfp4(second: float, output: str, tmp_path: Path) -> None:
    """`dequantize_nvfp4`, with each scale."""
    eager = pytest.importorskip("comfy_kitchen.backends.eager.quantization")
    codes = any_bits((128, 64), torch.uint8)
    scales = torch.arange(128 * 8).to(torch.uint8).reshape(128, 8).view(torch.float8_e4m3fn)
    factor = torch.tensor(second)
    expected = eager.dequantize_nvfp4(codes, factor, scales, OUTPUTS[output])
    stored = {
        "a.weight": codes,
        "a.weight_scale": scales,
        "a.weight_scale_2": factor,
        "a.comfy_quant": marker(format="nvfp4"),
    }
    check(tmp_path, stored, {}, expected, output)
