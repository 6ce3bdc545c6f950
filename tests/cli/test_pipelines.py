"""Pipelines of diffusers: each model in its folder, the rest beside it."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from helpers.cli_runs import run
from helpers.handmade import Entry, write_safetensors

RNG = np.random.default_rng(2)


def bf16(*shape: int) -> Entry:
    return "BF16", shape, RNG.normal(size=shape).astype(ml_dtypes.bfloat16).tobytes()


UNET: dict[str, Entry] = {"down.0.attn.to_q.weight": bf16(128, 128), "norm.weight": bf16(8)}
VAE: dict[str, Entry] = {"encoder.conv_in.weight": bf16(4, 3, 3, 3)}
TEXT: dict[str, Entry] = {"text_model.layers.0.q_proj.weight": bf16(128, 256)}
INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "safety_checker": [None, None],
}
FILES = {
    "model_index.json": json.dumps(INDEX),
    "README.md": "a pipeline",
    "tokenizer/vocab.json": "{}",
    "scheduler/scheduler_config.json": "{}",
    "unet/config.json": '{"_class_name": "UNet2DConditionModel"}',
    "vae/config.json": '{"_class_name": "AutoencoderKL"}',
    "text_encoder/config.json": '{"torch_dtype": "bfloat16"}',
}
WEIGHTS = {
    "unet/diffusion_pytorch_model.safetensors": UNET,
    "vae/diffusion_pytorch_model.safetensors": VAE,
    "text_encoder/model.safetensors": TEXT,
}


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, tensors in WEIGHTS.items():
        write_safetensors(Path("pipe") / name, tensors, {"format": "pt"})
    for name, text in FILES.items():
        path = Path("pipe") / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Path("pipe")


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_convert_keeps_all_names(pipe: Path) -> None:
    done = run("convert", pipe, "--to", "f16", "--cast-all", "-o", "out")
    assert "out: copied 4 other files" in done.stdout
    assert files(Path("out")) == {*FILES, *WEIGHTS}
    for name in ("model_index.json", "tokenizer/vocab.json", "README.md"):
        assert Path("out", name).read_bytes() == (pipe / name).read_bytes()
    with an.parse(Path("out/unet")) as model:
        assert {tensor.dtype.name for tensor in model.stored.values()} == {"F16"}
    assert json.loads(Path("out/text_encoder/config.json").read_text())["torch_dtype"] == "float16"
    config = json.loads(Path("out/unet/config.json").read_text())
    assert config == {"_class_name": "UNet2DConditionModel"}  # diffusers refuses a dtype there


def test_forget_and_back(pipe: Path) -> None:
    run("forget", pipe, "--to", "fp8-block", "-o", "small")
    assert files(Path("small")) == {*FILES, *WEIGHTS}
    for name in ("unet", "text_encoder"):
        config = json.loads(Path("small", name, "config.json").read_text())
        assert config["quantization_config"]["quant_method"] == "fp8"
    assert "quantization_config" not in Path("small/vae/config.json").read_text()
    run("remember", "small", "-o", "back")
    assert files(Path("back")) == {*FILES, *WEIGHTS}
    assert "quantization_config" not in Path("back/unet/config.json").read_text()
    vae = "vae/diffusion_pytorch_model.safetensors"
    with an.parse(Path("back", vae)) as model, an.parse(pipe / vae) as first:
        for name in first:
            assert np.array_equal(model[name].numpy(), first[name].numpy())


def test_each_model_is_shown(pipe: Path) -> None:
    said = run("inspect", pipe).stdout
    assert [name for name in ("unet", "vae", "text_encoder") if f"pipe/{name}\n" in said]
    told = json.loads(run("plan", pipe, "--to", "f16", "--json").stdout)
    assert [Path(one["path"]).name for one in told] == ["text_encoder", "unet", "vae"]


def test_a_checkpoint_beside_the_folders_is_left_out(pipe: Path) -> None:
    write_safetensors(pipe / "sd-v1.safetensors", UNET)
    done = run("convert", pipe, "--to", "f16", "-o", "out")
    said = "left out (a checkpoint in one file; convert it by itself): sd-v1.safetensors"
    assert done.stderr == f"amn: warning: pipe: {said}\n"
    assert not Path("out/sd-v1.safetensors").exists()
    quiet = run("convert", pipe, "--to", "f16", "-o", "out", "--force", "-q")
    assert (quiet.stdout, quiet.stderr) == ("", done.stderr)
    told = json.loads(run("convert", pipe, "--to", "f16", "-o", "out", "--force", "--json").stdout)
    why = "a checkpoint in one file; convert it by itself"
    assert told["dropped"] == [{"name": "sd-v1.safetensors", "reason": why}]
    assert told["copied"][-1] == "model_index.json"


def make_odd(pipe: Path) -> None:
    """Put beside the components what pipelines on the hub have, and what hostile ones have."""
    shutil.copytree(pipe / "vae", pipe / "vae_1_0")
    write_safetensors(pipe / "lora.safetensors", {"lora_unet_x.lora_down.weight": bf16(4, 8)})
    (pipe / "unet.onnx").write_bytes(b"onnx")
    (pipe / "broken.ckpt").write_bytes(b"?")
    (pipe / "loose").mkdir()
    write_safetensors(pipe / "loose" / "x.safetensors", VAE)
    (pipe / "fifo").mkdir()
    os.mkfifo(pipe / "fifo" / "model.safetensors")
    (pipe / "text_encoder_2").symlink_to("text_encoder")
    (pipe / "self").symlink_to(".")
    Path("secret").mkdir()
    write_safetensors(Path("secret/model.safetensors"), UNET)
    Path("secret/config.json").write_text("{}")
    (pipe / "away").symlink_to(Path("secret").resolve())
    (pipe / "LICENSE").symlink_to(Path("secret/config.json").resolve())


LEFT = {
    "LICENSE": "a link that leads out of the directory",
    "away": "a link to a folder",
    "broken.ckpt": "weights that cannot be read: ",
    "fifo/model.safetensors": "not a regular file",
    "loose/x.safetensors": "a checkpoint in one file; convert it by itself",
    "self": "a link to a folder",
    "unet.onnx": "weights in another program's format",
}


def check_odd(report: an.PipelineReport) -> None:
    assert set(report.models) == {"text_encoder", "text_encoder_2", "unet", "vae", "vae_1_0"}
    assert "lora.safetensors" in report.copied
    left = {dropped.name: dropped.reason for dropped in report.dropped}
    assert left.keys() == LEFT.keys()
    assert all(left[name].startswith(why) for name, why in LEFT.items())
    weights = {name for name in files(Path("out")) if name.endswith(".safetensors")}
    copies = {"vae_1_0/diffusion_pytorch_model.safetensors", "text_encoder_2/model.safetensors"}
    assert weights == {*WEIGHTS, *copies, "lora.safetensors"}


def test_every_file_of_weights_is_accounted_for(pipe: Path) -> None:
    make_odd(pipe)
    report = an.convert(pipe, "out", "f16", cast_all=True)
    assert isinstance(report, an.PipelineReport)
    check_odd(report)
    assert report.n_out == sum(one.n_out for one in report.models.values()) == 6
    assert "left out (a link to a folder): away, self" in str(report)
    done = run("convert", pipe, "--to", "f16", "--cast-all", "-o", "again", "--json")
    told = json.loads(done.stdout)
    assert told["dropped"] == list(report.to_dict()["dropped"])
    assert files(Path("again")) == files(Path("out"))
    for name in files(Path("out")):
        assert Path("again", name).read_bytes() == Path("out", name).read_bytes()
    assert all(name in done.stderr for name in LEFT)


def test_python_does_what_the_command_does(pipe: Path) -> None:
    run("forget", pipe, "--to", "fp8-block", "-o", "small")
    report = an.forget(pipe, "again", "fp8-block")
    assert report.n_encoded == 2
    an.remember("small", "back")
    run("remember", "again", "-o", "again_back")
    for one, other in (("small", "again"), ("back", "again_back")):
        assert files(Path(one)) == files(Path(other))
        for name in files(Path(one)):
            assert Path(one, name).read_bytes() == Path(other, name).read_bytes()
    with pytest.raises(an.ParseError, match=r"is a pipeline.*name one of them: text_"):
        an.parse(pipe)
    with pytest.raises(an.OutputError, match="whose models stay folders"):
        an.convert(pipe, "x.gguf", "gguf")
    with pytest.raises(an.OutputError, match="becomes a directory"):
        an.convert(pipe, io.BytesIO())


def test_a_variant_of_a_pipeline(pipe: Path) -> None:
    twin = "unet/diffusion_pytorch_model.fp16.safetensors"
    an.convert(pipe / "unet", "half.safetensors", "f16", cast_all=True)
    Path("half.safetensors").rename(pipe / twin)
    report = an.convert(pipe, "plain")
    assert [left.name for left in report.dropped] == [twin]
    done = run("convert", pipe, "--to", "safetensors", "-o", "out", "--variant", "fp16", "-q")
    assert "no weights of variant 'fp16', so the plain ones: text_encoder, vae" in done.stderr
    assert files(Path("out")) == {*FILES, *WEIGHTS}
    for folder, dtype in (("unet", "F16"), ("vae", "BF16")):
        with an.parse(Path("out", folder)) as model:
            assert {tensor.dtype.name for tensor in model.stored.values()} == {dtype}
    none = run("convert", pipe, "--to", "f16", "-o", "none", "--variant", "int8", code=1)
    assert "no model has weights of variant 'int8'" in none.stderr


def test_what_is_refused(pipe: Path) -> None:
    assert "whose models stay folders" in run("convert", pipe, "--to", "gguf", code=1).stderr
    assert "is the input" in run("convert", pipe, "--to", "f16", "-o", pipe, code=1).stderr
    assert "lies inside" in run("convert", pipe, "--to", "f16", "-o", pipe / "x", code=1).stderr
    assert "takes one model" in run("convert", pipe, "--to", "f16", "-o", "-", code=2).stderr
    run("convert", pipe, "--to", "f16", "-o", "out")
    again = run("convert", pipe, "--to", "f16", "-o", "out", code=1)
    assert "exists; --force replaces it" in again.stderr
    run("convert", pipe, "--to", "f16", "-o", "out", "--force")
    write_safetensors(pipe / "unet/other.safetensors", UNET)
    both = run("convert", pipe, "--to", "f16", "-o", "new", code=1)
    assert "is in both" in both.stderr
    assert not Path("new/model_index.json").exists()


@pytest.fixture
def zoo(pipe: Path) -> Path:
    """Two pipelines, a model in a folder, and lone files; one index is broken."""
    root = Path("zoo")
    shutil.copytree(pipe, root / "sd" / "one")
    shutil.copytree(pipe, root / "sd" / "two")
    shutil.copytree(pipe / "text_encoder", root / "clip")
    write_safetensors(root / "loras" / "a.safetensors", UNET)
    return root


def test_each_pipeline_below_a_folder_is_one_input(zoo: Path) -> None:
    done = run("convert", "-r", zoo, "--to", "f16", "-o", "out")
    assert "\n4 of 4 converted\n" in done.stdout
    assert done.stdout.count(": copied 4 other files") == 2
    for name in ("sd/one-f16", "sd/two-f16"):
        assert files(Path("out", name)) == {*FILES, *WEIGHTS}
    assert files(Path("out")) >= {"loras/a-f16.safetensors", "clip-f16/model.safetensors"}
    again = run("convert", "-r", zoo, "--to", "f16", "-o", "out", "--skip-existing")
    assert "\n0 of 4 converted, 4 skipped\n" in again.stdout


def test_outputs_beside_them_are_left_out(zoo: Path) -> None:
    run("remember", "-r", zoo, "--to", "f16", "--cast-all")
    assert files(zoo / "sd" / "one-f16") == {*FILES, *WEIGHTS}
    again = run("remember", "-r", zoo, "--to", "f16", "--cast-all", "--skip-existing")
    assert "left out, as outputs of other inputs: " in again.stderr
    assert "4 skipped" in again.stdout


def test_a_pipeline_that_fails_is_one_failure(zoo: Path) -> None:
    (zoo / "sd" / "two" / "model_index.json").write_text("{")
    unet = zoo / "sd" / "one" / "unet" / "diffusion_pytorch_model.safetensors"
    unet.write_bytes(unet.read_bytes()[:-1])
    done = run("convert", "-r", zoo, "--to", "f16", "-o", "out", code=1)
    assert "\n2 of 4 converted, 2 failed:\n" in done.stdout
    assert done.stderr.count("amn: error: ") == done.stderr.count("\n") == 2
    assert not Path("out/sd/one-f16/model_index.json").exists()
    to_gguf = run("convert", "-r", zoo, "--to", "gguf", "-o", "new", code=1)
    assert "whose models stay folders" in to_gguf.stderr


def test_a_pipeline_in_json(zoo: Path) -> None:
    done = run("forget", "-r", zoo, "--to", "fp8-block", "-o", "out", "--json")
    told = {Path(one["path"]).name: one for one in json.loads(done.stdout)}
    assert told.keys() == {"one", "two", "clip", "a.safetensors"}
    assert told["one"]["output"] == str(Path("out", "sd", "one-fp8"))
    assert told["one"].keys() == {"path", "output", "models", "copied", "dropped"}
    models = told["one"]["models"]
    assert [Path(model["path"]).name for model in models] == ["text_encoder", "unet", "vae"]
    assert [model["n_encoded"] for model in models] == [1, 1, 0]
