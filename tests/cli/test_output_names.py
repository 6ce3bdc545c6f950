"""Names of outputs that the user did not name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from anamnesis.base.errors import OutputError
from anamnesis.cli.output_names import Naming, OutputNames, derived_name, derived_path
from anamnesis.convert.request.form import Form

STEMS = {
    "model-fp8": "model",
    "model-FP8": "model",
    "model_fp8": "model",
    "model.fp8": "model",
    "Llama-3.1-8B-FP8-dynamic": "Llama-3.1-8B",
    "Llama-3.1-8B-Instruct-FP8-Dynamic": "Llama-3.1-8B-Instruct",
    "Qwen3-8B-FP8-block": "Qwen3-8B",
    "Mixtral-FP8-KV": "Mixtral",
    "flux1-dev-fp8-e4m3fn": "flux1-dev",
    "flux1-dev-fp8-e5m2": "flux1-dev",
    "t5xxl_fp8_e4m3fn": "t5xxl",
    "t5xxl_fp8_e4m3fn_scaled": "t5xxl",
    "wan2.2_14B_fp8_scaled": "wan2.2_14B",
    "wan-fp8-scaled": "wan",
    "DeepSeek-MXFP8": "DeepSeek",
    "gpt-oss-20b-mxfp4": "gpt-oss-20b",
    "gpt-oss-20b-MXFP4_MOE": "gpt-oss-20b",
    "Llama-NVFP4": "Llama",
    "Qwen2-GPTQ": "Qwen2",
    "Qwen2-7B-Instruct-GPTQ-Int4": "Qwen2-7B-Instruct",
    "Qwen2-7B-Instruct-GPTQ-Int8": "Qwen2-7B-Instruct",
    "Llama-2-7b-gptq-4bit-128g": "Llama-2-7b",
    "Llama-2-7b-gptq-4bit-128g-actorder": "Llama-2-7b",
    "Llama-2-awq": "Llama-2",
    "Llama-3-AWQ-INT4": "Llama-3",
    "Meta-Llama-3-bnb-4bit": "Meta-Llama-3",
    "Qwen3-4B-unsloth-bnb-4bit": "Qwen3-4B",
    "Mistral-bnb-8bit": "Mistral",
    "Mistral-nf4": "Mistral",
    "Mistral-int8": "Mistral",
    "Mistral-INT4": "Mistral",
    "Mistral-w4a16": "Mistral",
    "Mistral-quantized.w8a8": "Mistral",
    "Mistral-7B-W4A16-G128": "Mistral-7B",
    "Qwen3-4bit": "Qwen3",
    "Qwen3-MLX-4bit": "Qwen3",
    "llama-7b-4.0bpw-exl2": "llama-7b",
    "llama-7b.Q4_K_M": "llama-7b",
    "llama-7b-q8_0": "llama-7b",
    "llama-7b-IQ2_XXS": "llama-7b",
    "llama-7b-UD-Q4_K_XL": "llama-7b",
    "bitnet-TQ1_0": "bitnet",
    # Nothing to strip
    "model": "model",
    "fp8": "fp8",
    "-fp8": "-fp8",
    "fp8-experiments": "fp8-experiments",
    "Phi-3-mini-4k": "Phi-3-mini-4k",
    "Qwen3-30B-A3B": "Qwen3-30B-A3B",
    "dynamic": "dynamic",
    "Cosmos-dynamic": "Cosmos-dynamic",
}


@pytest.mark.parametrize(("stem", "stripped"), STEMS.items())
def test_known_suffixes_go(stem: str, stripped: str) -> None:
    assert derived_name(stem + ".safetensors", "bf16") == f"{stripped}-bf16.safetensors"
    assert derived_name(stem, "f16", directory=True) == f"{stripped}-f16"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.gguf", "model-f32.safetensors"),
        ("pytorch_model.bin", "pytorch_model-f32.safetensors"),
        ("weights.PTH", "weights-f32.safetensors"),
        ("net.pth.tar", "net-f32.safetensors"),
        ("Qwen2.5-7B", "Qwen2.5-7B-f32.safetensors"),
        (".safetensors", ".safetensors-f32.safetensors"),
        ("model-fp8-00001-of-00003.safetensors", "model-f32-00001-of-00003.safetensors"),
        ("model-00002-of-00003.safetensors", "model-f32-00002-of-00003.safetensors"),
    ],
)
def test_extensions_and_shard_numbers(name: str, expected: str) -> None:
    assert derived_name(name, "f32") == expected


@pytest.mark.parametrize("name", [*STEMS, "model-bf16", "bf16"])
def test_never_the_input(name: str) -> None:
    assert derived_name(name + ".safetensors", "bf16") != name + ".safetensors"
    assert derived_name(name, "bf16", directory=True) != name


@pytest.mark.parametrize(
    ("name", "naming", "expected"),
    [
        ("m-bf16.safetensors", "bf16", "m-bf16-plain.safetensors"),
        ("m-BF16.gguf", "bf16", "m-BF16.safetensors"),
        ("m-bf16-fp8.safetensors", "bf16", "m-bf16.safetensors"),
        ("m-f32-fp8.safetensors", "bf16", "m-f32-bf16.safetensors"),
        ("m-int4.safetensors", Naming("int4", keeps_dtypes=False), "m-int4-copy.safetensors"),
        ("m-f16.gguf", Naming("F16", Form("gguf"), keeps_dtypes=False), "m-F16.gguf"),
    ],
)
def test_no_word_stands_there_twice(name: str, naming: Naming | str, expected: str) -> None:
    assert derived_name(name, naming) == expected


def test_a_model_of_a_pipeline_goes_beside_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unet = tmp_path / "pipe" / "unet-fp8"
    unet.mkdir(parents=True)
    (unet / "model.safetensors").touch()
    assert derived_path(str(unet), "f16") == str(tmp_path / "pipe" / "unet-f16")
    (tmp_path / "pipe" / "model_index.json").write_text('{"unet-fp8": ["diffusers", "UNet"]}')
    assert derived_path(str(unet), "f16") == str(tmp_path / "pipe-unet-f16")
    monkeypatch.chdir(tmp_path)
    assert derived_path("pipe/unet-fp8/", "f16") == "pipe-unet-f16"
    monkeypatch.chdir(tmp_path / "pipe")
    assert derived_path("unet-fp8", "f16") == str(Path("..", "pipe-unet-f16"))
    assert derived_path(str(unet), "f16", "out") == str(Path("out") / "unet-f16")
    assert OutputNames("f16", "out", [str(unet)]).of(str(unet)) == "out"


def test_lies_beside_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Qwen3-FP8"
    folder.mkdir()
    assert derived_path(str(folder), "bf16") == str(tmp_path / "Qwen3-bf16")
    assert derived_path(f"{folder}/", "bf16") == str(tmp_path / "Qwen3-bf16")
    monkeypatch.chdir(tmp_path)
    assert derived_path("Qwen3-FP8/", "bf16") == "Qwen3-bf16"
    assert derived_path("a-fp8.safetensors", "bf16") == "a-bf16.safetensors"
    monkeypatch.chdir(folder)
    assert derived_path(".", "bf16") == str(tmp_path / "Qwen3-bf16")
    assert derived_path("./", "bf16") == str(tmp_path / "Qwen3-bf16")


def test_nothing_goes_into_the_hub_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--Qwen--Qwen3-8B-FP8" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    assert derived_path(str(snapshot), "bf16") == "Qwen3-8B-bf16"
    assert derived_path(str(snapshot), "bf16", "out") == str(Path("out", "Qwen3-8B-bf16"))
    (snapshot / "unet").mkdir()
    assert derived_path(str(snapshot / "unet"), "bf16") == "unet-bf16"
    for file in (snapshot / "a-fp8.safetensors", snapshot / "unet" / "a-fp8.safetensors"):
        assert derived_path(str(file), "bf16") == "a-bf16.safetensors"
        assert derived_path(str(file), "bf16", "out") == str(Path("out", "a-bf16.safetensors"))


def test_what_only_looks_like_the_hub_cache(tmp_path: Path) -> None:
    for folder in ("my--model/snapshots/1", "models--a--b/1", "models--a--b/snapshots"):
        model = tmp_path / folder / "x-fp8"
        path = model if folder.endswith("1") else model.parent
        path.mkdir(parents=True)
        assert Path(derived_path(str(path), "bf16")).parent == path.parent


def test_a_named_file_is_taken_as_it_is(tmp_path: Path) -> None:
    names = OutputNames("bf16", str(tmp_path / "x.safetensors"), ["x"])
    assert names.of("model-fp8.safetensors") == str(tmp_path / "x.safetensors")


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_gets_derived_names(tmp_path: Path, exists: bool) -> None:
    out = f"{tmp_path}" if exists else f"{tmp_path}/new/"
    names = OutputNames("f16", out, ["x"])
    assert names.of("in/model-fp8.safetensors") == str(Path(out, "model-f16.safetensors"))


def test_a_name_stays_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").symlink_to(".")
    for folder, name in (("out", "m"), (".", "m-plain"), ("here", "m-plain"), (None, "m-plain")):
        made = derived_path("m.safetensors", Naming(None), folder)
        assert made == os.path.join(folder or "", f"{name}.safetensors")


def test_a_directory_becomes_the_folder_that_is_named(tmp_path: Path) -> None:
    model, out = tmp_path / "model-fp8", tmp_path / "out"
    model.mkdir()
    out.mkdir()
    assert OutputNames("bf16", str(out), ["x"]).of(str(model)) == str(out)


def test_an_index_is_called_as_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "model-fp8"
    folder.mkdir()
    index = folder / "model.safetensors.index.json"
    index.touch()
    assert OutputNames("bf16", None, [str(index)]).of(str(index)) == str(tmp_path / "model-bf16")
    out = str(tmp_path / "out")
    (tmp_path / "out").mkdir()
    assert OutputNames("bf16", out, [str(index)]).of(str(index)) == out


def test_several_inputs_go_into_one_folder(tmp_path: Path) -> None:
    names = OutputNames("bf16", str(tmp_path / "out"), ["x", "y"])
    assert names.of("a-fp8.safetensors") == str(tmp_path / "out" / "a-bf16.safetensors")
    assert names.of("x/b-fp8.safetensors") == str(tmp_path / "out" / "b-bf16.safetensors")


def test_two_inputs_never_share_an_output() -> None:
    names = OutputNames("bf16", None, ["x", "y"])
    names.of("a-fp8.safetensors")
    with pytest.raises(OutputError, match=r"a_fp8\.safetensors: its output .* a-fp8\.safetensors"):
        names.of("a_fp8.safetensors")


def test_several_inputs_refuse_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"mine")
    with pytest.raises(OutputError, match="several inputs need a directory"):
        OutputNames("bf16", str(tmp_path / "x"), ["x", "y"])


def test_an_empty_output_is_no_output() -> None:
    with pytest.raises(OutputError, match="is empty"):
        OutputNames("bf16", "", ["x"])


@pytest.mark.parametrize("linked", [False, True])
def test_an_output_is_never_another_input(linked: bool, tmp_path: Path) -> None:
    first, second = tmp_path / "m-fp8.gguf", tmp_path / "m-bf16.safetensors"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    if linked:
        (tmp_path / "other.safetensors").hardlink_to(second)
    told = tmp_path / "other.safetensors" if linked else second
    names = OutputNames("bf16", None, [str(first), str(told)])
    with pytest.raises(OutputError, match=rf"is the input .*{told.name}; run it alone"):
        names.of(str(first))


def test_outputs_that_are_one_file(tmp_path: Path) -> None:
    """As on a file system that ignores case: what one run wrote is there under both names."""
    names = OutputNames("bf16", str(tmp_path), ["a-fp8.gguf", "A-fp8.gguf"])
    first = Path(names.of("a-fp8.gguf"))
    first.write_bytes(b"1")
    if not (tmp_path / "A-bf16.safetensors").exists():
        (tmp_path / "A-bf16.safetensors").hardlink_to(first)
    with pytest.raises(OutputError, match=r"is the output of a-fp8\.gguf, too"):
        names.of("A-fp8.gguf")


@pytest.mark.parametrize("end", ["", "-x", "-"])
def test_many_words_take_no_time(end: str) -> None:
    """They could be taken for methods or for qualifiers: 2**20,000 ways to read them."""
    start = time.thread_time()
    name = derived_name("m-fp8" + "-scaled" * 20_000 + end, "bf16", directory=True)
    assert time.thread_time() - start < 5
    assert (name == "m-bf16") == (end == "")


def test_a_file_that_is_cut_becomes_a_folder(tmp_path: Path) -> None:
    cut = Naming("bf16", Form(is_cut=True))
    assert derived_name("model-fp8.safetensors", cut) == "model-bf16"
    assert derived_name("model-fp8", cut, directory=True) == "model-bf16"
    assert derived_name("model.gguf", Naming("F16", Form("gguf", is_cut=True))) == "model-F16.gguf"
    for out in (tmp_path, tmp_path / "new", tmp_path / "new.safetensors"):
        names = OutputNames(cut, str(out), ["model-fp8.safetensors"])
        assert names.of("model-fp8.safetensors") == str(out)
    several = OutputNames(cut, str(tmp_path), ["a-fp8.safetensors", "b-fp8.safetensors"])
    assert several.of("b-fp8.safetensors") == str(tmp_path / "b-bf16")
