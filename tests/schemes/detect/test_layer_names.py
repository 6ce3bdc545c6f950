"""What is said of a layer hits it, under whichever wrapper it was named; else it is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.claims import Tensors, directory, empty, refusal
from helpers.handmade import Entry, safetensors_bytes

RNG = np.random.default_rng(5)
SHAPES = {"U8": 1, "F8_E4M3": 1, "I8": 1, "F32": 4, "U32": 4, "I32": 4, "F16": 2}


def drawn(dtype: str, *shape: int) -> Entry:
    n = int(np.prod(shape)) * SHAPES[dtype]
    high = 120 if dtype.startswith("F") else 256  # neither NaN nor negative
    return dtype, shape, RNG.integers(1, high, n, dtype=np.uint8).tobytes()


PARTS: dict[str, dict[str, Entry]] = {
    "nvfp4": {
        "weight": drawn("U8", 128, 64),
        "weight_scale": drawn("F8_E4M3", 128, 8),
        "weight_scale_2": drawn("F32"),
    },
    "mxfp8": {"weight": drawn("F8_E4M3", 128, 128), "weight_scale": drawn("U8", 128, 4)},
    "int8_tensorwise": {"weight": drawn("I8", 8, 8), "weight_scale": drawn("F32", 8, 1)},
}
MLX: dict[str, Entry] = {
    "weight": drawn("U32", 4, 32),
    "scales": drawn("F16", 4, 2),
    "biases": drawn("F16", 4, 2),
}


GPTQ: dict[str, Entry] = {
    "qweight": drawn("I32", 8, 8),
    "qzeros": drawn("I32", 1, 1),
    "scales": drawn("F16", 1, 8),
}
FP8: dict[str, Entry] = {"weight": drawn("F8_E4M3", 8, 8), "weight_scale": drawn("F32")}


def below(module: str, parts: dict[str, Entry]) -> Tensors:
    return {f"{module}.{end}": entry for end, entry in parts.items()}


def layers(said: dict[str, Any]) -> dict[str, str]:
    return {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": said})}


def values(tensors: Tensors, metadata: dict[str, str] | None = None) -> list[bytes]:
    with an.parse(safetensors_bytes(tensors, metadata)) as model:
        assert not model.problems
        return [tensor.numpy().tobytes() for tensor in model.values()]


# --- ComfyUI --------------------------------------------------------------------------------------

NAMES = [
    ("blocks.4.attn.wo", "model.diffusion_model.blocks.4.attn.wo"),
    ("model.diffusion_model.blocks.4.attn.wo", "blocks.4.attn.wo"),
    ("net.blocks.4.attn.wo", "diffusion_model.blocks.4.attn.wo"),
    ("blocks.4.attn.wo.weight", "blocks.4.attn.wo"),
    ("blocks.4.attn.wo", "dit.blocks.4.attn.wo"),
]


@pytest.mark.parametrize("format", ["nvfp4", "mxfp8"])
@pytest.mark.parametrize(("said", "stored"), NAMES)
def test_layers_under_another_prefix(said: str, stored: str, format: str) -> None:
    parts = PARTS[format]
    exact = values(below(stored, parts), layers({stored: {"format": format}}))
    assert values(below(stored, parts), layers({said: {"format": format}})) == exact
    assert values(below(stored, parts), layers({said: format.upper()})) == exact
    tensors = below(stored, parts)
    with an.parse(safetensors_bytes(tensors), layout="modelopt") as model:
        assert [tensor.numpy().tobytes() for tensor in model.values()] != exact


@pytest.mark.parametrize("format", [*PARTS, "svdquant_w4a4"])
@pytest.mark.parametrize("said", ["blocks.4.attn.out", "attn.wo"])
def test_layers_that_are_not_there(said: str, format: str) -> None:
    parts = PARTS.get(format, PARTS["int8_tensorwise"])
    tensors = below("a.attn.wo", parts) | below("b.attn.wo", parts)
    error = refusal(tensors, metadata=layers({said: {"format": format}}))
    for word in ("_quantization_metadata", said, "attn.wo.weight"):
        assert word in str(error)


def test_a_rotated_layer_under_another_prefix() -> None:
    tensors = below("net.blocks.0.wq", PARTS["int8_tensorwise"])
    said = {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 4}
    exact = values(tensors, layers({"net.blocks.0.wq": said}))
    assert values(tensors, layers({"blocks.0.wq": said})) == exact
    plain = values(tensors, layers({"blocks.0.wq": {"format": "int8_tensorwise"}}))
    assert plain != exact


def marker(text: str) -> Entry:
    return "U8", (len(text),), text.encode()


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("nvfp4", '{"format": "nvfp4"}'),
        ("mxfp8", '{"format": "mxfp8"}'),
        ("int8_tensorwise", '{"format": "int8_tensorwise", "convrot": true}'),
        ("int8_tensorwise", '{"convrot": true}'),
    ],
)
def test_one_of_two_has_a_marker(format: str, text: str) -> None:
    parts = PARTS[format]
    tensors = below("a", parts) | {"a.comfy_quant": marker(text)} | below("b", parts)
    with an.parse(safetensors_bytes(tensors)) as model:
        assert "b.weight" in model.problems


@pytest.mark.parametrize("format", PARTS)
def test_a_marker_without_a_format(format: str) -> None:
    """The dtypes tell it."""
    tensors = below("a", PARTS[format])
    told = values(tensors | {"a.comfy_quant": marker(json.dumps({"format": format}))})
    assert values(tensors | {"a.comfy_quant": marker('{"convrot": false}')}) == told


# --- MLX ------------------------------------------------------------------------------------------

OTHER = {"bits": 8, "group_size": 64}


def in_mlx(folder: Path, tensors: Tensors, **config: Any) -> an.Model:
    said = {"bits": 4, "group_size": 128, **config.pop("quantization", {})}
    return an.parse(directory(folder, {"quantization": said, **config}, tensors))


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("model.language_model.layers.0.wq", "language_model.model.layers.0.wq"),
        ("layers.0.wq", "model.layers.0.wq"),
        ("model.layers.0.wq.weight", "model.layers.0.wq"),
        ("lm_head", "language_model.lm_head"),
    ],
)
def test_settings_of_a_layer_under_another_prefix(said: str, stored: str, tmp_path: Path) -> None:
    with in_mlx(tmp_path, below(stored, MLX), quantization={said: OTHER}) as model:
        assert not model.problems
        assert model[f"{stored}.weight"].shape == (4, 128)


def test_settings_of_a_layer_that_is_not_there(tmp_path: Path) -> None:
    tensors = below("model.layers.0.wq", MLX)
    with in_mlx(tmp_path, tensors, quantization={"layers.0.attn.q": OTHER}) as model:
        error = model.problems["model.layers.0.wq.weight"]
        assert "quantization in config.json names layers.0.attn.q" in str(error)
    same = {"layers.0.attn.q": {"bits": 4, "group_size": 128}}  # as all others
    with in_mlx(tmp_path, tensors, quantization=same) as model:
        assert not model.problems


_INT8 = {"weights": {"type": "int", "num_bits": 8, "strategy": "channel"}, "targets": ["Linear"]}
_QUARK = {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}
_NVFP4 = {"quant_algo": "NVFP4"}
_OTHER = {"weights": {"type": "int", "num_bits": 4, "strategy": "channel"}}
# By the section that says how a layer of the name is encoded.
NAMED: dict[str, Callable[[str], dict[str, Any]]] = {
    "config_groups": lambda name: {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": _INT8, "group_1": _OTHER | {"targets": [name]}},
    },
    "quantized_layers": lambda name: {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"a.0.up": {"quant_algo": "W8A16"}, name: _NVFP4},
    },
    "extra_config": lambda name: {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 64,
        "packing_format": "auto_round:auto_gptq",
        "extra_config": {name: {"bits": 8}},
    },
    "layer_quant_config": lambda name: {
        "quant_method": "quark",
        "global_quant_config": _QUARK,
        "layer_quant_config": {name: {"weight": {"dtype": "int4", "qscheme": "per_channel"}}},
    },
}


@pytest.mark.parametrize("name", ["a.1.up", "a.0.down"])
@pytest.mark.parametrize("section", NAMED)
def test_what_a_config_says_of_no_layer(section: str, name: str, tmp_path: Path) -> None:
    parts = {"extra_config": GPTQ, "layer_quant_config": FP8}.get(section, PARTS["int8_tensorwise"])
    tensors = below("model.a.0.up", parts) | below("model.a.0.gate", parts)
    config = {"quantization_config": NAMED[section](name)}
    with an.parse(directory(tmp_path, config, tensors)) as model:
        error = str(next(iter(model.problems.values())))
    assert f"{name}, which matches no single layer of the model; the nearest is" in error
    assert section.removesuffix("ized_layers") in error


def test_all_layers_are_spoken_of_but_some_are_not_there(tmp_path: Path) -> None:
    """A part of a model, with the config of all of it."""
    group = _INT8 | {"targets": ["a.0.up", "a.1.up", "re:.*gate$"]}
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    parts = PARTS["int8_tensorwise"]
    tensors = below("model.a.0.up", parts) | below("model.a.0.gate", parts)
    with an.parse(directory(tmp_path, {"quantization_config": config}, tensors)) as model:
        assert not model.problems
        assert "named in the config, but not in the model: a.1.up" in str(model.inspect().notes)


def test_what_a_config_says_of_what_holds_layers(tmp_path: Path) -> None:
    tensors = below("model.a.0.up", PARTS["int8_tensorwise"])
    config = {"quantization_config": NAMED["config_groups"]("a.0")}
    with an.parse(directory(tmp_path, config, tensors)) as model:
        assert not model.problems


def test_a_shard_has_not_all_layers(tmp_path: Path) -> None:
    path = directory(tmp_path, {"quantization": {"bits": 4, "group_size": 128}}, {})
    said = {"bits": 4, "group_size": 128, "model.layers.1.wq": OTHER}
    (path / "config.json").write_text(json.dumps({"quantization": said}))
    shard = path / "model-00001-of-00002.safetensors"
    shard.write_bytes(safetensors_bytes(below("model.layers.0.wq", MLX)))
    with an.parse(shard) as model:
        assert not model.problems


@pytest.mark.parametrize(("size", "is_read"), [(256, True), (128, False), (512, True)])
def test_rows_are_as_wide_as_the_config_has_it(size: int, is_read: bool, tmp_path: Path) -> None:
    tensors = below("model.layers.0.mlp.up_proj", MLX)
    with in_mlx(tmp_path, tensors, hidden_size=size) as model:
        assert bool(model.problems) is not is_read
    with in_mlx(tmp_path, below("model.layers.0.o_proj", MLX), hidden_size=size) as model:
        assert not model.problems


# --- torchao --------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["layers.0.weight", "language_model.model.layers.0.weight"])
def test_what_torchao_says_under_another_prefix(said: str) -> None:
    parts = PARTS["nvfp4"]
    names = ("qdata", "scale", "per_tensor_scale")
    tensors = {
        f"model.layers.0._weight_{name}": entry
        for name, entry in zip(names, parts.values(), strict=True)
    }
    data = {"block_size": 16, "is_swizzled_scales": True}
    text = json.dumps({"_type": "NVFP4Tensor", "_data": data, "_tensor_data_names": [*names]})
    exact = values(tensors, {"model.layers.0.weight": text})
    assert values(tensors, {said: text}) == exact
    assert "names other" in str(refusal(tensors, metadata={"other": text}))


# --- whose tiles they are -------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["nvfp4", "mxfp8"])
def test_what_may_be_of_two_producers(format: str, tmp_path: Path) -> None:
    tensors = below("a", PARTS[format])
    error = refusal(tensors)
    assert "ModelOpt's" in str(error)
    assert "say which with layout='modelopt' or layout='comfyui'" in str(error)
    marked = values(tensors | {"a.comfy_quant": marker(json.dumps({"format": format}))})
    with an.parse(safetensors_bytes(tensors), layout="comfyui") as model:
        assert [tensor.numpy().tobytes() for tensor in model.values()] == marked
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": format.upper()}}
    with (
        an.parse(directory(tmp_path, config, tensors)) as said,
        an.parse(safetensors_bytes(tensors), layout="modelopt") as model,
    ):
        rows = said["a.weight"].numpy().tobytes()
        assert model["a.weight"].numpy().tobytes() == rows
        assert [rows] != marked


def test_the_shapes_of_another_weight_tell() -> None:
    other = {"weight": empty("U8", 8, 64), "weight_scale": empty("F8_E4M3", 8, 8)}
    other["weight_scale_2"] = empty("F32")
    tensors = below("a", PARTS["nvfp4"]) | below("b", other)
    with (
        an.parse(safetensors_bytes(tensors)) as model,
        an.parse(safetensors_bytes(tensors), layout="modelopt") as said,
    ):
        assert not model.problems
        assert model["a.weight"].numpy().tobytes() == said["a.weight"].numpy().tobytes()


def test_tiles_without_a_marker_may_be_padded() -> None:
    parts = {"weight": empty("U8", 16, 64), "weight_scale": empty("F8_E4M3", 128, 8)}
    tensors = below("a", parts | {"weight_scale_2": empty("F32")})
    assert "which rows and columns are padding" in str(refusal(tensors))
    with an.parse(safetensors_bytes(tensors), layout="comfyui") as model:
        assert model["a.weight"].shape == (16, 128)


def test_a_layout_that_nobody_has() -> None:
    with pytest.raises(ValueError, match="layout must be modelopt or comfyui; got 'x'"):
        an.parse(safetensors_bytes({}), layout="x")  # type: ignore[arg-type]


# --- what is left ---------------------------------------------------------------------------------


def test_layers_of_an_ignore_list_that_are_not_there_are_listed(tmp_path: Path) -> None:
    listed = ["lm_head", "model.l.0.up", "re:.*gate$", "x.*", "l.0", "model.l.7.up", "Linear"]
    config = {"quant_method": "fp8", "modules_to_not_convert": listed}
    tensors = below("model.l.0.up", {"weight": empty("BF16", 2, 2)})
    tensors |= below("model.l.1.up", PARTS["mxfp8"])
    with an.parse(directory(tmp_path, {"quantization_config": config}, tensors)) as model:
        notes = model.inspect().notes
        assert "named in the config, but not in the model: model.l.7.up" in notes
