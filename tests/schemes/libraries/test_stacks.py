"""Stacks of experts are encoded as each encoding's own tools do, and else left with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, Qwen3MoeConfig
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import anamnesis as an
from helpers.alike import converted_alike
from helpers.encoder_oracles import NUMPY, array_of, raw, transformers
from helpers.handmade import Entry, write_safetensors

MODULE = "model.layers.0.mlp"
SWITCH = f"{MODULE}.switch_mlp.gate_proj.weight"
GATE_UP, DOWN = f"{MODULE}.experts.gate_up_proj", f"{MODULE}.experts.down_proj"


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    normal = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return (normal / 20).astype(NUMPY[dtype])


def entry(array: np.ndarray[Any, Any], dtype: str) -> Entry:
    return dtype, array.shape, array.tobytes()


def stored(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    with an.parse(path) as model:
        return {n: (s.dtype.name, list(s.shape), s.read()) for n, s in model.stored.items()}


# --- MLX --------------------------------------------------------------------------------------


def of_mlx(array: np.ndarray[Any, Any], **settings: Any) -> list[mx.array]:
    wide = array.dtype.itemsize == 4
    given = mx.array(array if wide else array.view(np.uint16))
    dtype = mx.float32 if wide else mx.float16 if array.dtype == np.float16 else mx.bfloat16
    with mx.stream(mx.cpu):
        return list(mx.quantize(given if wide else given.view(dtype), **settings))


def bytes_of(array: mx.array) -> bytes:
    sized = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[array.dtype.size]
    return np.array(array.view(sized)).tobytes()


@pytest.mark.against("MLX")
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
@pytest.mark.parametrize(
    ("to", "settings"),
    [
        ("mlx-4bit", {"bits": 4}),
        ("mlx-3bit", {"bits": 3}),
        ("mlx-mxfp4", {"mode": "mxfp4"}),
        ("mlx-nvfp4", {"mode": "nvfp4"}),
        ("mlx-mxfp8", {"mode": "mxfp8"}),
    ],
)
def test_mlx_stacks(to: str, settings: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    array = values((5, 24, 192), dtype)
    source = write_safetensors(
        tmp_path / "in.safetensors",
        {SWITCH: entry(array, dtype), "a.weight": entry(values((3, 7, 64), dtype), dtype)},
    )
    out = tmp_path / f"{to}.safetensors"
    report = converted_alike(source, to, out)
    want = of_mlx(array, **settings)
    names = [SWITCH, *(SWITCH.replace("weight", part) for part in ("scales", "biases"))]
    found = stored(out)
    assert report.plain == {"a.weight": "not a matrix"}
    assert set(found) == {"a.weight", *names[: len(want)]}
    for name, part in zip(names, want, strict=False):
        assert (found[name][1], found[name][2]) == (list(part.shape), bytes_of(part)), name
    group, bits = settings.get("group_size", 64), settings.get("bits")
    (tmp_path / "config.json").write_text(
        json.dumps({"quantization": {"group_size": group, "bits": bits}} if bits else {})
    )
    with an.parse(out) as model:
        again = model[SWITCH].numpy()
        with mx.stream(mx.cpu):
            wide = [part.astype(mx.float32) if i and bits else part for i, part in enumerate(want)]
            biases = dict(zip(["biases"], wide[2:], strict=False))
            how: dict[str, Any] = {**settings, **biases, "dtype": mx.float32}
            decoded = mx.dequantize(wide[0], wide[1], **how)
        assert again.tobytes() == bytes_of(decoded)


# --- transformers' FP8 ------------------------------------------------------------------------


def moe() -> Any:
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        hidden_size=256,
        moe_intermediate_size=128,
        intermediate_size=256,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=128,
        num_experts=4,
        num_experts_per_tok=2,
        vocab_size=128,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def saved_with_stacks(model: Any, folder: Path) -> Path:
    """As the model has its parameters: saved, its experts are taken apart."""
    model.save_pretrained(folder)
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    return folder


@pytest.fixture
def no_gpu_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)


@pytest.mark.against("transformers")
@pytest.mark.usefixtures("no_gpu_asked")
@pytest.mark.parametrize(
    ("to", "settings"), [("fp8-block", {}), ("fp8-block-ue8m0", {"scale_fmt": "ue8m0"})]
)
def test_fp8_stacks_are_what_transformers_makes(
    to: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    dense = saved_with_stacks(moe(), tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "ours", to, verify=True)
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    for name in (GATE_UP, DOWN):
        weight = load_file(dense / "model.safetensors")[name]
        want = transformers(weight, (128, 128), **settings)
        assert set(want) == {"q.weight", "q.weight_scale_inv"}
        for part, suffix in (("q.weight", ""), ("q.weight_scale_inv", "_scale_inv")):
            assert ours[name + suffix].shape == want[part].shape
            assert raw(ours[name + suffix]) == raw(want[part]), name
    how = FineGrainedFP8Config(**settings)
    theirs = AutoModelForCausalLM.from_pretrained(dense, quantization_config=how).state_dict()
    loaded, told = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(told.values()), told
    state = loaded.state_dict()
    assert state.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert state[name].dtype == tensor.dtype, name
        assert raw(state[name]) == raw(tensor), name
    with an.parse(tmp_path / "ours") as again:
        codes, scales = (array_of(ours[DOWN + s].float()) for s in ("", "_scale_inv"))
        wide = codes * np.repeat(np.repeat(scales, 128, 1), 128, 2)
        assert again[DOWN].numpy().tobytes() == wide.tobytes()


def test_fp8_stacks_in_any_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anamnesis.schemes.core import blockwise

    tensors = {
        GATE_UP: entry(values((3, 256, 384), "BF16"), "BF16"),
        DOWN: entry(values((3, 384, 128), "BF16", 1), "BF16"),
    }
    source = write_safetensors(tmp_path / "in.safetensors", tensors)
    out = tmp_path / "fp8-block.safetensors"
    report = converted_alike(source, "fp8-block", out)
    assert not report.plain
    monkeypatch.setattr(blockwise, "_LARGEST_BAND", 0)
    monkeypatch.setattr(blockwise, "_TILE", 1 << 15)
    with an.parse(source) as model:
        model.convert(tmp_path / "tiles", "fp8-block", threads=3)
    assert (tmp_path / "tiles").read_bytes() == out.read_bytes()


@pytest.mark.parametrize(
    ("gate_up", "down", "more", "why"),
    [
        ((2, 128, 512), (2, 256, 128), {}, r"experts that are [in, out]"),
        ((2, 256, 128), (2, 128, 128), {"gate_up_proj_bias": (2, 256)}, "experts with biases"),
        ((2, 320, 128), (2, 128, 160), {}, "not in whole blocks of 128x128"),
        ((2, 256, 128), (2, 128, 160), {}, r"experts that may be [in, out]"),
        ((2, 128, 128), (2, 128, 64), {}, "experts whose gate and up projections share blocks"),
    ],
)
def test_stacks_that_stay_plain(
    gate_up: tuple[int, ...],
    down: tuple[int, ...],
    more: dict[str, tuple[int, ...]],
    why: str,
    tmp_path: Path,
) -> None:
    """All of a module, for transformers has one class for it; the config names the module."""
    shapes = {"gate_up_proj": gate_up, "down_proj": down, **more}
    tensors = {
        f"{MODULE}.experts.{name}": entry(values(shape, "BF16"), "BF16")
        for name, shape in shapes.items()
    }
    tensors[f"{MODULE}.up_proj.weight"] = entry(values((128, 128), "BF16"), "BF16")
    source = write_safetensors(tmp_path / "in" / "model.safetensors", tensors)
    (source.parent / "config.json").write_text("{}")
    with an.parse(source.parent) as model:
        report = model.convert(tmp_path / "out", "fp8-block")
    assert {report.plain[name] for name in (GATE_UP, DOWN)} == {why}
    told = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert f"{MODULE}.experts" in told["modules_to_not_convert"]


@pytest.mark.parametrize("to", ["bnb-nf4", "gptq-4bit", "fp8-tensor"])
def test_stacks_that_no_tool_takes(to: str, tmp_path: Path) -> None:
    tensors = {
        GATE_UP: entry(values((2, 256, 128), "BF16"), "BF16"),
        f"{MODULE}.up_proj.weight": entry(values((128, 128), "BF16"), "BF16"),
    }
    source = write_safetensors(tmp_path / "in.safetensors", tensors)
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out.safetensors", to)
    assert report.plain == {GATE_UP: "a stack of experts"}
