"""What is said of a layer is found under the name that the model has for it, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import write_safetensors

LAYERS = ["blocks.4.attn.wo", "blocks.14.attn.wo", "blocks.4.ffn.up"]
PREFIX = "model.diffusion_model."
KEY = "_quantization_metadata"
Say = Callable[[str], str]


def values(layers: list[str]) -> dict[str, Any]:
    return {
        f"{name}.weight": np.random.default_rng(i).standard_normal((128, 256), np.float32)
        for i, name in enumerate(layers)
    }


def comfy(path: Path, say: Say, layers: list[str], to: str = "comfy-nvfp4") -> dict[str, Any]:
    """Make a file whose metadata name layers as `say` does, and return what it holds."""
    plain = path.with_name("plain.safetensors")
    an.save(values(layers), plain, force=True)
    an.convert(plain, path, to, include="*", force=True)
    with an.parse(path) as model:
        wanted = {name: tensor.numpy() for name, tensor in model.items()}
        stored = {n: (t.dtype.name, t.shape, t.read()) for n, t in model.stored.items()}
    ends = [name for name in stored if name.endswith(".comfy_quant")]
    said = {say(n.removesuffix(".comfy_quant")): json.loads(stored.pop(n)[2]) for n in ends}
    write_safetensors(path, stored, {KEY: json.dumps({"layers": said})} if said else None)
    return wanted


@pytest.mark.parametrize(
    "say",
    [
        lambda name: name,
        lambda name: name.removeprefix(PREFIX),
        lambda name: f"{name}.weight",
        lambda name: f"{name.removeprefix(PREFIX)}.weight",
        lambda name: f"net.{name}",
        lambda name: f"diffusion_model.model.{name.removeprefix(PREFIX)}",
    ],
)
def test_names_that_differ_by_their_beginning(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    wanted = comfy(path, say, [PREFIX + name for name in LAYERS])
    with an.parse(path) as model:
        assert {w.family for w in model._ledger.weights.values()} == {"NVFP4"}
        for name, array in wanted.items():
            assert model[name].numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (lambda name: name.replace("blocks.4.", "blocks.9."), r"blocks\.9\."),
        (lambda name: name.replace("attn", "attention"), r"attention\.wo' and 1 more"),
        (lambda name: f"text_encoder.{name}", None),  # only a prefix
        (
            lambda name: name.replace("blocks.4.attn.", "blocks.14.attn."),
            "says how|twice|nothing says",
        ),
    ],
)
def test_names_of_no_layer_are_refused(say: Say, told: str | None, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    comfy(path, say, LAYERS)
    if told is None:
        an.parse(path).close()
        return
    with pytest.raises(an.AnamnesisError, match=told), an.parse(path) as model:
        model.remember(tmp_path / "out.safetensors")


def test_a_name_that_several_layers_end_with_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    comfy(path, lambda name: name.partition(".")[2], ["a.x.0.wo", "b.x.0.wo"][:1])
    an.parse(path).close()
    comfy(path, lambda name: "x.0.wo", ["a.x.0.wo", "b.x.0.wo"])
    with pytest.raises(an.ParseError, match=r"'x\.0\.wo' may mean 'a\.x\.0\.wo' and 'b\.x\.0\.wo'"):
        an.parse(path)


@pytest.mark.parametrize("to", ["comfy-nvfp4", "comfy-mxfp8", "comfy-int8"])
def test_a_layer_of_which_nothing_is_said_is_refused_beside_others(to: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    comfy(path, lambda name: name.replace("blocks.4.attn.wo", "blocks.14.attn.wo"), LAYERS, to)
    with an.parse(path) as model:
        assert list(model.problems) != []
        with pytest.raises(an.AnamnesisError, match=r"blocks\.4\.attn\.wo.*nothing says"):
            model.remember(tmp_path / "out.safetensors")


def mlx(folder: Path, rename: Say) -> dict[str, Any]:
    names = [f"language_model.model.layers.{i}.mlp.up_proj" for i in range(2)]
    plain = folder.parent / "plain"
    plain.mkdir()
    an.save(values(names), plain / "model.safetensors")
    (plain / "config.json").write_text("{}")
    an.convert(plain, folder, "mlx-4bit-128", overrides={names[1] + ".weight": "mlx-8bit"})
    with an.parse(folder) as model:
        wanted = {name: tensor.numpy() for name, tensor in model.items()}
    config = json.loads((folder / "config.json").read_text())
    for section in ("quantization", "quantization_config"):
        config[section] = {rename(key): value for key, value in config[section].items()}
    (folder / "config.json").write_text(json.dumps(config))
    return wanted


@pytest.mark.parametrize(
    "rename",
    [
        lambda key: key.replace("language_model.model.", "model.language_model."),
        lambda key: key.replace("language_model.model.", "language_model."),
        lambda key: key.removeprefix("language_model.model."),
    ],
)
def test_settings_of_single_layers_of_mlx(rename: Say, tmp_path: Path) -> None:
    """8 bits in groups of 64 have the shapes of 4 bits in groups of 128."""
    wanted = mlx(tmp_path / "mlx", rename)
    with an.parse(tmp_path / "mlx") as model:
        for name, array in wanted.items():
            assert model[name].numpy().tobytes() == array.tobytes()


def test_settings_of_layers_that_mlx_has_not_are_refused(tmp_path: Path) -> None:
    mlx(tmp_path / "mlx", lambda key: key.replace("layers.1", "layers.7"))
    with pytest.raises(an.ParseError, match=r"the config says how '.*layers\.7.*' is encoded"):
        an.parse(tmp_path / "mlx")
