"""Each encoding that is written to a file alone is read back without a config beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import write_safetensors

NAME = "model.layers.0.mlp.up_proj.weight"
SHAPES = ((128, 128), (64, 256), (256, 512))
MLX = tuple(f"mlx-{n}bit{size}" for n in (2, 3, 4, 5, 6, 8) for size in ("", "-32", "-128"))
ENCODINGS = (
    *("fp8-block", "fp8-block-ue8m0", "fp8-block-ct", "fp8-block-1x128", "fp8-block-e5m2"),
    *("fp8-channel", "fp8-tensor", "fp8-tensor-ct", "int8", "int4", "int4-32"),
    *("int4-channel", "int4-asym", "nvfp4", "nvfp4-modelopt", "mxfp4", "mxfp4-modelopt", "mxfp8"),
    *("mxfp8-modelopt", "bnb-nf4", "bnb-nf4-nested", "bnb-fp4", "bnb-int8", *MLX),
    *("mlx-mxfp4", "mlx-nvfp4", "mlx-mxfp8", "gptq-4bit", "gptq-8bit", "awq-4bit"),
)


def written(
    folder: Path, encoding: str, shape: tuple[int, int], *, alone: bool, ending: str = "safetensors"
) -> Path:
    """A model in an encoding, by itself or in a directory."""
    values = np.random.default_rng(1).normal(0, 0.05, shape).astype(np.float32)
    source = folder / "source"
    raw = {NAME: ("F32", shape, values.tobytes())}
    path = write_safetensors(source / "model.safetensors", raw, {"format": "pt"})
    if not alone:
        config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1}
        (source / "config.json").write_text(json.dumps(config))
    out = folder / (f"alone.{ending}" if alone else "directory")
    with an.parse(path if alone else source) as model:
        model.convert(out, encoding)
    return out


@pytest.mark.sampled(13)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_is_read_alone(encoding: str, shape: tuple[int, int], tmp_path: Path) -> None:
    try:
        alone = written(tmp_path / "a", encoding, shape, alone=True)
        directory = written(tmp_path / "b", encoding, shape, alone=False)
    except an.UnsupportedError:
        pytest.skip("not a case: not of this shape")
    with an.parse(alone) as one, an.parse(directory) as other:
        assert not one.problems
        assert one[NAME].shape == shape
        assert one[NAME].numpy().tobytes() == other[NAME].numpy().tobytes()


@pytest.mark.sampled(13)
@pytest.mark.parametrize("ending", ["npz", "pth"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_is_read_alone_in_another_container(encoding: str, ending: str, tmp_path: Path) -> None:
    """Or else refused: there is no place for settings."""
    shape = (256, 512)
    directory = written(tmp_path / "b", encoding, shape, alone=False)
    if encoding in MLX:
        with pytest.raises(an.UnsupportedError, match="has no place for its bits and group size"):
            written(tmp_path / "a", encoding, shape, alone=True, ending=ending)
        return
    alone = written(tmp_path / "a", encoding, shape, alone=True, ending=ending)
    with an.parse(alone) as one, an.parse(directory) as other:
        assert not one.problems
        assert one[NAME].numpy().tobytes() == other[NAME].numpy().tobytes()


def test_what_no_settings_say(tmp_path: Path) -> None:
    values = np.ones((64, 256), np.float32)
    raw = {f"{name}.weight": ("F32", values.shape, values.tobytes()) for name in ("a", "b")}
    path = write_safetensors(tmp_path / "model.safetensors", raw, {})
    with an.parse(path) as model, pytest.raises(an.UnsupportedError, match="what is int4-32 and"):
        model.convert(tmp_path / "out.safetensors", "int4-32", overrides={"b*": "mlx-4bit"})


def test_settings_go_with_the_codes(tmp_path: Path) -> None:
    """They describe nothing any more where all is plain, or in another encoding."""
    alone = written(tmp_path, "mlx-6bit", (64, 256), alone=True)
    with an.parse(alone) as model:
        settings = json.loads(model.metadata["quantization_config"])
        assert settings == {"group_size": 64, "bits": 6, "mode": "affine"}
        model.remember(tmp_path / "plain.safetensors")
        model.convert(tmp_path / "other.safetensors", "fp8-channel")
    for name in ("plain", "other"):
        with an.parse(tmp_path / f"{name}.safetensors") as model:
            assert not model.problems
            assert "quantization_config" not in model.metadata


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"bits": {}}', "[" * 9000, '{"bits": "x"}'])
def test_settings_that_say_nothing(text: str, tmp_path: Path) -> None:
    raw = {"a.weight": ("F8_E4M3", (2, 2), bytes(4))}
    path = write_safetensors(tmp_path / "a.safetensors", raw, {"quantization_config": text})
    with an.parse(path) as model:
        assert not model.problems
