"""Every encoding that has a name: written, read back, resumed, and the same however it is cut."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.convert.request import targets
from anamnesis.schemes import encodings
from anamnesis.schemes.core.bands import cut_into
from helpers.handmade import write_index, write_safetensors

# All but those of stacks of experts, which this model has not.
NAMES = [name for name in encodings.ENCODINGS if not name.startswith(("toy", "gptoss"))]


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """Layers as transformers names them, some of which no library quantises."""
    rng = np.random.default_rng(11)

    def floats(*shape: int, kind: str = "BF16") -> tuple[str, tuple[int, ...], bytes]:
        dtype: Any = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}[kind]
        return kind, shape, rng.normal(size=shape).astype(dtype).tobytes()

    tensors = {
        "model.embed_tokens.weight": floats(256, 128),
        "model.layers.0.q_proj.weight": floats(256, 384),
        "model.layers.0.k_proj.weight": floats(128, 256, kind="F32"),
        "model.layers.0.v_proj.weight": floats(384, 128, kind="F16"),
        "model.norm.weight": floats(128),
        "lm_head.weight": floats(256, 128),
    }
    root = tmp_path / "in"
    write_safetensors(root / "model.safetensors", tensors, {"format": "pt"})
    write_index(root, dict.fromkeys(tensors, "model.safetensors"))
    (root / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    return root


def files(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in root.iterdir()}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES)
def test_named_encodings(name: str, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with an.parse(linear) as model:
        report = model.forget(out, name, verify=True, threads=2)
        assert report.encoding == targets.encoding(name).id
        tables = {"model.embed_tokens.weight", "lm_head.weight"}  # which MLX has quantised as well
        is_mlx = name.startswith("mlx")
        assert set(report.plain) == {"model.norm.weight"} | (set() if is_mlx else tables)
        assert report.loss is not None
        for weight, loss in report.loss.weights.items():
            assert loss.snr_db is not None
            is_4bit = name.endswith("4bit") or name.startswith(
                (
                    "int4",
                    "bnb-nf4",
                    "bnb-fp4",
                    "nvfp4",
                    "mxfp4",
                    "mlx-nvfp4",
                    "mlx-mxfp4",
                    "comfy-nvfp4",
                    "comfy-convrot-w4",
                )
            )
            least = {"mlx-2bit": 6, "mlx-3bit": 13, "mlx-5bit": 26}.get(name, 28)
            assert loss.snr_db > (15 if is_4bit else least), (weight, loss.snr_db)
        with cut_into(1 << 20):
            model.forget(tmp_path / "again", name, threads=1)
        assert files(tmp_path / "again") == files(out)
        stream = io.BytesIO()
        model.forget(stream, name)
        model.forget(tmp_path / "one.safetensors", name)
        assert stream.getvalue() == (tmp_path / "one.safetensors").read_bytes()
    config = json.loads((out / "config.json").read_bytes())
    left = config.get("quantization_config", {})
    if name.startswith("comfy"):  # a marker beside each layer says it
        assert not left
        left = {"ignore": ["lm_head"]}
    if is_mlx:
        assert config["quantization"] == left
        left = {"ignore": ["lm_head"]}  # it names none
    if name.startswith("gptq"):  # it leaves what is not in a block that repeats
        left = {"ignore": ["lm_head"]}
    keys = ("ignore", "modules_to_not_convert", "llm_int8_skip_modules")
    assert any("lm_head" in left.get(key, ()) for key in keys)
    with an.parse(out) as written, an.parse(linear) as model:
        assert not written.problems
        assert set(written) == set(model)
        for weight in report.loss.weights:
            assert written[weight].is_quantized
            error = np.abs(written[weight].numpy("f32") - model[weight].numpy("f32"))
            loss = report.loss.weights[weight]
            if "convrot" in name:  # its errors are those of rotated numbers, whose squares add up
                assert np.square(error).sum() == pytest.approx(loss.squared, rel=1e-5)
            else:
                assert error.max() == pytest.approx(loss.largest, rel=1e-6)


# MLX's widths and groups may have the same shapes: its config tells them apart.
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("mlx")])
def test_a_lone_file_needs_no_config(name: str, linear: Path, tmp_path: Path) -> None:
    """It is read to the bit as the directory is, whose config says what it is in."""
    with an.parse(linear) as model:
        model.forget(tmp_path / "out", name)
        model.forget(tmp_path / "one.safetensors", name)
    with an.parse(tmp_path / "out") as told, an.parse(tmp_path / "one.safetensors") as alone:
        for weight in told:
            assert alone[weight].scheme == told[weight].scheme
            assert alone[weight].numpy("f32").tobytes() == told[weight].numpy("f32").tobytes()
