"""Which layers ComfyUI's tools leave as they are: of diffusion models, by names.

comfy-quants has lists of two kinds of models: its adapters of Qwen-Image and of Anima. Of all
others this is what it leaves of those, in general: what stands outside of the numbered blocks, as
the first and the last layers do, embeddings, norms and modulation. What convert-to-quant's presets
name of others is left, too: networks that feed the blocks, and of LTX the blocks at both ends.
ComfyUI counts the columns of the first `attn2.to_k` to tell models apart, before it looks at codes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache, partial

from anamnesis.schemes.core.layout import Shapes

# What names begin with in checkpoints of all that a pipeline has; in others `diffusion_model.`.
_OF_CHECKPOINT = "model.diffusion_model."
_OUTSIDE = "outside of the model's blocks"

_QWEN_IMAGE = (
    *("transformer_blocks.*.attn.to_*", "transformer_blocks.*.attn.add_*_proj"),
    *("transformer_blocks.*.img_mlp.*", "transformer_blocks.*.txt_mlp.*"),
    *("transformer_blocks.*.img_mod.1", "transformer_blocks.*.txt_mod.1"),
)
_QWEN_IMAGE_SHOWN = ("transformer_blocks.0.img_mod.1", "transformer_blocks.0.txt_mlp.net.2")
_ANIMA_FIRST = re.compile(r"net\.blocks\.(0\.|1\.adaln_modulation)")
_ANIMA_SHOWN = ("net.blocks.0.self_attn.output_proj", "net.blocks.0.adaln_modulation_mlp.1")

_LTX_SHOWN = ("patchify_proj", "adaln_single.linear")
_LTX_BLOCK = re.compile(r"transformer_blocks\.([0-9]{1,9})\.")
_LTX_ENDS = 2  # blocks at either end

_IN_BLOCK = re.compile(r"(^|\.)[0-9]+\..*[A-Za-z_]")
_LEFT = {
    "norm": re.compile(r"norm\w*(\.|$)|(^|[._])ln_?\w*(\.|$)", re.IGNORECASE),
    "modulation": re.compile(r"modulation|adaln|(^|[._])mod(\.|$)", re.IGNORECASE),
    "embedding": re.compile(r"emb(ed\w*|s)?(_|\.|$)|(^|\.)relative_attention_bias$", re.IGNORECASE),
    "router": re.compile(r"(^|\.)(gate|router|to_gate_logits)$"),
    "tells the width of the context": re.compile(r"(^|\.)transformer_blocks\.0\.attn2\.to_k$"),
    "feeds the blocks": re.compile(
        r"(^|\.)("
        r"distilled_guidance_layer|nerf_blocks|caption_projection|txtfusion|token_refiner|"
        r"\w+_connector|llm_adapter|casual_audio_encoder|audio_injector|motion_encoder|"
        r"face_adapter|face_encoder|frame_packer|cond_encoder|audio_vae|vae|vocoder)\."
    ),
}


def comfy_left(shapes: Shapes) -> dict[str, str]:
    """Return the weights that ComfyUI's tools leave as they are, and why."""
    is_whole = any(name.startswith(_OF_CHECKPOINT) for name in shapes)
    inner = [name for name in shapes if not is_whole or name.startswith(_OF_CHECKPOINT)]
    modules = {}  # as the diffusion model calls them
    for name in inner:
        module = name.removeprefix(_OF_CHECKPOINT).removeprefix("diffusion_model.")
        modules[name] = module.removesuffix(".weight")
    names = {*modules.values()}
    rule: Callable[[str], str | None] = _left_in_general
    if names.issuperset(_QWEN_IMAGE_SHOWN):
        rule = _left_of_qwen_image
    elif names.issuperset(_LTX_SHOWN):
        blocks = sorted({int(one[1]) for module in names if (one := _LTX_BLOCK.match(module))})
        rule = partial(_left_of_ltx, {*blocks[:_LTX_ENDS], *blocks[-_LTX_ENDS:]})
    elif names.issuperset(_ANIMA_SHOWN):
        rule = _left_of_anima
    found = {}
    for name in shapes:
        why = rule(modules[name]) if name in modules else "not of the diffusion model"
        if why is not None:
            found[name] = why
    return found


def _left_of_qwen_image(module: str) -> str | None:
    if module == "transformer_blocks.0.img_mod.1":
        return "modulation of the first block"
    is_inside = any(fnmatchcase(module, one) for one in _QWEN_IMAGE)
    return None if is_inside and ".norm" not in module else _OUTSIDE


def _left_of_anima(module: str) -> str | None:
    if not module.startswith("net.blocks."):
        return _OUTSIDE
    is_first = _ANIMA_FIRST.match(module) is not None
    return "of the first blocks" if is_first else "norm" if "_norm" in module else None


def _left_of_ltx(ends: set[int], module: str) -> str | None:
    block = _LTX_BLOCK.match(module)
    is_at_an_end = block is not None and int(block[1]) in ends
    return "of the first or last blocks" if is_at_an_end else _left_in_general(module)


@lru_cache(maxsize=4096)
def _left_in_general(module: str) -> str | None:
    if _IN_BLOCK.search(module) is None:
        return _OUTSIDE
    return next((what for what, pattern in _LEFT.items() if pattern.search(module)), None)
