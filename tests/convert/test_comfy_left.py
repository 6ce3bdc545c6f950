"""What ComfyUI's encodings leave is what convert-to-quant's presets leave, and modulation.

Names are those of ComfyUI's models. What comfy-quants leaves is compared in
tests/schemes/fp8/test_comfy.py.
"""

from __future__ import annotations

import runpy
from importlib.metadata import files
from typing import Any

import pytest

from anamnesis.schemes.libraries.comfy_left import comfy_left

# By preset: names that end plain, and such as are encoded; `{}` is the number of a block, of four.
MODELS: dict[str, tuple[str, str]] = {
    "flux2": (
        "img_in txt_in time_in.in_layer guidance_in.out_layer final_layer.linear "
        "final_layer.adaLN_modulation.1 double_stream_modulation_img.lin",
        "double_blocks.{}.img_attn.qkv double_blocks.{}.txt_mlp.0 single_blocks.{}.linear1",
    ),
    "distillation_large": (
        "img_in txt_in final_layer.linear distilled_guidance_layer.in_proj "
        "distilled_guidance_layer.layers.{}.in_layer",
        "double_blocks.{}.img_attn.proj single_blocks.{}.linear2",
    ),
    "nerf_small": (
        "distilled_guidance_layer.layers.{}.out_layer nerf_blocks.{}.param_generator "
        "nerf_image_embedder.embedder.0",
        "double_blocks.{}.img_attn.proj single_blocks.{}.linear2",
    ),
    "wan": (
        "text_embedding.0 time_embedding.2 time_projection.1 head.head img_emb.proj.1 "
        "audio_injector.injector.{}.q face_adapter.fuser_blocks.{}.linear1_kv "
        "casual_audio_encoder.encoder.final_linear frame_packer.proj.0 cond_encoder.0.proj "
        "motion_encoder.enc.fc.{} face_encoder.out_proj",
        "blocks.{}.self_attn.q blocks.{}.cross_attn.k_img blocks.{}.ffn.0 "
        "vace_blocks.{}.before_proj",
    ),
    "qwen": (
        "img_in txt_in proj_out norm_out.linear time_text_embed.timestep_embedder.linear_1 "
        "transformer_blocks.0.img_mod.1",
        "transformer_blocks.{}.attn.to_q transformer_blocks.{}.attn.add_q_proj "
        "transformer_blocks.{}.img_mlp.net.0.proj transformer_blocks.{}.txt_mlp.net.2 "
        "transformer_blocks.1.img_mod.1 transformer_blocks.{}.txt_mod.1",
    ),
    "zimage": (
        "x_embedder cap_embedder.1 t_embedder.mlp.0 final_layer.linear clip_text_pooled_proj.1 "
        "layers.{}.adaLN_modulation.0",
        "layers.{}.attention.qkv layers.{}.feed_forward.w1 noise_refiner.{}.attention.out "
        "context_refiner.{}.feed_forward.w2",
    ),
    "hunyuan": (
        "vision_in.proj.4 cond_type_embedding",
        "double_blocks.{}.img_attn_qkv double_blocks.{}.txt_mlp.fc1 single_blocks.{}.linear1",
    ),
    "anima": (
        "net.x_embedder.proj.1 net.t_embedder.1.linear_1 net.final_layer.linear "
        "net.llm_adapter.blocks.{}.self_attn.q_proj net.blocks.0.self_attn.output_proj "
        "net.blocks.0.adaln_modulation_mlp.1 net.blocks.1.adaln_modulation_mlp.1",
        "net.blocks.1.self_attn.q_proj net.blocks.2.adaln_modulation_mlp.1",
    ),
    "ideogram4": (
        "embed_image_indicator input_proj llm_cond_proj final_layer.linear t_embedding.mlp_in "
        "adaln_proj",
        "layers.{}.attention.qkv layers.{}.feed_forward.w1",
    ),
    "krea2": (
        "first last.linear tmlp.0 tproj.1 txtfusion.projector "
        "txtfusion.layerwise_blocks.{}.attn.wq",
        "blocks.{}.attn.wq blocks.{}.mlp.up",
    ),
    "minimaxh3": (
        "audio_patch_proj condition_proj final_layer.video_out time_embedder.proj_out "
        "video_patch_proj token_refiner.blocks.{}.attn.qkv",
        "blocks.{}.attn.qkv blocks.{}.mlp.fc1",
    ),
}


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    """Return the module of its presets: importing the package takes what trains."""
    found = files("convert-to-quant") or []
    (path,) = (one for one in found if str(one) == "convert_to_quant/constants.py")
    return runpy.run_path(str(path.locate()))


