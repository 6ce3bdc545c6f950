"""Models of Ollama's MLX engine: a manifest of tensors, each a blob of safetensors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from anamnesis.schemes import mlx
from helpers.handmade import Entry, safetensors_bytes

TENSOR, FILE = (f"application/vnd.ollama.image.{kind}" for kind in ("tensor", "json"))
LAYER = "model.layers.0.mlp.{}.weight"
VALUES = np.random.default_rng(0).standard_normal((64, 128), np.float32)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a model of two quantised layers, a pack of experts and a norm."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128}
    layers = [
        (TENSOR, LAYER.format("up_proj"), affine(4, 32, LAYER.format("up_proj"))),
        (TENSOR, LAYER.format("down_proj"), affine(8, 64, LAYER.format("down_proj"))),
        (TENSOR, "model.layers.0.mlp.experts", affine(4, 32, *map(expert, range(2)))),
        (TENSOR, "model.norm.weight", safetensors_bytes({"model.norm.weight": norm()})),
        (FILE, "config.json", json.dumps(config).encode()),
        (FILE, "tokenizer.json", b"{}"),
    ]
    write_model(tmp_path / "store", layers)
    return tmp_path / "store"


def expert(i: int) -> str:
    return f"model.layers.0.mlp.experts.{i}.up_proj.weight"


def norm() -> Entry:
    return "F32", (128,), np.arange(128, dtype=np.float32).tobytes()


def affine(bits: int, group: int, *names: str) -> bytes:
    codes, scales, biases = mlx.quantize(VALUES, bits=bits, group_size=group)
    tensors: dict[str, Entry] = {}
    for name in names:
        tensors[name] = "U32", codes.shape, codes.tobytes()
        tensors[f"{name}.scale"] = "F32", scales.shape, scales.tobytes()
        tensors[f"{name}.bias"] = "F32", biases.shape, biases.tobytes()
    told = {"quant_type": f"int{bits}", "group_size": str(group)}
    return safetensors_bytes(tensors, told)


def coded(told: dict[str, str]) -> bytes:
    scales = ("F32", (4, 4), bytes(64))
    tensors = {"x.weight": ("U32", (4, 16), bytes(256)), "x.weight.scale": scales}
    return safetensors_bytes(tensors, told)


def write_model(store: Path, layers: list[tuple[str, str, bytes]]) -> None:
    blobs, manifest = store / "blobs", store / "manifests/registry.ollama.ai/library/m/latest"
    blobs.mkdir(parents=True, exist_ok=True)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    listed = []
    for kind, name, raw in layers:
        digest = hashlib.sha256(raw).hexdigest()
        (blobs / f"sha256-{digest}").write_bytes(raw)
        listed.append({"mediaType": kind, "digest": f"sha256:{digest}", "name": name})
    manifest.write_text(json.dumps({"layers": listed}))


def test_values_are_those_of_mlx(store: Path) -> None:
    with an.parse("ollama:m") as model:
        assert set(model) == {
            *(LAYER.format(one) for one in ("up_proj", "down_proj")),
            *map(expert, range(2)),
            "model.norm.weight",
        }
        for last, bits, group in (("up_proj", 4, 32), ("down_proj", 8, 64)):
            made = mlx.quantize(VALUES, bits=bits, group_size=group)
            expected = mlx.dequantize(*made, bits=bits, group_size=group, dtype="f32")
            np.testing.assert_array_equal(model[LAYER.format(last)].numpy(), expected)
        assert "MLX" in str(model.inspect())


def test_it_becomes_a_directory_that_mlx_reads(store: Path, tmp_path: Path) -> None:
    an.remember("ollama:m", tmp_path / "plain")
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert "quantization" not in json.loads((tmp_path / "plain/config.json").read_text())


def test_the_command_line_lists_and_scans_it(store: Path) -> None:
    shown = CliRunner().invoke(cli, ["inspect", "ollama:m"])
    assert shown.exit_code == 0, shown.output
    assert "ollama:m" not in shown.stderr
    scanned = CliRunner().invoke(cli, ["scan", "ollama:m"])
    assert scanned.exit_code == 0, scanned.output


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"PK\3\4", "sha256-"),
        (coded({"quant_type": "int3"}), "none of Ollama's"),
        (coded({"quant_type": "int4", "group_size": "many"}), "no number"),
        (coded({"quant_type": "int4"}), "is missing"),
    ],
)
def test_wrong_blobs_are_refused(raw: bytes, why: str, store: Path) -> None:
    write_model(store, [(TENSOR, "x.weight", raw)])
    with pytest.raises(an.AnamnesisError, match=why):
        an.parse("ollama:m", strict=True)


def test_models_of_a_pipeline_stay_apart(store: Path) -> None:
    same = safetensors_bytes({"x.weight": norm()})
    write_model(store, [(TENSOR, f"{folder}/x.weight", same) for folder in ("vae", "transformer")])
    with an.parse("ollama:m") as model:
        assert sorted(model) == ["transformer/x.weight", "vae/x.weight"]
