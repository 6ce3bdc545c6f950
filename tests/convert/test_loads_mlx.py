"""mlx-lm loads MLX's directories, and finds the same logits as in what it quantises itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model, quantize_model, save_config, save_model
from safetensors.torch import load_file, save_file

import anamnesis as an
from anamnesis.schemes.libraries.mlx_models import PLAIN_EXPERTS
from helpers.tiny_models import dense_for_mlx

pytestmark = [
    pytest.mark.against("mlx-lm"),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(autouse=True)
def _on_a_cpu() -> None:
    mx.set_default_device(mx.cpu)


def logits(folder: Path) -> Any:
    """Of some words; no parameter may be missing or left over."""
    model, _ = load_model(folder)
    return model(mx.array(np.arange(20)[None]))


def assert_same(ours: Path, theirs: Path) -> None:
    """The same tensors and logits, to the bit."""
    found: Any = mx.load(str(ours / "model.safetensors"))
    want: Any = mx.load(str(theirs / "model.safetensors"))
    assert found.keys() == want.keys()
    for name, array in want.items():
        assert found[name].dtype == array.dtype, name
        assert mx.array_equal(found[name], array), name
    assert mx.array_equal(logits(ours), logits(theirs))


@pytest.mark.parametrize(
    ("kind", "bits"),
    [*(("llama", bits) for bits in (2, 3, 4, 5, 6, 8)), ("qwen2", 4), ("gemma2", 4)],
)
def test_as_mlx_lm_quantises(kind: str, bits: int, tmp_path: Path) -> None:
    dense = dense_for_mlx(kind, tmp_path / "dense")
    model, config = load_model(dense)
    model, config = quantize_model(model, config, group_size=64, bits=bits)
    save_model(tmp_path / "theirs", model)
    save_config(config, tmp_path / "theirs" / "config.json")
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "ours", f"mlx-{bits}bit")
    assert_same(tmp_path / "ours", tmp_path / "theirs")
    told = [json.loads((tmp_path / w / "config.json").read_text()) for w in ("ours", "theirs")]
    assert told[0]["quantization"] == told[1]["quantization"]


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8"])
def test_repacked_modes(mode: str, tmp_path: Path) -> None:
    """Codes of compressed-tensors' OCP formats are loaded in MLX's modes, as they decode here."""
    dense = dense_for_mlx("llama", tmp_path / "dense")
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "packed", mode)
    with an.parse(tmp_path / "packed") as packed:
        report = packed.convert(tmp_path / "ours", to=f"mlx-{mode}")
        assert len(report.repacked) == 14
    model, _ = load_model(tmp_path / "ours")
    layers = dict(model.named_modules())
    with an.parse(tmp_path / "ours") as packed:
        for name in report.repacked:
            layer = layers[name.removesuffix(".weight")]
            assert layer.mode == mode
            values = mx.dequantize(
                layer.weight, layer.scales, None, layer.group_size, layer.bits, layer.mode
            )
            found = np.array(values.astype(mx.float32))
            assert (found == packed[name].numpy("bf16").astype(np.float32)).all(), name
    assert mx.isfinite(logits(tmp_path / "ours")).all()


def said_of_mlx_lm(model: an.Model) -> tuple[str, bool]:
    """What the plan says of it, and whether a user is told."""
    plan = model.plan("mlx-nvfp4")
    (one,) = [verdict for verdict in plan.verdicts if verdict.program == "mlx-lm"]
    return one.outcome, one.warns


def test_second_scales_are_of_stacks_alone(tmp_path: Path) -> None:
    """NVFP4 of linear layers, moved with its second scales: refused, as its plan says."""
    dense = dense_for_mlx("llama", tmp_path / "dense")
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "packed", "nvfp4")
    with an.parse(tmp_path / "packed") as packed:
        assert said_of_mlx_lm(packed) == ("refuses", True)
        report = packed.convert(tmp_path / "ours", to="mlx-nvfp4")
    assert len(report.repacked) == 14
    assert any("second scales" in warning for warning in report.warnings)
    with pytest.raises(ValueError, match=r"Received 14 parameters not in model") as refused:
        load_model(tmp_path / "ours")
    assert str(refused.value).count("global_scale") == 14


def test_second_scales_of_one_are_left_out(tmp_path: Path) -> None:
    """They change no value, and mlx-lm loads the codes without."""
    dense = dense_for_mlx("llama", tmp_path / "dense")
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "packed", "nvfp4-modelopt")
    path = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(path)
    for name, one in tensors.items():
        if name.endswith("weight_scale_2"):
            one.fill_(1)
    save_file(tensors, path, {"format": "pt"})
    with an.parse(tmp_path / "packed") as packed:
        assert said_of_mlx_lm(packed) == ("loads", False)
        report = packed.convert(tmp_path / "ours", to="mlx-nvfp4")
        want = {name: packed[name].numpy("bf16") for name in report.repacked}
    assert len(want) == 14
    model, _ = load_model(tmp_path / "ours")
    layers = dict(model.named_modules())
    for name, values in want.items():
        layer = layers[name.removesuffix(".weight")]
        found = mx.dequantize(
            layer.weight, layer.scales, None, layer.group_size, layer.bits, layer.mode
        )
        assert (np.array(found.astype(mx.float32)) == values.astype(np.float32)).all(), name


@pytest.mark.parametrize("kind", ["qwen2_moe", "qwen3_moe"])
def test_experts(kind: str, tmp_path: Path) -> None:
    """Codes of experts are stacked, unless the model's class only stacks plain ones."""
    dense = dense_for_mlx(kind, tmp_path / "dense")
    with an.parse(dense) as plain:
        report = plain.forget(tmp_path / "ours", "mlx-4bit")
    is_plain = kind in PLAIN_EXPERTS
    assert len([name for name in report.plain if ".experts." in name]) == 24 * is_plain
    if not is_plain:  # stacked BF16 is not multiplied on a CPU
        assert mx.isfinite(logits(tmp_path / "ours")).all()
    model, _ = load_model(tmp_path / "ours")
    layers: Any = dict(model.named_modules())
    down = layers["model.layers.0.mlp.switch_mlp.down_proj"]
    assert hasattr(down, "bits") != is_plain
    with an.parse(tmp_path / "ours") as read:
        for i in range(4):
            want = read[f"model.layers.0.mlp.experts.{i}.down_proj.weight"].numpy("f32")
            found = down.weight[i]
            if not is_plain:
                parts = (down.scales[i].astype(mx.float32), down.biases[i].astype(mx.float32))
                found = mx.dequantize(found, *parts, down.group_size, down.bits)
            assert (np.array(found.astype(mx.float32)) == want).all()
