"""What an output's name says where no target is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.cli.demo_models import DEMOS
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
    with pytest.raises(ValueError, match=r"'x\.gguf': it is the name of an output"):
        an.convert(source, "gguf", "x.gguf")


def test_converted_by_name(source: Path) -> None:
    for out in ("x.gguf", "x.npz", "x.pth", "x.safetensors"):
        with an.parse(source) as model:
            assert model.convert(out).format == an.detect_format(out)
        assert an.convert(source, out, force=True).format == an.detect_format(out)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    for path, raw in DEMOS["llama"].make().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(raw)
    an.convert(folder / "llama-tiny", folder / "m.gguf", "gguf-q8_0")
    return folder / "m.gguf"


@pytest.mark.parametrize("out", ["hf", "hf/", "there", "there/"])
@pytest.mark.parametrize(
    ("to", "options", "dtypes"),
    [
        (None, {}, {"BF16"}),
        ("bf16", {}, {"BF16"}),
        (None, {"dtype": "f16"}, {"F16"}),
        ("safetensors", {}, {"BF16", "F32"}),
    ],
)
def test_a_gguf_becomes_a_directory(
    source: Path, gguf: Path, out: str, to: str | None, options: Any, dtypes: set[str]
) -> None:
    an.convert(gguf, out, to, **options)
    made = {path.name for path in Path(out).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= made
    with an.parse(out) as model:
        assert "model.embed_tokens.weight" in model
        assert {str(part.dtype) for part in model.stored.values()} == dtypes


def test_remembered_too(source: Path, gguf: Path) -> None:
    an.remember(gguf, "hf")
    assert (source.parent / "hf" / "config.json").exists()
    an.convert(gguf, "kept", names="keep")
    assert an.detect_format("kept") == "safetensors"
    with an.parse("kept") as kept:  # under the names that it has, and in its dtypes
        assert {str(part.dtype) for part in kept.stored.values()} == {"BF16", "F32"}


@pytest.mark.oracle
@pytest.mark.slow
def test_transformers_loads_it(source: Path, gguf: Path) -> None:
    import transformers

    an.convert(gguf, "hf")
    model, told = transformers.AutoModelForCausalLM.from_pretrained("hf", output_loading_info=True)
    assert str(model.dtype) == "torch.bfloat16"
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert transformers.AutoTokenizer.from_pretrained("hf")("a b")["input_ids"]


@pytest.mark.parametrize("to", [None, "f16", "gguf"])
def test_an_empty_name_is_refused(source: Path, to: str | None) -> None:
    with pytest.raises(an.OutputError, match="the output's name is empty"):
        an.convert(source, "", to)


@pytest.mark.parametrize("word", ["", " ", "-"])
def test_an_empty_word_is_no_target(source: Path, word: str) -> None:
    with pytest.raises(ValueError, match="there is no target"):
        an.convert(source, "out", word)
    assert not Path("out").exists()
