"""ComfyUI's own loader makes of its encodings what is read here; it runs on a CPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import anamnesis as an
from helpers.comfy_tools import State, needs_comfyui, run_comfyui, same

pytestmark = [pytest.mark.oracle, pytest.mark.against("ComfyUI"), needs_comfyui]

ENCODINGS = (
    *("comfy-fp8", "comfy-fp8-e5m2", "comfy-mxfp8", "comfy-nvfp4", "comfy-int8"),
    *("comfy-int8-tensor", "comfy-int8-convrot", "comfy-convrot-w4a4"),
    *("comfy-convrot-w4a8", "comfy-convrot-w6a8"),
)
OF_OTHERS = ("fp8-tensor", "fp8-tensor-ct", "fp8-channel", "fp8-block")
MODELS = ("flux", "flux-checkpoint", "wan", "sd3", "ltx")
PREFIX = "model.diffusion_model."
MARKER = ".comfy_quant"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of all models in all encodings, each with what ComfyUI made of it."""
    plain, folder = (tmp_path_factory.mktemp(name) for name in ("plain", "encoded"))
    run_comfyui("make", plain)
    for model in (*MODELS, "flux-diffusers"):
        source = plain / f"{model}.safetensors"
        os.link(source, folder / source.name)
        for to in (*ENCODINGS, *(OF_OTHERS if model == "flux" else ())):
            with an.parse(source) as read:
                read.convert(folder / f"{model}.{to}.safetensors", to)
    run_comfyui("load", folder)
    return folder


def read_here(file: Path) -> State:
    """Return what is read here in float32, by the names that ComfyUI has in memory."""
    with an.parse(file) as model:
        assert not model.problems
        return {
            name.removeprefix(PREFIX): torch.from_numpy(model[name].numpy("f32")) for name in model
        }


def differing(folder: Path, name: str, own: str) -> list[str]:
    """Return the weights that ComfyUI has otherwise than a file, or has not."""
    loaded = load_file(folder / f"{name}.loaded")
    values = read_here(folder / f"{own}.safetensors")
    values.pop("pos_embed", None)  # of SD3, where it is no parameter
    assert len(values) > 50
    return [key for key in values if key not in loaded or not same(loaded[key], values[key])]


@pytest.mark.parametrize("model", MODELS)
def test_it_loads_the_models_that_are_made_here(written: Path, model: str) -> None:
    assert not differing(written, model, model)


@pytest.mark.parametrize("to", ENCODINGS)
@pytest.mark.parametrize("model", MODELS)
def test_its_loader_takes_each_encoding(written: Path, model: str, to: str) -> None:
    name = f"{model}.{to}"
    codes = [key for key in load_file(written / f"{name}.safetensors") if key.endswith(MARKER)]
    assert len(codes) >= 10
    assert not differing(written, name, name)


@pytest.mark.parametrize("to", OF_OTHERS)
def test_it_takes_codes_of_others_for_values(written: Path, to: str) -> None:
    """It looks at markers alone."""
    name = f"flux.{to}"
    assert "double_blocks.0.img_attn.qkv.weight" in differing(written, name, name)


@pytest.mark.parametrize("to", ENCODINGS)
def test_it_leaves_the_scales_of_what_it_renames(written: Path, to: str) -> None:
    """Of diffusers' names; columns of packed codes are too few for its model."""
    assert not differing(written, "flux-diffusers", "flux")
    loaded = load_file(written / f"flux-diffusers.{to}.loaded")
    if to == "comfy-nvfp4" or to.startswith("comfy-convrot"):
        assert not loaded
        return
    values = read_here(written / "flux.safetensors")
    qkv = "double_blocks.0.img_attn.qkv.weight"
    assert loaded[qkv].abs().max() > 100 * values[qkv].abs().max()
