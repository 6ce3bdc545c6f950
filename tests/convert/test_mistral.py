"""FP8 under Mistral's own names, with a params.json and no config.json: codes moved there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.handmade import Entry, write_safetensors
from helpers.models import Stop, stopping
from helpers.repacks import entry

MISTRAL = "fp8-tensor-mistral"
RNG = np.random.default_rng(30)
SHAPES = {
    **{f"attention.w{letter}": (64, 64) for letter in "qkvo"},
    "feed_forward.w1": (96, 64),
    "feed_forward.w2": (64, 96),
    "feed_forward.w3": (96, 64),
}
CODED = [f"layers.{i}.{name}" for i in range(2) for name in SHAPES]
DYNAMIC = {"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}


def bf16(*shape: int) -> Entry:
    return entry("BF16", RNG.normal(size=shape).astype(ml_dtypes.bfloat16))


def coded(module: str, shape: tuple[int, ...], *, is_static: bool) -> dict[str, Entry]:
    """Every finite code, and a scale; one of activations, too, where that is static."""
    codes = RNG.permutation(np.resize(np.r_[0:127, 128:255], shape).astype(np.uint8).reshape(-1))
    scale = RNG.uniform(1e-4, 1e-3, ()).astype(ml_dtypes.bfloat16)
    found = {
        f"{module}.weight": ("F8_E4M3", shape, codes.tobytes()),
        f"{module}.qscale_weight": entry("BF16", scale),
    }
    return {**found, **({f"{module}.qscale_act": entry("BF16", scale)} if is_static else {})}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model as Mistral publishes it."""
    return mistrals(tmp_path / "in", is_static=False)


def mistrals(folder: Path, *, is_static: bool, **more: Entry) -> Path:
    tensors = {
        "tok_embeddings.weight": bf16(128, 64),
        "output.weight": bf16(128, 64),
        "norm.weight": bf16(64),
        "vision_encoder.transformer.layers.0.attention.wq.weight": bf16(64, 64),
        **{f"layers.{i}.attention_norm.weight": bf16(64) for i in range(2)},
    }
    for name in CODED:
        shape = SHAPES[name.split(".", 2)[2]]
        tensors |= coded(name, shape, is_static=is_static)
    told = {**DYNAMIC, **({"qscheme_act": "TENSOR"} if is_static else {})}
    sizes = {"dim": 64, "n_layers": 2, "head_dim": 16, "hidden_dim": 96, "n_heads": 4}
    params = {**sizes, "n_kv_heads": 4, "norm_eps": 1e-5, "vocab_size": 128, "quantization": told}
    path = folder / "consolidated.safetensors"
    write_safetensors(path, {**tensors, **more})
    with an.parse(path) as model:  # in the order in which files are written here
        model.convert(
            folder / "own.safetensors", overrides={"*": "keep"}, metadata={"format": "pt"}
        )
    (folder / "own.safetensors").replace(path)
    (folder / "params.json").write_text(json.dumps(params, indent=2, ensure_ascii=False) + "\n")
    (folder / "tekken.json").write_text("{}")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("way", ["fp8-tensor-ct", "fp8-tensor", "fp8-channel", "fp8-block-ct"])
def test_there_and_back_to_the_same_bytes(way: str, source: Path, tmp_path: Path) -> None:
    with an.parse(source) as model:
        report = model.convert(tmp_path / "there", way, include="layers.*")
    assert len(report.repacked) == 14
    assert "quantization" not in json.loads((tmp_path / "there" / "params.json").read_text())
    with an.parse(tmp_path / "there") as model:
        report = model.convert(tmp_path / "back", MISTRAL, lossless=True, verify=True)
    assert set(report.repacked) == {f"{name}.weight" for name in CODED}
    there, back = files(source), files(tmp_path / "back")
    if way != "fp8-tensor":  # whose scales are F32
        assert back == there
        return
    assert json.loads(back["params.json"]) == json.loads(there["params.json"])
    with an.parse(source) as before, an.parse(tmp_path / "back") as after:
        assert before.keys() == after.keys()
        for name in before:
            one, other = (model[name].numpy("f32") for model in (before, after))
            assert (one.view("u4") == other.view("u4")).all()


