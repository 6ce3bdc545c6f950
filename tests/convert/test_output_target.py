"""What an output's name says where no target is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.convert.request.targets import output_target


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    an.save({"a.weight": np.ones((32, 32), np.float32)}, "in.safetensors")
    (tmp_path / "there").mkdir()
    return tmp_path / "in.safetensors"


@pytest.mark.parametrize(
    ("out", "of_file", "of_gguf"),
    [
        ("x.gguf", "gguf None", "gguf None"),
        ("x.NPZ", "npz None", "npz None"),
        ("x.bin", "torch None", "torch None"),
        ("x.safetensors", "safetensors None", "safetensors None"),
        ("x", "safetensors None", "None BF16"),
        ("x/", "safetensors None", "None BF16"),
        ("there", "safetensors None", "None BF16"),
        ("./gguf", "safetensors None", "None BF16"),
        ("Qwen2.5-7b", "safetensors None", "None BF16"),
    ],
)
def test_asked_by_name(source: Path, out: str, of_file: str, of_gguf: str) -> None:
    for of, wanted in ((False, of_file), (True, of_gguf)):
        found = output_target(out, of_gguf=of)
        assert f"{found.container} {found.dtype}" == wanted
    assert output_target(out, of_gguf=True, dtype="f16").dtype is None


@pytest.mark.parametrize("word", ["gguf", "GGUF", "q4_k_m", "awq", "fp8-block", "npz", "bf16"])
def test_a_word_is_no_name(source: Path, word: str) -> None:
    with pytest.raises(an.OutputError, match=rf"put to='{word}' beside a name, such as model\."):
        an.convert(source, word)
    assert sorted(path.name for path in source.parent.iterdir()) == ["in.safetensors", "there"]


def test_what_others_write(source: Path) -> None:
    with pytest.raises(an.OutputError, match="onnx files cannot be written"):
        an.convert(source, "x.onnx")


def test_a_name_is_no_target(source: Path) -> None:
    with pytest.raises(ValueError, match="'x.gguf': it is the name of an output"):
        an.convert(source, "gguf", "x.gguf")


def test_converted_by_name(source: Path) -> None:
    for out in ("x.gguf", "x.npz", "x.pth", "x.safetensors"):
        with an.parse(source) as model:
            assert model.convert(out).format == an.detect_format(out)
        assert an.convert(source, out, force=True).format == an.detect_format(out)
