"""Every layout of FP8 scales, through all three doors, equal to torch to the bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load

import anamnesis as an
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import fp8
from helpers.fp8_layouts import (
    LAYOUTS,
    OUTPUTS,
    TORCH,
    Layout,
    entry,
    product,
    quiet,
    random_codes,
    random_scales,
    raw_bytes,
)
from helpers.handmade import safetensors_bytes

CODES = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
CASES = [
    pytest.param(layout, dtype, id=f"{layout} {dtype}")
    for layout in LAYOUTS
    for dtype in layout.scale_dtypes
]
NUMPY = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "U8": ml_dtypes.float8_e8m0fnu,  # what the bytes mean
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
KINDS = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}


def as_numpy(tensor: torch.Tensor, dtype: Any) -> np.ndarray[Any, Any]:
    raw = np.frombuffer(raw_bytes(tensor), np.uint8)
    return raw.view(NUMPY[dtype]).reshape(tuple(tensor.shape))


def parsed(codes: torch.Tensor, scale: torch.Tensor, layout: Layout) -> an.Model:
    tensors = {"a.weight": entry(codes), "a.weight_scale": entry(scale)}
    block_size = layout.block if layout.tell else None
    return an.parse(safetensors_bytes(tensors), block_size=block_size)


def check(layout: Layout, dtype: Any, rng: np.random.Generator, code: str = "F8_E4M3") -> None:
    codes = random_codes(rng, layout.shape, code)
    scale = random_scales(rng, layout.scale_shape, dtype)
    model = parsed(codes, scale, layout)
    assert list(model) == ["a.weight"]
    assert model["a.weight"].is_quantized
    assert not model.problems
    arrays = (as_numpy(codes, code), as_numpy(scale, dtype))
    block_size = layout.block if layout.tell or dtype == "U8" else None
    for output in OUTPUTS:
        want = quiet(product(codes, layout.expand(scale), output))
        for level in supported_levels():
            for threads in (1, 4):
                how: dict[str, Any] = {"dtype": output, "threads": threads, "level": level}
                array = model["a.weight"].numpy(**how)
                assert array.dtype == KINDS[output]
                assert array.shape == layout.shape
                assert array.tobytes() == want
                assert fp8.dequantize(*arrays, block_size=block_size, **how).tobytes() == want
                written = load(model.remember_to_bytes(**how))
                assert list(written) == ["a.weight"]
                assert written["a.weight"].shape == torch.Size(layout.shape)
                assert written["a.weight"].dtype == OUTPUTS[output]
                assert raw_bytes(written["a.weight"]) == want


@pytest.mark.parametrize(("layout", "dtype"), CASES)
def test_layout(layout: Layout, dtype: Any, rng: np.random.Generator) -> None:
    check(layout, dtype, rng)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("small_bands")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_small_bands(layout: Layout, rng: np.random.Generator) -> None:
    check(layout, layout.scale_dtypes[0], rng)


@pytest.mark.parametrize("code", CODES[1:])
@pytest.mark.parametrize("layout", [x for x in LAYOUTS if len(x.shape) < 3], ids=str)
def test_codes(layout: Layout, code: str, rng: np.random.Generator) -> None:
    check(layout, layout.scale_dtypes[0], rng, code)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("shape", [(), (1,), (131,), (67, 131), (3, 5, 7, 11), (0,), (3, 0, 5)])
def test_bare(shape: tuple[int, ...], code: str, rng: np.random.Generator) -> None:
    codes = random_codes(rng, shape, code)
    model = an.parse(safetensors_bytes({"a.weight": entry(codes), "b": entry(codes)}))
    for output, dtype in OUTPUTS.items():
        want = quiet(codes.to(torch.float32).to(dtype))
        written = load(model.remember_to_bytes(output))
        for name in ("a.weight", "b"):
            assert model[name].shape == shape
            assert model[name].numpy(output).tobytes() == want
            assert raw_bytes(written[name]) == want
        assert fp8.dequantize(as_numpy(codes, code), dtype=output).tobytes() == want


def test_block_size_from_config(write_model: Any, rng: np.random.Generator) -> None:
    layout = next(x for x in LAYOUTS if x.name == "96x96, shorter edges")
    codes = random_codes(rng, layout.shape)
    scale = random_scales(rng, layout.scale_shape)
    path = write_model({"a.weight": entry(codes), "a.weight_scale_inv": entry(scale)})
    config = '{"quantization_config": {"quant_method": "fp8", "weight_block_size": [96, 96]}}'
    path.with_name("config.json").write_text(config)
    with an.parse(path) as model:
        want = quiet(product(codes, layout.expand(scale), "bf16"))
        assert model["a.weight"].numpy("bf16").tobytes() == want


@pytest.mark.parametrize(
    ("shape", "scale_shape"), [((0, 5), ()), ((0, 5), (0, 1)), ((5, 0), (5, 1)), ((0, 5), (0,))]
)
def test_empty(shape: tuple[int, ...], scale_shape: tuple[int, ...]) -> None:
    codes, scale = torch.zeros(shape).to(TORCH["F8_E4M3"]), torch.ones(scale_shape)
    tensors = {"a.weight": entry(codes), "a.weight_scale": entry(scale)}
    model = an.parse(safetensors_bytes(tensors))
    assert load(model.remember_to_bytes())["a.weight"].shape == torch.Size(shape)
    assert model["a.weight"].numpy().shape == shape


NAME_PAIRS = (
    ("a.weight", "a.weight_scale_inv"),
    ("a.weight", "a.weight_scale"),
    ("a.weight", "a.scale_weight"),
    ("a.weight", "a.qscale_weight"),
    ("a.weight", "a.scale"),
    ("weight", "weight_scale"),
    ("weight", "scale"),
    ("experts.gate_up_proj", "experts.gate_up_proj_scale_inv"),
    ("experts.gate_up_proj", "experts.gate_up_proj_scale"),
    ("experts.gate_up_proj", "experts.gate_up_proj_weight_scale"),
    ("experts.gate_up_proj", "experts.gate_up_proj_weight_scale_inv"),
)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("name", "scale_name"), NAME_PAIRS)
def test_names(name: Any, scale_name: str, order: int, rng: np.random.Generator) -> None:
    codes, scale = random_codes(rng, (9, 70)), random_scales(rng, (9, 1))
    tensors = dict([(name, entry(codes)), (scale_name, entry(scale))][::order])
    model = an.parse(safetensors_bytes(tensors))
    assert list(model) == [name]
    want = quiet(product(codes, scale, "bf16"))
    assert model[name].numpy("bf16").tobytes() == want
    report = model.remember(lambda *_: None)
    assert (report.n_in, report.n_out, report.n_quantized, report.n_consumed) == (2, 1, 1, 1)


def test_out_is_written_and_returned(rng: np.random.Generator) -> None:
    codes, scale = random_codes(rng, (9, 70)), random_scales(rng, (9, 1))
    arrays = as_numpy(codes, "F8_E4M3"), as_numpy(scale, "F32")
    out = np.zeros((9, 70), np.float32)
    assert fp8.dequantize(*arrays, dtype="f32", out=out) is out
    assert out.tobytes() == quiet(product(codes, scale, "f32"))
    with pytest.raises(TypeError, match="bfloat16"):
        fp8.dequantize(*arrays, dtype="bf16", out=out)
    with pytest.raises(ValueError, match="shape"):
        fp8.dequantize(*arrays, dtype="f32", out=np.zeros((70, 9), np.float32))
    with pytest.raises(ValueError, match="contiguous"):
        fp8.dequantize(*arrays, dtype="f32", out=np.zeros((9, 140), np.float32)[:, ::2])


def test_arrays_that_are_not_contiguous(rng: np.random.Generator) -> None:
    codes, scale = random_codes(rng, (70, 9)), random_scales(rng, (9, 1))
    want = quiet(product(codes.T, scale, "f32"))
    array, row = as_numpy(codes, "F8_E4M3").T, as_numpy(scale, "F32")
    assert fp8.dequantize(array, row, dtype="f32").tobytes() == want


def test_scales_that_are_python_numbers() -> None:
    codes = np.arange(64, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    by_number = fp8.dequantize(codes, 0.5)
    assert by_number.tobytes() == fp8.dequantize(codes, np.float32(0.5)).tobytes()
    with pytest.raises(TypeError, match="weight has dtype uint8"):
        fp8.dequantize(codes.view(np.uint8), 0.5)
    with pytest.raises(TypeError, match="scale has dtype int"):
        fp8.dequantize(codes, 2)
    with pytest.raises(ValueError, match="does not fit"):
        fp8.dequantize(codes, np.ones(3, np.float32))