def test_scales_of_activations_are_dropped_and_params_json_says_so(tmp_path: Path) -> None:
    source = mistrals(tmp_path / "in", is_static=True)
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out", MISTRAL, lossless=True)
    assert sorted(d.name for d in report.dropped) == sorted(f"{name}.qscale_act" for name in CODED)
    assert len(report.unchanged) == 14
    before, after = (
        json.loads((at / "params.json").read_text()) for at in (source, tmp_path / "out")
    )
    assert after == {**before, "quantization": DYNAMIC}


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """llama.cpp's class of Mistral's own files, of the copy in AutoRound.

    AutoRound's packages import far more, so that they are empty here.
    """
    monkeypatch.setenv("NO_LOCAL_GGUF", "1")
    root = Path(str(distribution("auto-round").locate_file("auto_round")))
    before = set(sys.modules)
    for name in ("", ".utils", ".export", ".export.export_to_gguf"):
        package = ModuleType(f"auto_round{name}")
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        monkeypatch.setitem(sys.modules, package.__name__, package)
    conversion = "auto_round.export.export_to_gguf.conversion"
    other: Any = ModuleType(f"{conversion}.deepseek")  # which gguf-py's release is too old for
    other.DeepseekV2Model = object
    monkeypatch.setitem(sys.modules, other.__name__, other)
    yield import_module(f"{conversion}.mistral").MistralModel
    for name in [one for one in set(sys.modules) - before if one.startswith("auto_round")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.oracle
@pytest.mark.against("auto_round")
def test_llama_cpps_converter_reads_it(source: Path, tmp_path: Path, converter: Any) -> None:
    """By what params.json says; each value is what it was, to the bit."""
    with an.parse(source) as model:
        model.convert(tmp_path / "there", "fp8-channel", include="layers.*")
    with an.parse(tmp_path / "there") as model:
        model.convert(tmp_path / "back", MISTRAL)
    made = object.__new__(converter)
    made.dir_model = tmp_path / "back"
    made.lazy = made._fp8_as_q8 = made._is_nvfp4 = False
    made.hparams = made.load_hparams(made.dir_model, is_mistral_format=True)
    made.model_tensors = made.index_tensors()
    made.dequant_model()
    with an.parse(source) as model:
        text = {name for name in model if not name.startswith("vision_encoder.")}
        assert made.model_tensors.keys() == text
        for name, tensor in made.model_tensors.items():
            found = tensor().float().numpy()
            assert (found.view("u4") == model[name].numpy("f32").view("u4")).all(), name


@pytest.mark.parametrize(
    ("config", "has"), [("config.json", "has config.json"), (None, "has no params.json")]
)
def test_other_directories_are_refused(
    config: str | None, has: str, source: Path, tmp_path: Path
) -> None:
    if config is None:
        (source / "params.json").unlink()
    else:
        (source / config).write_text('{"model_type": "mistral"}')
    for verb in ("plan", "convert"):
        out = ("-o", str(tmp_path / "out")) if verb == "convert" else ()
        ran = CliRunner().invoke(cli, [verb, str(source), "--to", MISTRAL, *out])
        assert ran.exit_code == 1
        (line,) = [line for line in ran.stderr.splitlines() if "error" in line]
        assert f"this one {has}; fp8-tensor-ct has the same codes for config.json" in line
    assert not (tmp_path / "out").exists()


def test_a_layer_that_programs_expect_in_codes_is_not_left_plain(
    source: Path, tmp_path: Path
) -> None:
    """The tower may be: it is plain in Mistral's own files."""
    with an.parse(source) as model, pytest.raises(an.UnsupportedError) as refused:
        model.convert(tmp_path / "out", MISTRAL, exclude="*.feed_forward.w2.*")
    assert "params.json cannot say that 'layers.0.feed_forward.w2' is not" in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_head_in_codes_is_written_as_values(tmp_path: Path) -> None:
    """And no codes of it are moved."""
    head = coded("output", (128, 64), is_static=False)
    source = mistrals(tmp_path / "in", is_static=False, **head)
    with an.parse(source) as model:
        with pytest.raises(an.UnsupportedError, match="has embeddings and the head plain; exclude"):
            model.convert(tmp_path / "out", MISTRAL)
        model.convert(tmp_path / "out", MISTRAL, exclude="output.weight")
        want = model["output.weight"].numpy("bf16")
    with an.parse(tmp_path / "out") as model:
        assert not model["output.weight"].is_quantized
        assert (model["output.weight"].numpy("bf16") == want).all()


def test_plan_and_listing_say_who_loads_it(source: Path) -> None:
    runner = CliRunner()
    planned = runner.invoke(cli, ["plan", str(source), "--to", MISTRAL, "--json"])
    told = {one["program"]: one["outcome"] for one in json.loads(planned.stdout)["loads"]}
    assert told == {"vLLM": "loads", "transformers": "refuses"}
    listed = runner.invoke(cli, ["convert", "--list"]).stdout
    (row,) = [line for line in listed.splitlines() if line.startswith(MISTRAL)]
    assert row.split() == [MISTRAL, "safetensors", "vLLM", "*"]
    lone = source / "consolidated.safetensors"
    alone = runner.invoke(cli, ["plan", str(lone), "--to", MISTRAL]).stdout
    assert "no params.json tells its codes" in alone


@pytest.mark.parametrize("to", [MISTRAL, "bf16"])
def test_shards_are_called_as_vllm_looks_for_them(to: str, source: Path, tmp_path: Path) -> None:
    with an.parse(source) as model:
        model.convert(tmp_path / "out", to, max_shard_size=30_000)
    names = {name for name in files(tmp_path / "out") if name.endswith(".safetensors")}
    assert len(names) > 2
    assert all(fnmatch(name, "consolidated-?????-of-?????.safetensors") for name in names)
    index = json.loads((tmp_path / "out" / "consolidated.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == names
    with an.parse(source) as before, an.parse(tmp_path / "out") as after:
        assert set(before) == set(after)


def test_a_run_that_was_stopped_is_resumed_to_the_same_bytes(source: Path, tmp_path: Path) -> None:
    with an.parse(source) as model:
        model.convert(tmp_path / "there", "fp8-channel", include="layers.*")
    with an.parse(tmp_path / "there") as model:
        with pytest.raises(Stop):
            model.convert(tmp_path / "back", MISTRAL, threads=1, progress=stopping(30_000, Stop()))
        assert not (tmp_path / "back" / "params.json").exists()
        model.convert(tmp_path / "back", MISTRAL, resume=True)
    assert files(tmp_path / "back") == files(source)
