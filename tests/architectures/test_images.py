"""Image and video models as GGUF, against what ComfyUI-GGUF's own tools have made of them.

Of their files the digests are recorded, by tools/record_image_ggufs.py.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import write_safetensors
from helpers.image_models import MODELS, RECORDED, write_image_model

FILES = [
    (model, type, digest)
    for model, made in json.loads(RECORDED.read_text()).items()
    for type, digest in made.items()
]


def target(type: str) -> str:
    return "gguf" if type == "gguf" else f"gguf-{type}"


def converted(source: Path, to: str, **options: Any) -> Path:
    out = source.with_suffix(".gguf")
    an.convert(source, out, to, force=True, **options)
    return out


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("model", "type", "digest"), FILES)
def test_bytes_are_those_of_comfyui_gguf(
    model: str, type: str, digest: str, tmp_path: Path
) -> None:
    source = write_image_model(tmp_path / "model.safetensors", *model.split())
    raw = converted(source, target(type)).read_bytes()
    assert hashlib.sha256(raw).hexdigest() == digest


@pytest.mark.parametrize("prefix", ["model.diffusion_model.", "model.", "net."])
def test_prefixes_go(prefix: str, tmp_path: Path) -> None:
    plain = write_image_model(tmp_path / "a.safetensors", "wan")
    prefixed = write_image_model(tmp_path / "b.safetensors", "wan", prefix=prefix)
    made = [converted(source, "gguf-q4_k_s").read_bytes() for source in (plain, prefixed)]
    assert made[0] == made[1]


def test_other_models_of_a_checkpoint_are_left_out(tmp_path: Path) -> None:
    source = write_image_model(tmp_path / "a.safetensors", "sd1", prefix="model.diffusion_model.")
    with an.parse(source) as model:
        tensors = {name: model[name].numpy(dtype="bf16") for name in model}
    an.save({**tensors, "first_stage_model.x": np.zeros((2, 2), np.float32)}, source, force=True)
    report = an.convert(source, tmp_path / "a.gguf", "gguf")
    assert {one.name: one.reason for one in report.dropped} == {
        "first_stage_model.x": "not of the image model"
    }


@pytest.mark.parametrize("arch", MODELS)
def test_names_and_shapes_come_back(arch: str, tmp_path: Path) -> None:
    source = write_image_model(tmp_path / "a.safetensors", arch)
    with an.parse(source) as model, an.parse(converted(source, "gguf-q8_0")) as back:
        assert {name: back[name].shape for name in back} == {
            name: model[name].shape
            for name in model
            if "_extra_state" not in name and "accum_" not in name
        }
        assert back.inspect().architecture == arch


def test_a_gguf_is_quantised_as_a_checkpoint_is(tmp_path: Path) -> None:
    source = write_image_model(tmp_path / "wan.safetensors", "wan")
    direct = converted(source, "gguf-q4_k_s").read_bytes()
    plain = converted(source, "gguf").rename(tmp_path / "plain.gguf")
    an.convert(plain, tmp_path / "again.gguf", "gguf-q4_k_s")
    assert (tmp_path / "again.gguf").read_bytes() == direct


def test_numbers_that_are_no_floats_are_kept_as_f16(tmp_path: Path) -> None:
    made = converted(write_image_model(tmp_path / "a.safetensors", "cosmos"), "gguf-q4_0")
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(made).tensors}
    assert not [name for name in found if "_extra_state" in name or "accum_" in name]
    assert found["mask"].data.tolist() == [1.0, 0.0, 1.0]
    assert found["ids"].data.tolist() == list(range(200, 212))


@pytest.mark.parametrize(
    "name",
    [
        "transformer_blocks.0.attn.norm_added_k.weight",
        "transformer_blocks.0.attn.add_q_proj.weight",
        "joint_transformer_blocks.3.ff_context.out_projection.weight",
    ],
)
def test_what_diffusers_arranges_otherwise_is_refused(name: str, tmp_path: Path) -> None:
    zeros = bytes(4 * 512)
    source = write_safetensors(tmp_path / "a.safetensors", {name: ("F32", (2, 256), zeros)})
    with pytest.raises(an.UnsupportedError, match=r"as diffusers arranges it") as caught:
        an.convert(source, tmp_path / "a.gguf", "gguf-q4_k_s")
    assert "names='keep'" in str(caught.value)
    an.convert(source, tmp_path / "a.gguf", "gguf", names="keep")


def test_lossless_rounds_nothing(tmp_path: Path) -> None:
    source = write_image_model(tmp_path / "a.safetensors", "flux", "F32")
    made = converted(source, "gguf", lossless=True)
    assert {tensor.tensor_type.name for tensor in gguf.GGUFReader(made).tensors} == {"F32"}


def test_rounding_is_said(tmp_path: Path) -> None:
    source = write_image_model(tmp_path / "a.safetensors", "flux", "F32")
    report = an.convert(source, tmp_path / "a.gguf", "gguf-q8_0")
    assert any("rounded to F16 first" in one for one in report.warnings)


def test_five_dimensions_and_long_names_are_of_image_models_alone(tmp_path: Path) -> None:
    arrays = {f"{'x' * 120}.weight": np.zeros((2, 1, 2, 2, 4), np.float32)}
    of_images = {"general.architecture": "wan"}
    an.save(arrays, tmp_path / "a.gguf", metadata=of_images)
    (tensor,) = gguf.GGUFReader(tmp_path / "a.gguf").tensors
    assert (tensor.name, tensor.shape.tolist()) == (f"{'x' * 120}.weight", [4, 2, 2, 1, 2])
    with pytest.raises(an.UnsupportedError, match="dimensions"):
        an.save(arrays, tmp_path / "b.gguf", metadata={"general.architecture": "llama"})
    with pytest.raises(an.UnsupportedError, match="127"):
        an.save({"x" * 128: arrays.popitem()[1]}, tmp_path / "b.gguf", metadata=of_images)
