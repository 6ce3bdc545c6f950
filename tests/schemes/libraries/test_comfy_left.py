"""What stays plain of diffusion models and text encoders in ComfyUI's encodings."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.libraries.comfy_left import comfy_left
from helpers.handmade import write_safetensors

FLUX = {
    "img_in": "outside of the model's blocks",
    "time_in.in_layer": "outside of the model's blocks",
    "vector_in.out_layer": "outside of the model's blocks",
    "final_layer.linear": "outside of the model's blocks",
    "final_layer.adaLN_modulation.1": "outside of the model's blocks",
    "double_blocks.0.img_mod.lin": "modulation",
    "double_blocks.0.img_attn.qkv": "",
    "double_blocks.0.img_attn.norm.query_norm": "norm",
    "double_blocks.0.txt_mlp.2": "",
    "single_blocks.37.linear1": "",
    "single_blocks.37.modulation.lin": "modulation",
}
DIFFUSERS_FLUX = {
    "x_embedder": "outside of the model's blocks",
    "time_text_embed.guidance_embedder.linear_1": "outside of the model's blocks",
    "proj_out": "outside of the model's blocks",
    "transformer_blocks.0.norm1.linear": "norm",
    "transformer_blocks.0.attn.to_out.0": "",
    "transformer_blocks.0.ff.net.0.proj": "",
    "single_transformer_blocks.0.proj_out": "",
    "single_transformer_blocks.0.norm.linear": "norm",
}
WAN = {
    "text_embedding.0": "outside of the model's blocks",
    "time_projection.1": "outside of the model's blocks",
    "head.head": "outside of the model's blocks",
    "blocks.0.self_attn.q": "",
    "blocks.0.ffn.0": "",
    "blocks.39.cross_attn.norm_k": "norm",
}
UNET = {
    "time_embed.0": "outside of the model's blocks",
    "label_emb.0.0": "outside of the model's blocks",
    "input_blocks.1.0.emb_layers.1": "embedding",
    "input_blocks.4.1.transformer_blocks.0.attn1.to_q": "",
    "middle_block.1.proj_in": "",
}
TEXT_ENCODER = {
    "model.embed_tokens": "outside of the model's blocks",
    "model.layers.0.self_attn.q_proj": "",
    "model.layers.0.mlp.up_proj": "",
    "model.layers.0.input_layernorm": "norm",
    "model.layers.0.mlp.gate": "router",
    "lm_head": "outside of the model's blocks",
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias": "embedding",
}


@pytest.mark.parametrize("prefix", ["", "diffusion_model.", "model.diffusion_model."])
@pytest.mark.parametrize("model", [FLUX, DIFFUSERS_FLUX, WAN, UNET], ids=["f", "d", "w", "u"])
def test_what_is_left_of_a_diffusion_model(model: dict[str, str], prefix: str) -> None:
    shapes = {f"{prefix}{module}.weight": (64, 64) for module in model}
    left = comfy_left(shapes)
    assert {name: left.get(f"{prefix}{name}.weight", "") for name in model} == model


def test_what_is_left_of_a_text_encoder() -> None:
    left = comfy_left({f"{module}.weight": (64, 64) for module in TEXT_ENCODER})
    assert {name: left.get(f"{name}.weight", "") for name in TEXT_ENCODER} == TEXT_ENCODER


def test_the_rest_of_a_checkpoint_stays() -> None:
    names = [
        "model.diffusion_model.double_blocks.0.img_attn.qkv.weight",
        "text_encoders.t5xxl.encoder.block.0.layer.0.SelfAttention.q.weight",
        "vae.decoder.mid.0.attn.q.weight",
    ]
    left = comfy_left(dict.fromkeys(names, (64, 64)))
    assert left == dict.fromkeys(names[1:], "not of the diffusion model")


@pytest.fixture
def flux(tmp_path: Path) -> Path:
    """A folder as diffusers has them."""
    values = np.arange(64 * 64, dtype="<f4") / 64
    square = ("F32", (64, 64), values.tobytes())
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = {
        f"{module}.weight": square for module in DIFFUSERS_FLUX
    }
    tensors["x_embedder.bias"] = ("F32", (64,), values[:64].tobytes())
    folder = tmp_path / "transformer"
    write_safetensors(folder / "diffusion_pytorch_model.safetensors", tensors)
    (folder / "config.json").write_text('{"_class_name": "FluxTransformer2DModel"}')
    return folder


@pytest.mark.parametrize("to", ["comfy-fp8", "comfy-mxfp8"])
def test_a_folder_of_diffusers(flux: Path, to: str, tmp_path: Path) -> None:
    with an.parse(flux) as model:
        report = model.convert(tmp_path / "out", to)
    assert report.plain.keys() == {f"{k}.weight" for k, v in DIFFUSERS_FLUX.items() if v} | {
        "x_embedder.bias"
    }
    with an.parse(tmp_path / "out") as made:
        assert {name for name in made if made[name].is_quantized} == {
            f"{k}.weight" for k, v in DIFFUSERS_FLUX.items() if not v
        }
        assert "quantization_config" not in (tmp_path / "out" / "config.json").read_text()


def test_what_is_left_can_be_asked_for(flux: Path) -> None:
    out = io.BytesIO()
    with an.parse(flux / "diffusion_pytorch_model.safetensors") as model:
        model.convert(out, "comfy-fp8", overrides={"proj_out.*": "comfy-mxfp8"})
    with an.parse(out.getvalue()) as made:
        assert not made.problems
        assert made["proj_out.weight"].scheme == "MXFP8 (E4M3)"
        assert made["transformer_blocks.0.attn.to_out.0.weight"].scheme == "per-tensor FP8 (E4M3)"
