"""NVFP4, MXFP4 and MXFP8 are byte for byte those of compressed-tensors and ModelOpt, run here."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

import anamnesis as an
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import mx, nvfp4
from helpers.encoder_oracles import (
    DTYPES,
    NUMPY,
    array_of,
    grouped,
    llm_compressor,
    modelopt,
    raw,
    weights,
)

pytestmark = pytest.mark.against("compressed-tensors, llm-compressor, ModelOpt, transformers")

LEVELS = supported_levels()
SHAPES = ((1, 32), (3, 64), (9, 1536), (130, 224))
ORACLES: dict[str, Callable[[str, torch.Tensor], list[torch.Tensor]]] = {
    "compressed-tensors": grouped,
    "ModelOpt": modelopt,
}
REAL = os.environ.get("ANAMNESIS_REAL")


def quantized(kind: str, array: NDArray[Any], producer: str, **more: Any) -> tuple[Any, ...]:
    if kind == "NVFP4":
        return nvfp4.quantize(array, producer=producer, **more)
    return mx.quantize(array, kind.lower(), producer=producer, **more)


def values_of(kind: str, made: tuple[Any, ...], producer: str) -> NDArray[np.float32]:
    if kind == "NVFP4":
        return nvfp4.dequantize(*made, producer=producer, dtype="f32")
    return mx.dequantize(*made, dtype="f32")


@pytest.mark.parametrize("producer", ORACLES)
@pytest.mark.parametrize("kind", ["NVFP4", "MXFP4", "MXFP8"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bytes(shape: tuple[int, int], dtype: str, kind: str, producer: str) -> None:
    for name, weight in weights(*shape, dtype):
        want = ORACLES[producer](kind, weight)
        if len(want) == 3 and producer == "ModelOpt" and not want[2] > 0:
            assert torch.isnan(want[1].float()).any()  # what it writes is no number any more
            with pytest.raises(UnsupportedError, match=r"^array: all of it is 0"):
                quantized(kind, array_of(weight), producer)
            continue
        for level in LEVELS:
            made = quantized(kind, array_of(weight), producer, level=level)
            assert [part.shape for part in made] == [tuple(part.shape) for part in want]
            for ours, theirs in zip(made, want, strict=True):
                assert ours.tobytes() == raw(theirs), (name, level)


def magnitudes(dtype: str) -> NDArray[Any]:
    """Every finite number from 0 on of 16 bits; of float32, those where exponents change."""
    if dtype != "F32":
        bits = np.arange(0x7F80 if dtype == "BF16" else 0x7C00, dtype=np.uint16)
        return bits.view(NUMPY[dtype])
    exponents = np.arange(255, dtype=np.uint32)[:, None] << 23
    tops = np.array([0, 0x200000, 0x400000, 0x600000], np.uint32)
    near = (tops[:, None] + np.arange(-40, 41)).reshape(-1).clip(0, 0x7FFFFF).astype(np.uint32)
    return (exponents | near).reshape(-1).view(np.float32)


@pytest.mark.parametrize("producer", ORACLES)
@pytest.mark.parametrize("kind", ["MXFP4", "MXFP8"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_scale(dtype: str, kind: str, producer: str) -> None:
    """Groups with every largest magnitude, or those around where its exponent is rounded."""
    largest = magnitudes(dtype)
    array = np.zeros((largest.size, 32), NUMPY[dtype])
    array[:, 3], array[:, 17] = largest, -largest
    shares = largest.astype(np.float32)[:, None] * np.linspace(-1, 1, 8, dtype=np.float32)
    array[:, 5:13] = shares.astype(array.dtype)
    weight = torch.from_numpy(array.view(np.int16) if dtype == "BF16" else array)
    weight = weight.view(torch.bfloat16) if dtype == "BF16" else weight
    want = [raw(part) for part in ORACLES[producer](kind, weight)]
    for level in LEVELS:
        made = quantized(kind, array, producer, level=level)
        assert [part.tobytes() for part in made] == want


@pytest.mark.parametrize("producer", ORACLES)
@pytest.mark.parametrize("kind", ["MXFP4", "NVFP4"])
def test_ties_and_what_is_next_to_them(kind: str, producer: str) -> None:
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    below, above = np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(9))
    near = np.concatenate([ties, below, above])
    row = np.concatenate([near, -near, [0, -0.0, 6, -6, 1e-44, -1e-44]]).astype(np.float32)
    rows = np.full((1, row.size, 32), 6, np.float32)
    rows[0, :, 7] = row
    rows[0, :, 12] = -row
    array = rows.reshape(-1, 32)
    want = [raw(part) for part in ORACLES[producer](kind, torch.from_numpy(array.copy()))]
    for level in LEVELS:
        assert [p.tobytes() for p in quantized(kind, array, producer, level=level)] == want


def test_a_given_largest_magnitude() -> None:
    """The global scale that several weights share."""
    for dtype in DTYPES:
        weight = torch.randn(16, 64).to(DTYPES[dtype])
        amax = (2 * weight.abs().max()).reshape(1)
        made = nvfp4.quantize(array_of(weight), amax=float(amax))
        assert [p.tobytes() for p in made] == [raw(p) for p in grouped("NVFP4", weight, amax)]


def without_negative_zeros(codes: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """Both nibbles; neither library gives -0 a code of its own."""
    return [np.where(nibbles == 8, 0, nibbles) for nibbles in (codes & 15, codes >> 4)]


@pytest.mark.parametrize("producer", ORACLES)
def test_codes_of_nvfp4_are_stable(producer: str) -> None:
    """What is decoded from codes is encoded to the same, but for the sign of zeros."""
    array = np.random.default_rng(4).standard_normal((64, 512)).astype(np.float32)
    made = nvfp4.quantize(array, producer=producer)
    again = nvfp4.quantize(values_of("NVFP4", made, producer), producer=producer)
    assert made.scales.tobytes() == again.scales.tobytes()
    for one, other in zip(*map(without_negative_zeros, (made.codes, again.codes)), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("producer", ORACLES)
@pytest.mark.parametrize("kind", ["MXFP4", "MXFP8"])
def test_values_of_mx_are_stable(kind: str, producer: str) -> None:
    """What is decoded from codes is encoded to codes of the same values, on both sides.

    Codes may change: a group that ends at 3 times its scale ends at 6 times half of it, too.
    """
    array = np.random.default_rng(4).standard_normal((64, 512)).astype(np.float32)
    values = values_of(kind, quantized(kind, array, producer), producer)
    again = quantized(kind, values, producer)
    assert (values_of(kind, again, producer) == values).all()


@pytest.mark.parametrize("kind", ["NVFP4", "MXFP4", "MXFP8"])
def test_wrong_arguments(kind: str) -> None:
    group = 16 if kind == "NVFP4" else 32
    for producer in ORACLES:
        with pytest.raises(ValueError, match="not a whole number of groups"):
            quantized(kind, np.ones((4, group + 8), np.float32), producer)
        with pytest.raises(ValueError, match="must be a matrix"):
            quantized(kind, np.ones(group, np.float32), producer)
        with pytest.raises(TypeError, match="dtype float64"):
            quantized(kind, np.ones((2, group)), producer)
        for bad in (np.inf, np.nan):
            with pytest.raises(UnsupportedError, match="an infinity or a NaN"):
                quantized(kind, np.full((2, group), bad, np.float32), producer)
    with pytest.raises(ValueError, match="there is no"):
        quantized(kind, np.ones((2, group), np.float32), "nobody")


def test_arguments_of_nvfp4() -> None:
    array = np.ones((2, 32), np.float32)
    for amax in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="amax must be"):
            nvfp4.quantize(array, amax=amax)
    codes, scales, second = nvfp4.quantize(array)
    with pytest.raises(ValueError, match="is missing"):
        nvfp4.dequantize(codes, scales)
    with pytest.raises(ValueError, match="has 3 numbers"):
        nvfp4.dequantize(codes, scales, np.ones(3, np.float32))
    with pytest.raises(ValueError, match="scales have shape"):
        nvfp4.dequantize(codes, scales[:, :1], second)
    with pytest.raises(ValueError, match="producer must be one of"):
        nvfp4.dequantize(codes, scales, second, producer="nobody")
    with pytest.raises(ValueError, match="rows and columns"):
        nvfp4.dequantize(codes[0], scales[0], second)
    with pytest.raises(TypeError, match="codes has dtype"):
        nvfp4.dequantize(array, scales, second)
    with pytest.raises(ValueError, match="format must be"):
        mx.quantize(array, "mxfp6")
    with pytest.raises(ValueError, match="scales have shape"):
        mx.dequantize(codes, scales.view(np.uint8))


def test_a_stack_of_matrices_is_decoded() -> None:
    """With a global scale for each; as ModelOpt has experts."""
    arrays = np.random.default_rng(5).standard_normal((3, 8, 64)).astype(np.float32)
    made = [nvfp4.quantize(array, producer="ModelOpt") for array in arrays]
    codes, scales, seconds = (np.stack(parts) for parts in zip(*made, strict=True))
    values = nvfp4.dequantize(codes, scales, seconds, producer="ModelOpt", dtype="f32")
    want = [nvfp4.dequantize(*one, producer="ModelOpt", dtype="f32") for one in made]
    assert (values == np.stack(want)).all()
    codes, scales = mx.quantize(arrays.reshape(24, 64), "mxfp8")
    values = mx.dequantize(codes.reshape(3, 8, 64), scales.reshape(3, 8, 2), dtype="f32")
    assert (values.reshape(24, 64) == mx.dequantize(codes, scales, dtype="f32")).all()


# --- checkpoints ----------------------------------------------------------------------------------

PROJECTIONS = {
    "model.layers.0.self_attn.q_proj.weight": 1.0,
    "model.layers.0.self_attn.k_proj.weight": 3.0,
    "model.layers.0.self_attn.v_proj.weight": 0.5,
    "model.layers.0.self_attn.o_proj.weight": 7.0,
    "model.layers.0.mlp.gate_proj.weight": 2.0,
    "model.layers.0.mlp.up_proj.weight": 4.0,
    "model.layers.0.mlp.experts.0.gate_proj.weight": 2.5,
    "model.layers.0.mlp.experts.0.up_proj.weight": 0.25,
    "model.layers.1.self_attn.q_proj.weight": 9.0,
    "model.layers.1.self_attn.k_proj.weight": 0.1,
}
SHARED = {
    "compressed-tensors": ({0, 1, 2}, {4, 5}, {6, 7}, {8, 9}),
    "ModelOpt": ({0, 1, 2}, {4, 5}, {6, 7}, {8, 9}),
}


def projections(dtype: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        name: (torch.randn(8, 64, generator=generator) * by).to(DTYPES[dtype])
        for name, by in PROJECTIONS.items()
    }


@pytest.mark.parametrize("kind", ["NVFP4", "MXFP4", "MXFP8"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_as_llm_compressor_makes_it(dtype: str, kind: str, tmp_path: Path) -> None:
    """All tensors, names and bytes, global scales that are shared among them.

    It refuses layers without v_proj. Of experts it shares none, unlike what it makes of models.
    """
    tensors = dict(list(projections(dtype).items())[:-2])
    if kind == "NVFP4":
        tensors = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    save_file(tensors, tmp_path / "model.safetensors")
    with an.parse(tmp_path / "model.safetensors") as model:
        model.convert(tmp_path / "out.safetensors", to=kind.lower())
    made, want = load_file(tmp_path / "out.safetensors"), llm_compressor(kind, tensors)
    assert made.keys() == want.keys()
    for name, tensor in want.items():
        assert (made[name].dtype, made[name].shape) == (tensor.dtype, tensor.shape)
        assert raw(made[name]) == raw(tensor), name


@pytest.mark.parametrize("producer", ORACLES)
def test_projections_share_a_global_scale(producer: str, tmp_path: Path) -> None:
    """Those that inference runs as one; in layer 1 keys are values, so that there is no v_proj."""
    tensors = projections("BF16")
    save_file(tensors, tmp_path / "model.safetensors")
    target = "nvfp4" if producer == "compressed-tensors" else "nvfp4-modelopt"
    with an.parse(tmp_path / "model.safetensors") as model:
        model.convert(tmp_path / "out.safetensors", to=target, verify=True)
    names = list(PROJECTIONS)
    amax = {name: float(tensor.abs().max()) for name, tensor in tensors.items()}
    for group in SHARED[producer]:
        largest = max(amax[names[i]] for i in group)
        amax.update({names[i]: largest for i in group})
    with an.parse(tmp_path / "out.safetensors") as model:
        for name, tensor in tensors.items():
            made = nvfp4.quantize(array_of(tensor), producer=producer, amax=amax[name])
            want = nvfp4.dequantize(*made, producer=producer, dtype="f32")
            assert (model[name].numpy() == want).all(), name


@pytest.mark.parametrize("to", ["nvfp4", "mxfp4", "mxfp8"])
def test_transformers_decompresses_what_is_written(to: str, tmp_path: Path) -> None:
    """Without a GPU, when it first runs: to the values that are read here, in BF16."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        from transformers import AutoModelForCausalLM, LlamaConfig
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=False,
    )
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path / "in")
    with an.parse(tmp_path / "in") as model:
        model.forget(tmp_path / "out", to, verify=True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    loaded(torch.arange(8)[None])
    stored = loaded.state_dict()
    with an.parse(tmp_path / "out") as model:
        assert sum(len(model[name].parts) > 1 for name in model) == 7
        for name in model:
            assert raw(stored[name]) == model[name].numpy(dtype="bf16").tobytes(), name


@pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize(
    ("folder", "to"),
    [
        ("ct_nvfp4", "nvfp4"),
        ("ct_nvfp4a16", "nvfp4"),
        ("ct_mxfp4", "mxfp4"),
        ("ct_mxfp8", "mxfp8"),
        ("modelopt_nvfp4", "nvfp4-modelopt"),
        ("modelopt_mxfp4", "mxfp4-modelopt"),
        ("modelopt_mxfp8", "mxfp8-modelopt"),
    ],
)
def test_real_checkpoints_come_back(folder: str, to: str, tmp_path: Path) -> None:
    """What a library's own checkpoint decodes to is encoded and decoded to the same values."""
    n = 0
    with an.parse(Path(REAL or "") / "modern" / folder) as model:
        model.convert(tmp_path / "out", to=to)
        with an.parse(tmp_path / "out") as again:
            for name in again:
                if len(again[name].parts) > 1:
                    assert (again[name].numpy() == model[name].numpy()).all(), name
                    n += 1
    assert n > 0


@pytest.mark.parametrize(
    ("to", "format", "group"),
    [
        ("nvfp4-modelopt", "w4a16_nvfp4", 16),
        ("mxfp4-modelopt", "mxfp4", 32),
        ("mxfp8-modelopt", "mxfp8", 32),
    ],
)
def test_modelopt_describes_a_directory_so(
    to: str, format: str, group: int, tmp_path: Path
) -> None:
    """Its own functions, given the layers, say what is in hf_quant_config.json and config.json."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        from modelopt import __version__
        from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
        from modelopt.torch.export.quant_utils import process_layer_quant_config
    layers = {
        "model.embed_tokens": None,
        "model.layers.0.mlp.gate": None,
        "model.layers.0.mlp.up_proj": format,
        "model.layers.0.self_attn.o_proj": None,
        "model.layers.0.self_attn.q_proj": format,
        "lm_head": None,
    }
    root = tmp_path / "in"
    root.mkdir()
    tensors = {f"{name}.weight": torch.randn(32, 64).bfloat16() for name in layers}
    save_file(tensors, root / "model.safetensors", {"format": "pt"})
    (root / "config.json").write_text('{"model_type": "llama"}')
    (root / "hf_quant_config.json").write_text("{}")  # that of the source goes
    with an.parse(root) as model:
        model.convert(tmp_path / "out", to, exclude="*.o_proj.weight")
    told: dict[str, Any] = {}
    for name, algorithm in layers.items():
        told |= {f"{name}.quantization": algorithm, f"{name}.awq_block_size": group}
    quantization = {"quant_algo": None, "kv_cache_quant_algo": None}
    quantization |= process_layer_quant_config(told)
    want = {"producer": {"name": "modelopt", "version": __version__}, "quantization": quantization}
    text = (tmp_path / "out" / "hf_quant_config.json").read_text()
    assert text == json.dumps(want, indent=4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"] == convert_hf_quant_config_format(want)
    with an.parse(tmp_path / "out") as again:
        assert sum(again[name].is_quantized for name in again) == 2
