"""ComfyUI's FP8 and MXFP8 are byte for byte what its own tools write, and load in their classes."""

from __future__ import annotations

import io
import json

import pytest
import torch
from safetensors.torch import load, save

import anamnesis as an
from anamnesis.schemes.encodings import find, made
from anamnesis.schemes.libraries.comfy_left import comfy_left
from helpers.blockwise import LEVELS, encode_in_bands, reopened
from helpers.comfy_tools import (
    assert_loads_as_read,
    converted,
    dequantized,
    eager,
    from_comfy_quants,
    marker,
    needs_comfy_quants,
    same,
)
from helpers.encoder_oracles import DTYPES, raw, weights

pytestmark = pytest.mark.against("comfy-kitchen, comfy-quants")

SHAPES = ((32, 64), (160, 2112), (256, 320))
LAYER = "blocks.3.attn.to_q"
NAME = f"{LAYER}.weight"
FORMATS = {"comfy-fp8": "e4m3", "comfy-fp8-e5m2": "e5m2"}
TORCHS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
TOO_SMALL = "subnormal", "where reciprocals end"


def is_refused(told: str, dtype: str) -> bool:
    """Groups whose scale is 0, by which comfy-kitchen divides: in half floats they are zeros."""
    return told in TOO_SMALL and dtype != "F16"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mxfp8_of_comfy_kitchen(shape: tuple[int, int], dtype: str) -> None:
    for told, weight in weights(*shape, dtype):
        weight = weight + 0.0  # without -0, which a group of zeros loses there
        if is_refused(told, dtype):
            with pytest.raises(an.UnsupportedError, match=r"a group has values below 2\.7e-36"):
                converted({NAME: weight}, "comfy-mxfp8")
            continue
        state = converted({NAME: weight}, "comfy-mxfp8")
        codes, scales = eager.quantize_mxfp8(weight)
        assert same(state[NAME], codes), told
        assert same(state[f"{NAME}_scale"], scales.view(torch.uint8)), told
        assert same(state[f"{LAYER}.comfy_quant"], marker({"format": "mxfp8"}))
        assert len(state) == 3


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("exponent", [-20, -9, 0, 3])
def test_fp8_of_comfy_kitchen(exponent: int, to: str) -> None:
    """It multiplies with the reciprocal of a scale: the same where that is a power of two."""
    dtype = TORCHS[FORMATS[to]]
    largest = torch.tensor(torch.finfo(dtype).max * 2.0**exponent)
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    every = every[every.abs() <= largest]
    weight = torch.cat((every, largest.reshape(1)))
    weight = torch.nn.functional.pad(weight, (0, -len(weight) % 64)).reshape(-1, 64)
    state = converted({NAME: weight}, to)
    scale = torch.amax(weight.abs()) / torch.finfo(dtype).max
    assert same(state[NAME], eager.quantize_per_tensor_fp8(weight, scale, dtype))
    assert same(state[f"{NAME}_scale"], scale)


@needs_comfy_quants
@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("qwen_image", "Qwen/Qwen-Image"),
        ("qwen_image_edit", "Qwen/Qwen-Image-Edit"),
        ("anima", "Comfy-Org/anima"),
    ],
)
def test_what_comfy_quants_leaves(family: str, model: str, prefix: str) -> None:
    """Of the models that it has lists of, all that their contracts name."""
    select = from_comfy_quants("algorithms.tensor_index").iter_quantized_tensors
    adapter = from_comfy_quants("model_adapters.registry").get_adapter(family)
    source = from_comfy_quants("model_adapters.base").ModelSource(family, model, "main")
    _, graph = adapter.inspect(source)
    shapes = {t.name: tuple(t.shape) for module in graph.modules for t in module.tensors}
    shapes |= {"net.llm_adapter.blocks.0.self_attn.q_proj.weight": (64, 64)}
    chosen = {prefix + tensor.name for _, tensor in select(graph, adapter.default_policy())}
    left = comfy_left({prefix + name: shape for name, shape in shapes.items()})
    matrices = {name for name in shapes if name.endswith(".weight") and len(shapes[name]) == 2}
    assert {prefix + name for name in matrices} - left.keys() == chosen


@needs_comfy_quants
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 8), *SHAPES], ids=str)
def test_what_comfy_quants_writes(shape: tuple[int, int], dtype: str) -> None:
    export = from_comfy_quants("backends.inference_model_export")
    formats = from_comfy_quants("formats.fp8_common")
    blocked = from_comfy_quants("formats.mxfp8_blocked")
    for told, weight in weights(*shape, dtype):
        for to, name in FORMATS.items():
            codes, scale = export._quantize_float8(
                weight,
                target_dtype=f"fp8_{name}",
                scale_granularity="per_tensor",
                scale_axis=None,
                rounding="nearest_even",
            )
            config = formats.fp8_checkpoint_quant_config(f"fp8_{name}")
            want = {
                NAME: codes,
                f"{NAME}_scale": scale,
                f"{LAYER}.input_scale": export._unit_input_scale_tensor(device="cpu"),
                f"{LAYER}.comfy_quant": export._json_bytes_tensor(config, device="cpu"),
            }
            state = converted({NAME: weight}, to)
            assert state.keys() == want.keys()
            assert all(same(state[key], want[key]) for key in want), (told, to)
        if shape[0] % 32 == 0 and not is_refused(told, dtype):
            state = converted({NAME: weight}, "comfy-mxfp8")
            codes, scales = blocked.quantize_mxfp8_block(weight)
            assert same(state[NAME], codes), told
            assert same(state[f"{NAME}_scale"], scales), told