def named(text: str, n_blocks: int = 4) -> list[str]:
    """Return weights, those of blocks with each number."""
    return [
        f"{one.format(block)}.weight"
        for one in text.split()
        for block in range(n_blocks if "{}" in one else 1)
    ]


def left_by(tool: dict[str, Any], preset: str, names: list[str]) -> set[str]:
    """Return what it leaves: whatever has one of a preset's words in its name."""
    words, _, _ = tool["build_exclusion_patterns"]({preset: True}, names)
    return {name for name in names if any(word in name for word in words)}


def left_here(names: list[str]) -> set[str]:
    return set(comfy_left(dict.fromkeys(names, (64, 64))))


@pytest.mark.oracle
@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
@pytest.mark.parametrize("preset", MODELS)
def test_its_presets_leave_the_same(tool: dict[str, Any], preset: str, prefix: str) -> None:
    plain, encoded = (named(text) for text in MODELS[preset])
    names = [*plain, *encoded]
    assert left_here([prefix + name for name in names]) == {prefix + name for name in plain}
    theirs = left_by(tool, preset, names)
    assert theirs == set(plain)


def test_modulation_stays_plain_of_models_without_a_preset() -> None:
    """So do embeddings of time, and all that stands outside of blocks."""
    plain = (
        "img_in vector_in.in_layer double_blocks.{}.img_mod.lin single_blocks.{}.modulation.lin "
        "joint_blocks.{}.x_block.adaLN_modulation.1 context_embedder y_embedder.mlp.0 "
        "input_blocks.{}.0.emb_layers.1 label_emb.0.2 time_embed.0 caption_projection.{}.linear "
        "transformer_blocks.{}.norm1.linear double_stream_blocks.{}.block.ff_i.gate"
    )
    encoded = (
        "double_blocks.{}.img_attn.qkv joint_blocks.{}.context_block.mlp.fc1 "
        "input_blocks.{}.1.transformer_blocks.1.attn1.to_q middle_block.1.proj_in"
    )
    assert left_here(named(f"{plain} {encoded}")) == set(named(plain))


@pytest.mark.oracle
def test_the_first_and_last_blocks_of_ltx(tool: dict[str, Any]) -> None:
    """Of its 48 blocks; of fewer, two at either end, too."""
    outside = "patchify_proj adaln_single.linear proj_out caption_projection.linear_1"
    gates = "transformer_blocks.{}.attn1.to_gate_logits"
    feeds = "video_embeddings_connector.transformer_1d_blocks.{}.attn1.to_q"
    blocks = "transformer_blocks.{}.attn1.to_q transformer_blocks.{}.ff.net.2"
    names = named(f"{outside} {gates} {feeds} {blocks}", 48)
    assert left_here(names) - left_by(tool, "ltxv2", names) == {
        "caption_projection.linear_1.weight"
    }
    assert left_by(tool, "ltxv2", names) <= left_here(names)
    ends = [
        int(n.split(".")[1]) for n in left_here(named(f"{outside} {blocks}", 28)) if ".ff." in n
    ]
    assert sorted(ends) == [0, 1, 26, 27]


def test_columns_that_comfyui_counts_are_not_packed() -> None:
    """It tells SDXL by the columns of a key, which NVFP4 has half of."""
    block = "input_blocks.4.1.transformer_blocks"
    names = named(f"{block}.{{}}.attn2.to_k {block}.{{}}.attn2.to_v", 2)
    assert left_here(names) == {f"{block}.0.attn2.to_k.weight"}
