"""Tiny image and video models, by the names and dimensions of published ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from helpers.handmade import Entry, write_safetensors

# NAME SHAPE: braces are alternatives, or a run; `+` is a weight with a bias, `=` the whole name.
MODELS = {
    "flux": """
        double_blocks.{0-10}.{img,txt}_attn.qkv+ 384,256
        double_blocks.{0-1}.{img,txt}_attn.{proj,norm.query_norm.scale=} 128,256
        single_blocks.{0-1}.{linear1,modulation.lin}+ 256,256
        {img_in,txt_in,time_in.in_layer,vector_in.in_layer,guidance_in.in_layer}+ 256,64
        final_layer.linear+ 16,256
        single_blocks.{0-1}.linear2+ 32,288
    """,
    "sd3": """
        joint_blocks.{0-2}.{x,context}_block.attn.qkv+ 384,256
        joint_blocks.{0-2}.{x,context}_block.{attn.proj,mlp.fc1,mlp.fc2}+ 128,256
        pos_embed= 1,36,256
        x_embedder.proj+ 64,16,2,2
        {context_embedder,t_embedder.mlp.0,y_embedder.mlp.0,final_layer.linear}+ 64,256
    """,
    "aura": """
        double_layers.{0-3}.{modX.1,modC.1} 128,256
        double_layers.{0-3}.attn.{w1q,w1k,w1v,w1o,w2q,w2k,w2v,w2o} 64,256
        {positional_encoding,register_tokens}= 1,16,256
        {init_x_linear,t_embedder.mlp.0}+ 64,32
        {cond_seq_linear,final_linear,modF.1} 64,256
    """,
    "hidream": """
        caption_projection.{0,1}.linear 64,256
        double_stream_blocks.{0-1}.block.attn1.{to_q,to_k,to_v,to_out,to_v_t}+ 64,256
        double_stream_blocks.{0-1}.block.ff_i.gate 8,256
        double_stream_blocks.{0-1}.block.ff_{i.shared_experts,t,i.experts.0}.{w1,w2,w3} 64,256
        {p_embedder.pooled_embedder.linear_1,x_embedder.proj,final_layer.linear}+ 32,256
    """,
    "cosmos": """
        blocks.{0-1}.{self,cross}_attn.{q,k,v,output}_proj 64,256
        blocks.{0-1}.mlp.layer{1,2} 64,256
        blocks.{0-1}.adaln_modulation_{self_attn,cross_attn,mlp}.{1,2} 64,256
        blocks.{0-1}.self_attn.q_norm 64
        {x_embedder.proj.1,t_embedder.1.linear_1,final_layer.linear} 64,72
        pos_embedder.seq= 48
    """,
    "ltxv": """
        transformer_blocks.{0-27}.scale_shift_table= 6,256
        transformer_blocks.{0-5}.attn{1,2}.{to_q,to_k,to_v,to_out.0}+ 32,256
        transformer_blocks.{0-5}.ff.net.{0.proj,2}+ 32,256
        {adaln_single.emb.timestep_embedder,caption_projection}.linear_2+ 32,256
        {patchify_proj,proj_out}+ 32,128
    """,
    "hyvid": """
        double_blocks.{0-1}.{img,txt}_attn_{qkv,proj}+ 64,256
        double_blocks.{0-1}.img_mlp.fc{1,2}+ 64,256
        txt_in.individual_token_refiner.blocks.{0-1}.self_attn_qkv+ 64,256
        img_in.proj+ 16,4,1,2,2
        {time_in.mlp.0,final_layer.linear}+ 32,256
    """,
    "wan": """
        blocks.{0-5}.{self,cross}_attn.{q,k,v,o}+ 32,256
        blocks.{0-5}.ffn.{0,2}+ 32,256
        blocks.{0-5}.modulation= 1,6,256
        blocks.{0-1}.{self_attn.norm_q,self_attn.norm_k,norm3} 256
        {text_embedding.0,text_embedding.2,time_embedding.0,time_projection.1,head.head}+ 32,256
        head.modulation= 1,2,256
        patch_embedding+ 16,4,1,2,2
    """,
    "sdxl": """
        input_blocks.0.0+ 32,4,3,3
        input_blocks.{3,6}.0.op+ 32,32,3,3
        output_blocks.{2,5}.2.conv 32,32,3,3
        {label_emb.0.0,time_embed.0}+ 64,96
        input_blocks.{4,5}.1.transformer_blocks.0.attn{1,2}.{to_q,to_k,to_v} 64,320
        input_blocks.{4,5}.1.transformer_blocks.0.ff.net.{0.proj,2}+ 64,320
        input_blocks.4.1.proj_in 64,64,1,1
        input_blocks.4.1.norm 5,51
        out.2 4,32,3,3
    """,
    "sd1": """
        input_blocks.{3,6,9}.0.op+ 32,32,3,3
        output_blocks.{2.1,5.2,8.2}.conv 32,32,3,3
        input_blocks.4.1.transformer_blocks.0.attn{1,2}.{to_q,to_k,to_v} 64,320
        input_blocks.0.0+ 32,4,3,3
    """,
    "lumina2": """
        {layers,context_refiner,noise_refiner}.{0-1}.attention.{qkv,out} 64,256
        {layers,context_refiner}.{0-1}.feed_forward.{w1,w2,w3} 64,256
        layers.{0-1}.attention_norm1 256
        {cap_embedder.1,x_embedder,t_embedder.mlp.0,final_layer.linear}+ 32,256
    """,
}
NUMPY = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
# Tensors of no floats, as Cosmos's have: the first two kinds are dropped.
SIDES: dict[str, tuple[str, Any]] = {
    "blocks.0.self_attn.q_norm._extra_state": ("U8", np.zeros(3, np.uint8)),
    "accum_iteration": ("I64", np.array([7], np.int64)),
    "ids": ("U8", np.arange(200, 212, dtype=np.uint8)),
    "mask": ("BOOL", np.array([True, False, True])),
}
RECORDED = Path(__file__).parents[1] / "architectures/images.json"
# What is recorded of each model, by its dtype: types of llama-quantize, which takes no rows of 51.
_K = "Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K"
RECORDS = {
    arch: {
        "BF16": _K if arch == "sdxl" else f"{_K} Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 F16",
        "F16": "Q4_K_S",
        "F32": "Q4_K_S",
    }
    for arch in MODELS
}
_BRACES = re.compile(r"\{([^}]*)\}")


def write_image_model(path: Path, arch: str, dtype: str = "BF16", prefix: str = "") -> Path:
    """Write a model as one file of safetensors, sorted as safetensors sorts."""
    rng = np.random.default_rng(7)
    entries: dict[str, Entry] = {}
    for name, shape in sorted(tensors(arch)):
        values = rng.standard_normal(shape, np.float32).astype(NUMPY[dtype])
        entries[prefix + name] = dtype, shape, values.tobytes()
    for name, (kind, side) in (SIDES if arch == "cosmos" else {}).items():
        entries[prefix + name] = kind, side.shape, side.tobytes()
    return write_safetensors(path, entries)


def tensors(arch: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of a model."""
    for line in MODELS[arch].split("\n"):
        if not line.strip():
            continue
        pattern, dims = line.split()
        shape = tuple(map(int, dims.split(",")))
        for name in _expanded(pattern.removesuffix("+").removesuffix("=")):
            is_whole = name.endswith("=") or pattern.endswith("=")
            yield (name.removesuffix("=") if is_whole else f"{name}.weight"), shape
            if pattern.endswith("+"):
                yield f"{name}.bias", shape[:1]


def _expanded(pattern: str) -> Iterator[str]:
    parts = _BRACES.split(pattern)
    for filling in product(*map(_alternatives, parts[1::2])):
        yield "".join(a + b for a, b in zip(parts[::2], (*filling, ""), strict=True))


def _alternatives(text: str) -> list[str]:
    first, dash, last = text.partition("-")
    if dash:
        return [str(i) for i in range(int(first), int(last) + 1)]
    return text.split(",")
