"""`comfy.gguf.orig_shape.*`: ComfyUI-GGUF's tensors in rows of 256 values, and their own shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import anamnesis as an

KEY = "comfy.gguf.orig_shape.x.weight"
VALUES = np.random.default_rng(0).standard_normal((24, 256), np.float32)


def write(path: Path, kind: str, shape: Any) -> Path:
    writer = gguf.GGUFWriter(path, "sd1")
    if isinstance(shape, str):
        writer.add_string(KEY, shape)
    else:
        writer.add_array(KEY, shape)
    quant = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("x.weight", gguf.quantize(VALUES, quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def expected(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    quant = gguf.GGMLQuantizationType[kind]
    return gguf.dequantize(gguf.quantize(VALUES, quant), quant).reshape(shape)


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q5_0"])
@pytest.mark.parametrize("shape", [(96, 64), (512, 12), (64, 4, 2, 3, 4), (6144,)])
def test_weights_have_their_own_shape(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", kind, list(shape))
    with an.parse(path) as model:
        assert model["x.weight"].shape == shape
        assert np.array_equal(model["x.weight"].numpy(), expected(kind, shape))
    an.remember(path, tmp_path / "x.safetensors", "f32", cast_all=True)
    with an.parse(tmp_path / "x.safetensors") as model:
        assert model.stored["x.weight"].shape == shape
        assert np.array_equal(model["x.weight"].numpy(), expected(kind, shape))


@pytest.mark.parametrize("to", ["gguf", "gguf-f16", "gguf-q4_k"])
def test_a_gguf_stores_them_as_they_are(to: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", "Q8_0", [96, 64])
    an.convert(path, tmp_path / "y.gguf", to)
    with an.parse(tmp_path / "y.gguf") as model:
        assert model.stored["x.weight"].shape == (24, 256)
        assert model["x.weight"].shape == (96, 64)
        assert model.metadata[KEY] == [96, 64]


@pytest.mark.parametrize("shape", [[96, 63], [-96, -64], [1.5, 4096.0], "96", [1] * 9, [2**30]])
def test_a_shape_of_other_values_is_refused(shape: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", "Q8_0", shape)
    with pytest.raises(an.ParseError, match=r"x\.gguf: comfy\.gguf\.orig_shape\.x\.weight must be"):
        an.parse(path)
