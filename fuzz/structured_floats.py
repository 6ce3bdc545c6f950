"""Floats of 4, 6 and 8 bits with scales, from a fuzzer's bytes, whoever stores them so."""

from __future__ import annotations

import json
from typing import Any

from structured import Choices
from structured_parts import (
    E8M0,
    FP8,
    SCALES,
    Expected,
    Family,
    Tensors,
    bytes_of,
    module_of,
    text,
    tiled,
    under,
)

__all__ = ["FAMILIES"]

ROWS = (16, 1, 3, 33, 130)
GROUPS = (1, 2, 3, 5)  # of a row


def scaled(choices: Choices, name: str, told: Expected) -> Tensors:
    """FP8 with a scale of any shape under any name, or none."""
    rows, cols = choices.pick(ROWS), choices.pick((64, 7, 33, 130))
    codes, scale = choices.pick(FP8), choices.pick((*SCALES, "F8_E8M0"))
    block = choices.pick((32, 16, 128))
    grid = [-(-rows // block), -(-cols // block)]
    shape = choices.pick(([rows, 1], [], [1], [rows], grid, [grid[0], 1, grid[1], 1]))
    last = choices.pick(
        ("weight_scale", "weight_scale_inv", "scale", "scale_weight", "qscale_weight", None)
    )
    method = choices.pick(("fp8", "modelopt", "compressed-tensors", "fbgemm_fp8", None))
    if shape in (grid, [grid[0], 1, grid[1], 1]):
        told.say(weight_block_size=[block, block])
    if method is not None and last is not None:
        told.say(quant_method=method)
    tensors = {"weight": bytes_of(choices, codes, [rows, cols])}
    if last is not None:
        tensors[last] = bytes_of(choices, scale, shape)
    if choices.below(4) == 3:
        tensors["input_scale"] = bytes_of(choices, "F32", [])
    return under(name, tensors)


def quanto(choices: Choices, name: str, told: Expected) -> Tensors:
    """quanto's qfloat8: a scale of each row."""
    told.say(quant_method="quanto")
    rows = choices.pick(ROWS)
    codes = bytes_of(choices, choices.pick(FP8), [rows, choices.pick((32, 7, 1))])
    scale = bytes_of(choices, choices.pick(SCALES), [rows, 1])
    return under(name, {"weight._data": codes, "weight._scale": scale})


def mxfp8(choices: Choices, name: str, told: Expected) -> Tensors:
    """MXFP8 of compressed-tensors and ModelOpt, and of MLX in words."""
    rows, groups = choices.pick(ROWS), choices.pick(GROUPS)
    told.say(quant_method="compressed-tensors", format="mxfp8-quantized")
    if choices.below(2):
        codes = bytes_of(choices, "U32", [rows, 8 * groups])
        return under(name, {"weight": codes, "scales": bytes_of(choices, "U8", [rows, groups])})
    tensors = {
        "weight": bytes_of(choices, choices.pick(FP8), [rows, 32 * groups]),
        "weight_scale": bytes_of(choices, choices.pick(E8M0), [rows, groups]),
    }
    return under(name, tensors)


def comfy_older(choices: Choices, name: str, told: Expected) -> Tensors:
    """ComfyUI's files with `scaled_fp8`: FP8, or a plain weight with a scale of 1."""
    dtype = choices.pick(("F8_E4M3", "F8_E5M2", "BF16"))
    one = "F32", [1], b"\0\0\x80\x3f"
    tensors = {
        "weight": bytes_of(choices, dtype, [choices.pick(ROWS), 32]),
        "scale_weight": one if choices.below(2) else bytes_of(choices, "F32", []),
    }
    return under(name, tensors) | {"scaled_fp8": ("F8_E4M3", [0], b"")}


def comfy(choices: Choices, name: str, told: Expected) -> Tensors:
    """ComfyUI's FP8, MXFP8 and NVFP4: markers or metadata, scales in tiles, padding."""
    kind = choices.pick(
        (
            *("nvfp4", "mxfp8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fn_rowwise"),
            *("float8_e4m3fn_blockwise", "hybrid_mxfp8"),
        )
    )
    said: dict[str, Any] = {"format": kind}
    rows, cols = choices.pick(ROWS), choices.pick((32, 16, 33, 100))
    if kind in ("nvfp4", "mxfp8"):
        step = 16 if kind == "nvfp4" else 32
        rows, cols = -(-rows // step) * step, -(-cols // step) * step
        if choices.below(2) == 0:
            said["orig_shape"] = [rows - choices.below(3), cols - choices.below(3)]
        scale = "F8_E4M3" if step == 16 else choices.pick(E8M0)
        tensors = {"weight_scale": bytes_of(choices, scale, tiled(rows, cols // step))}
    else:
        shape = {"r": [rows, 1], "b": [-(-rows // 32), -(-cols // 32)]}.get(kind[14:15], [])
        tensors = {"weight_scale": bytes_of(choices, "F32", shape)}
        said["group_size"] = 32
    if kind == "nvfp4":
        tensors["weight"] = bytes_of(choices, "U8", [rows, cols // 2])
        tensors["weight_scale_2"] = bytes_of(choices, "F32", [])
    else:
        codes = "F8_E5M2" if kind == "float8_e5m2" else "F8_E4M3"
        tensors["weight"] = bytes_of(choices, codes, [rows, cols])
    if choices.below(4) == 3:
        said["convrot_block"] = 16
    if choices.below(4) == 3:
        layers = {module_of(name).rstrip("."): said}
        told.metadata["_quantization_metadata"] = json.dumps({"layers": layers})
    else:
        tensors["comfy_quant"] = text(json.dumps(said))
    return under(name, tensors)


def packed_fp4(choices: Choices, name: str, told: Expected) -> Tensors:
    """NVFP4 and MXFP4 of compressed-tensors."""
    rows, groups, nv = choices.pick(ROWS), choices.pick(GROUPS), choices.below(2) == 0
    size = choices.pick((16, 32)) if nv else 32
    tensors = {
        "weight_packed": bytes_of(choices, "U8", [rows, groups * size // 2]),
        "weight_scale": bytes_of(choices, "F8_E4M3" if nv else choices.pick(E8M0), [rows, groups]),
    }
    if nv:
        tensors["weight_global_scale"] = bytes_of(choices, "F32", choices.pick(([1], [])))
    if choices.below(4) == 3:
        tensors["input_global_scale"] = bytes_of(choices, "F32", [1])
    return under(name, tensors)


def named_fp4(choices: Choices, name: str, told: Expected) -> Tensors:
    """NVFP4 and MXFP4 of ModelOpt, Quark and others, of stacks of experts too."""
    rows, groups, nv = choices.pick(ROWS), choices.pick(GROUPS), choices.below(2) == 0
    size, lead = choices.pick((16, 32)) if nv else 32, [2] if choices.below(4) == 3 else []
    told.say(quant_method="modelopt" if nv else "quark")
    codes = bytes_of(choices, "U8", [*lead, rows, groups * size // 2])
    scale = "F8_E4M3" if nv else choices.pick(E8M0)
    weight = name if not lead else f"{module_of(name)}experts.gate_up_proj"
    end = choices.pick(("_weight_scale", "_scale")) if lead else "_scale"
    tensors = {weight: codes, f"{weight}{end}": bytes_of(choices, scale, [*lead, rows, groups])}
    if nv:
        second = choices.pick(([], lead)) if lead else []
        tensors[f"{weight}{end}_2"] = bytes_of(choices, "F32", second)
    return tensors


def mlx_fp4(choices: Choices, name: str, told: Expected) -> Tensors:
    """MLX's modes nvfp4 and mxfp4, of stacks with a second scale for each."""
    rows, groups, size = choices.pick(ROWS), choices.pick((1, 2, 4)), choices.pick((16, 32))
    lead = [2] if choices.below(4) == 3 else []
    told.say(group_size=size, bits=4, mode="nvfp4" if size == 16 else "mxfp4")
    tensors = {
        "weight": bytes_of(choices, "U32", [*lead, rows, groups * size // 8]),
        "scales": bytes_of(choices, "U8", [*lead, rows, groups]),
    }
    if choices.below(2) and size == 16:
        tensors["global_scale"] = bytes_of(choices, "F32", lead)
    return under(name, tensors)


def gpt_oss(choices: Choices, name: str, told: Expected) -> Tensors:
    """Blocks of 16 bytes under the names of transformers, or of OpenAI."""
    grid = [choices.pick((2, 1)), choices.pick(ROWS), choices.pick(GROUPS)]
    ends = choices.pick((("_blocks", "_scales"), (".blocks", ".scales")))
    entries = bytes_of(choices, "U8", [*grid, 16]), bytes_of(choices, "U8", grid)
    stem = f"{module_of(name)}mlp.experts.down_proj"
    return {f"{stem}{end}": entry for end, entry in zip(ends, entries, strict=True)}


def deepseek(choices: Choices, name: str, told: Expected) -> Tensors:
    """DeepSeek-V4: FP4 in I8, and FP8 in blocks, with powers of two."""
    rows, groups = choices.pick(ROWS), choices.pick(GROUPS)
    told.say(quant_method="fp8", weight_block_size=[128, 128])
    if choices.below(2):
        grid, codes = [-(-rows // 128), -(-32 * groups // 128)], ("F8_E4M3", [rows, 32 * groups])
    else:
        grid, codes = [rows, groups], ("I8", [rows, 16 * groups])
    scale = bytes_of(choices, "F8_E8M0", grid)
    return under(name, {"weight": bytes_of(choices, *codes), "scale": scale})


def mxfp6(choices: Choices, name: str, told: Expected) -> Tensors:
    """MXFP6 of compressed-tensors, and of Quark in either kind."""
    rows, groups, kind = choices.pick(ROWS), choices.pick(GROUPS), choices.below(3)
    if kind:
        dtype = ("fp6_e2m3", "fp6_e3m2")[kind - 1]
        told.say(quant_method="quark", **{module_of(name): {"weight": {"dtype": dtype}}})
    codes = bytes_of(choices, "U8", [rows, 24 * groups])
    scale = bytes_of(choices, choices.pick(E8M0), [rows, groups])
    return under(name, {"weight" if kind else "weight_packed": codes, "weight_scale": scale})


def autoround(choices: Choices, name: str, told: Expected) -> Tensors:
    """AutoRound's MXINT4, and its NVFP4 with scales of E5M3."""
    rows, groups = choices.pick(ROWS), choices.pick(GROUPS)
    data, size = choices.pick((("mx_int", 32), ("nvfp4_v2", 16)))
    told.say(quant_method="auto-round", bits=4, group_size=size, data_type=data)
    told.say(packing_format="auto_round:llm_compressor", sym=True)
    codes = bytes_of(choices, "U8", [rows, groups * size // 2])
    scale = bytes_of(choices, "U8", [rows, groups])
    return under(name, {"weight_packed": codes, "weight_scale": scale})


FAMILIES: tuple[Family, ...] = (
    *(scaled, quanto, mxfp8, comfy_older, comfy, packed_fp4, named_fp4, mlx_fp4, gpt_oss),
    *(deepseek, mxfp6, autoround),
)
