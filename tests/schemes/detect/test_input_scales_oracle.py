"""Weights times the scales of their inputs, beside what ModelOpt's own quantiser multiplies."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import quiet
from helpers.whole_libraries import saved_uneven

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it was tried with an earlier transformers
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint, quant_utils
    from modelopt.torch.quantization.nn import TensorQuantizer

pytestmark = pytest.mark.against("ModelOpt")

REAL = Path(os.environ.get("ANAMNESIS_REAL") or "/nowhere") / "modern" / "modelopt_int8_sq"
OUTPUTS: dict[Any, Any] = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
CONFIG = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"}}
SCALE = "pre_quant_scale"


def quantizer(scale: torch.Tensor) -> Any:
    """What a layer's inputs go through, without what quantises them."""
    made = TensorQuantizer()
    made.pre_quant_scale = scale
    made.disable()
    return made


def any_bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Numbers of any bits: NaNs, infinities and subnormals among them."""
    generator = torch.Generator().manual_seed(seed)
    n_bytes = torch.Size(shape).numel() * dtype.itemsize
    raw = torch.randint(0, 256, (n_bytes,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def usual(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("bands", ["usual", "small"])
@pytest.mark.parametrize("math", ["float32", "reference"])
@pytest.mark.parametrize("dtype", OUTPUTS.values(), ids=str)
@pytest.mark.parametrize("floats", [any_bits, usual])
def test_values_are_those_that_the_quantiser_multiplies(
    floats: Any,
    dtype: torch.dtype,
    math: Any,
    bands: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    codes = any_bits((40, 96), torch.int8, 1)
    scales, factors = floats((40,), torch.float32, 2), floats((96,), dtype, 3)
    stored = {"a.weight": codes, "a.weight_scale": scales, f"a.{SCALE}": factors}
    save_file(stored, tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    if bands == "small":
        request.getfixturevalue("small_bands")
    with an.parse(tmp_path, fold_pre_quant_scale=True) as model:
        assert not model.problems
        tensor = model["a.weight"]
        assert tensor.scheme == f"INT8, per channel (ModelOpt), times {SCALE}"
        for output, wanted in OUTPUTS.items():
            between = wanted if math == "reference" else torch.float32
            kind = quant_utils.QUANTIZATION_INT8_SQ
            weight = quant_utils.from_quantized_weight(codes, scales, kind, between)
            want = quantizer(factors)(weight).to(wanted)
            for level in supported_levels():
                found = tensor.numpy(output, level=level, math=math)
                assert found.tobytes() == quiet(want), (output, level)
            some = tensor.numpy("f32")[7:, 5:50]
            assert tensor[7:, 5:50].tobytes() == some.tobytes()


@pytest.mark.skipif(not REAL.is_dir(), reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_a_plain_layer_computes_what_the_quantised_one_does(tmp_path: Path) -> None:
    """Each input by itself: a product of one term has no order of sums."""
    stored = load_file(REAL / "model.safetensors")
    layers = [name.removesuffix(f".{SCALE}") for name in stored if name.endswith(SCALE)]
    assert len(layers) == 7
    with an.parse(REAL, fold_pre_quant_scale=True) as model:
        assert not model.problems
        model.remember(tmp_path / "out", dtype="f32")
    plain = load_file(tmp_path / "out" / "model.safetensors")
    for layer in layers:
        codes, scales = stored[f"{layer}.weight"], stored[f"{layer}.weight_scale"]
        kind = quant_utils.QUANTIZATION_INT8_SQ
        weight = quant_utils.from_quantized_weight(codes, scales, kind, torch.float32)
        inputs = torch.eye(weight.shape[1])
        smoothed = quantizer(stored[f"{layer}.{SCALE}"])(inputs)
        outputs = torch.nn.functional.linear(smoothed, weight)
        assert torch.equal(torch.nn.functional.linear(inputs, plain[f"{layer}.weight"]), outputs)
    assert not any(SCALE in name for name in plain)


@pytest.mark.skipif(not REAL.is_dir(), reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("name", ["nvfp4", "fp8", "fp8_pb_wo", "int4_awq", "mxfp8", "int8_wo"])
def test_any_encoding_of_modelopt(name: str, tmp_path: Path) -> None:
    source = REAL.with_name(f"modelopt_{name}")
    stored = load_file(source / "model.safetensors")
    layer = "model.layers.0.self_attn.q_proj"
    with an.parse(source) as model:
        weight = model[f"{layer}.weight"].torch("f32")
    stored[f"{layer}.{SCALE}"] = usual(weight.shape[1:], torch.bfloat16, 4)
    scaled = tmp_path / "scaled"
    scaled.mkdir()
    save_file(stored, scaled / "model.safetensors")
    for config in ("config.json", "hf_quant_config.json"):
        (scaled / config).write_bytes((source / config).read_bytes())
    with an.parse(scaled, fold_pre_quant_scale=True) as model:
        assert not model.problems
        want = quantizer(stored[f"{layer}.{SCALE}"])(weight)
        assert model[f"{layer}.weight"].numpy("f32").tobytes() == quiet(want)
        kept = model.convert(tmp_path / "kept", overrides={"*": "keep"})
        assert kept.n_out == len(stored)
    with an.parse(tmp_path / "kept") as again:
        assert set(again.problems) == {f"{layer}.{SCALE}"}


@pytest.mark.slow
@pytest.mark.parametrize("to", ["INT4_AWQ_CFG", "W4A8_AWQ_BETA_CFG", "INT8_SMOOTHQUANT_CFG"])
def test_checkpoints_that_modelopt_saves(to: str, tmp_path: Path) -> None:
    """AWQ's scales are in the norms already, but those of layers that no norm is before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(
            saved_uneven("llama", tmp_path / "dense"), dtype=torch.bfloat16
        ).eval()
        inputs = torch.arange(64).reshape(2, 32)
        mtq.quantize(model, getattr(mtq, to), lambda quantised: quantised(inputs))
        export_hf_checkpoint(model, export_dir=tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    scaled = {name for name in stored if name.endswith(SCALE)}
    assert scaled
    with an.parse(tmp_path / "out") as model:
        assert set(model.problems) == scaled
        message = f"fold_{SCALE}=True multiplies these by it"
        with pytest.raises(an.UnsupportedError, match=message):
            model.remember(tmp_path / "plain")
        alone = {name: model[name].torch("f32") for name in model if name not in model.problems}
    with an.parse(tmp_path / "out", fold_pre_quant_scale=True) as model:
        assert not model.problems
        for name, weight in alone.items():
            scale = name.removesuffix("weight") + SCALE
            want = quantizer(stored[scale])(weight) if scale in scaled else weight
            assert model[name].numpy("f32").tobytes() == quiet(want), name
        model.remember(tmp_path / "plain")
    AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