@pytest.mark.parametrize("to", ["comfy-fp8", "comfy-fp8-e5m2", "comfy-mxfp8"])
def test_it_loads_as_what_is_read_here(to: str) -> None:
    assert_loads_as_read(to)


@pytest.mark.parametrize("to", ["comfy-fp8", "comfy-mxfp8"])
@pytest.mark.parametrize("rows", [128, 256])
def test_bands_and_levels_give_the_same_bytes(to: str, rows: int) -> None:
    row = find(to)
    assert row is not None
    encoding = made(row).fitted(an.base.dtypes.DTYPES["F32"])
    weight = torch.randn(416, 192, generator=torch.Generator().manual_seed(2))
    want, lost = encode_in_bands(encoding, weight, 1 << 20, 1, "scalar")
    for level in LEVELS:
        outs, loss = encode_in_bands(encoding, weight, rows, 3, level)
        assert (outs, loss) == (want, lost)
    state = converted({NAME: weight}, to)
    assert [raw(state[NAME]), raw(state[f"{NAME}_scale"])] == want[:2]
    with an.parse(save(state)) as model:
        assert reopened(encoding, (416, 192), want).tobytes() == model[NAME].numpy("f32").tobytes()


def test_long_rows_are_cut_between_tiles_of_scales() -> None:
    weight = torch.randn(160, 70016, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    state = converted({NAME: weight}, "comfy-mxfp8")
    codes, scales = eager.quantize_mxfp8(weight)
    assert raw(state[NAME]) == raw(codes)
    assert raw(state[f"{NAME}_scale"]) == raw(scales.view(torch.uint8))


@pytest.mark.parametrize("shape", [(32, 48), (48, 32), (33, 64)])
def test_mxfp8_leaves_what_would_be_padded(shape: tuple[int, int]) -> None:
    both = {NAME: torch.ones(64, 64), "blocks.0.a.weight": torch.ones(shape)}
    state = converted(both, "comfy-mxfp8")
    assert state["blocks.0.a.weight"].dtype == torch.float32


def mxfp8(rows: int = 64) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(4)
    codes = torch.randint(0, 127, (rows, 96), generator=draw).to(torch.uint8)
    scales = torch.randint(100, 140, (rows, 3), generator=draw).to(torch.uint8)
    return {"a.weight": codes.view(torch.float8_e4m3fn), "a.weight_scale": scales}


def test_codes_of_other_producers_are_moved_and_come_back() -> None:
    state = mxfp8()
    out, back = io.BytesIO(), io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, "comfy-mxfp8").repacked
        values = model["a.weight"].numpy("f32")
    moved = load(out.getvalue())
    assert raw(moved["a.weight"]) == raw(state["a.weight"])
    assert dequantized(moved, "a", (64, 96)).numpy().tobytes() == values.tobytes()
    with an.parse(out.getvalue()) as model:
        assert model.convert(back, "mxfp8").repacked
    assert {k: raw(v) for k, v in load(back.getvalue()).items()} == {
        k: raw(v) for k, v in state.items()
    }


def test_codes_that_would_be_padded_are_not_moved() -> None:
    with an.parse(save(mxfp8(40))) as model:
        with pytest.raises(an.UnsupportedError, match="suits comfy-mxfp8: columns end within"):
            model.convert(io.BytesIO(), "comfy-mxfp8")
        with pytest.raises(an.UnsupportedError, match="columns end within a group of 32"):
            model.convert(io.BytesIO(), "comfy-mxfp8", lossless=True)


@pytest.mark.parametrize("format", FORMATS.values())
@pytest.mark.parametrize("scale", ["weight_scale", "weight_scale_inv", "scale_weight", ""])
def test_one_scale_of_others_is_moved(scale: str, format: str) -> None:
    """Of transformers, compressed-tensors, ComfyUI's older files, and codes that are values."""
    codes = torch.arange(64 * 64).remainder(120).to(torch.uint8).reshape(64, 64)
    state = {NAME: codes.view(TORCHS[format])}
    state |= {f"{LAYER}.{scale}": torch.tensor(0.0371)} if scale else {}
    out = io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, "comfy-fp8", lossless=True).repacked
        values = model[NAME].numpy("f32")
    moved = load(out.getvalue())
    assert raw(moved[NAME]) == raw(codes)
    assert moved[f"{NAME}_scale"].tolist() == (state[f"{LAYER}.{scale}"].item() if scale else 1)
    told = json.loads(moved[f"{LAYER}.comfy_quant"].numpy().tobytes())
    assert told["format"] == f"float8_{format}{'fn' if format == 'e4m3' else ''}"
    assert dequantized(moved, LAYER, (64, 64)).numpy().tobytes() == values.tobytes()


def test_a_marker_is_the_json_that_comfyui_reads() -> None:
    state = converted({NAME: torch.ones(32, 32)}, "comfy-fp8")
    told = json.loads(state[f"{LAYER}.comfy_quant"].numpy().tobytes())
    assert told == {"format": "float8_e4m3fn", "full_precision_matrix_mult": True}
    assert state[f"{NAME}_scale"].shape == state[f"{LAYER}.input_scale"].shape == ()
