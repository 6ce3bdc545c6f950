"""Integers of rows from a fuzzer's bytes, whoever stores them so: `schemes/integers` reads them."""

from __future__ import annotations

import json
from typing import Any

from structured import Choices
from structured_parts import (
    SCALES,
    Expected,
    Family,
    Tensors,
    bytes_of,
    module_of,
    numbers,
    text,
    under,
)

__all__ = ["FAMILIES"]

GROUPS = (32, 64, 128, 16, 7)
_PACKINGS = {8: "8bit_u8", 4: "4bit_u8", 3: "3bit_32", 2: "2bit_u8", 1: "1bit_u8", 5: "8bit_u8"}


def compressed_tensors(choices: Choices, name: str, told: Expected) -> Tensors:
    """`pack-quantized` of 1 to 8 bits, dense or padded; zero points, act-order, experts."""
    bits, padded = choices.pick((4, 8, 3, 2, 1, 5, 6, 7)), choices.below(2)
    lead = [2] if choices.below(4) == 3 else []
    rows, cols = choices.pick((8, 1, 3, 33)), choices.pick((64, 32, 100, 7, 256))
    n_groups = -(-cols // choices.pick((cols, *GROUPS)))

    def words(n: int) -> int:
        return -(-n // (32 // bits)) if padded else -(-n * bits // 32)

    told.say(version="0.17.1" if padded else "0.18.0", quant_method="compressed-tensors")
    group = {"weights": {"num_bits": bits, "group_size": -(-cols // n_groups)}}
    told.say(config_groups={module_of(name): group})
    tensors = {
        "weight_packed": bytes_of(choices, "I32", [*lead, rows, words(cols)]),
        "weight_scale": bytes_of(choices, choices.pick(SCALES), [*lead, rows, n_groups]),
        "weight_shape": numbers("I64", [*lead, rows, cols]),
    }
    if choices.below(2):
        zeros = bytes_of(choices, "I32", [*lead, words(rows), n_groups])
        tensors["weight_zero_point"] = zeros
    if choices.below(4) == 3 and not lead:
        step, n = choices.below(256), n_groups + choices.below(8) // 7
        tensors["weight_g_idx"] = numbers("I32", [i * step % n for i in range(cols)])
    return under(name, tensors)


def one_byte(choices: Choices, name: str, told: Expected) -> Tensors:
    """INT8 of compressed-tensors, ModelOpt, Quark and quanto: one scale, of rows, of groups."""
    whose = choices.pick(("compressed-tensors", "modelopt", "quark", "quanto"))
    rows, cols = choices.pick((8, 1, 33)), choices.pick((64, 7, 32, 100))
    scale = choices.pick(SCALES)
    grid = choices.pick(([rows, 1], [rows], [1], [], [rows, -(-cols // 32)]))
    names = ("weight", "weight_scale", "weight_zero_point")
    if whose == "quanto":
        names, grid = ("weight._data", "weight._scale", "weight._zeropoint"), [rows, 1]
    told.say(quant_method=whose, **{module_of(name): {"group_size": 32}})
    parts = [bytes_of(choices, "I8", [rows, cols]), bytes_of(choices, scale, grid)]
    if choices.below(2):
        parts.append(bytes_of(choices, "I8", grid))
    tensors = dict(zip(names, parts, strict=False))
    if whose == "modelopt" and choices.below(4) == 3:
        tensors["pre_quant_scale"] = bytes_of(choices, "BF16", [cols])
    return under(name, tensors)


def modelopt(choices: Choices, name: str, told: Expected) -> Tensors:
    """Two rows of 4-bit integers in a line of bytes, with scales of groups."""
    told.say(quant_method="modelopt")
    lines, cols = choices.pick((4, 1, 17)), choices.pick((128, 32, 100, 256))
    grid = [2 * lines, -(-cols // choices.pick((128, 32, cols)))]
    tensors = {
        "weight": bytes_of(choices, "U8", [lines, cols]),
        "weight_scale": bytes_of(choices, choices.pick(SCALES), grid),
    }
    if choices.below(2):
        tensors["weight_scale_2"] = bytes_of(choices, "F32", [])
    if choices.below(4) == 3:
        tensors["pre_quant_scale"] = bytes_of(choices, "BF16", [cols])
    return under(name, tensors)


def bitnet(choices: Choices, name: str, told: Expected) -> Tensors:
    """Ternary weights, four to a byte, with one scale that divides or multiplies."""
    more = {"linear_class": "autobitlinear"} if choices.below(2) else {}
    told.say(quant_method="bitnet", **more)
    codes = bytes_of(choices, "U8", [choices.pick((4, 1, 9)), choices.pick((32, 1, 100))])
    scale = bytes_of(choices, choices.pick(SCALES), choices.pick(([1], [], [2])))
    return under(name, {"weight": codes, "weight_scale": scale})


def mlx(choices: Choices, name: str, told: Expected) -> Tensors:
    """Affine integers of any width and group, of stacks too; told or not."""
    bits, size = choices.pick((4, 8, 2, 3, 5, 6, 1, 7)), choices.pick((64, 32, 128))
    lead = [2] if choices.below(4) == 3 else []
    rows, n_groups = choices.pick((4, 1, 33)), choices.pick((1, 2, 3, 0))
    scale = choices.pick(SCALES)
    if not choices.below(2):
        told.say(**{module_of(name).rstrip("."): {"bits": bits, "group_size": size}})
    tensors = {
        "weight": bytes_of(choices, "U32", [*lead, rows, n_groups * size * bits // 32]),
        "scales": bytes_of(choices, scale, [*lead, rows, n_groups]),
        "biases": bytes_of(choices, scale, [*lead, rows, n_groups]),
    }
    return under(name, tensors)


def comfy(choices: Choices, name: str, told: Expected) -> Tensors:
    """INT8 with one scale, of rows, or of blocks; rotated now and then, where it can be."""
    rows, cols = choices.pick((8, 33, 1)), choices.pick((64, 32, 7))
    block = choices.pick((None, 32, 16))
    said: dict[str, Any] = {"format": "int8_tensorwise"}
    grid = choices.pick(([], [1], [rows, 1]))
    if block is not None:
        said = {"format": "int8_blockwise", "group_size": block}
        grid = [-(-rows // block), -(-cols // block)]
    if choices.below(4) == 3:
        said |= {"convrot": True, "convrot_groupsize": choices.pick((4, 16, 64, 256))}
    tensors = {
        "weight": bytes_of(choices, "I8", [rows, cols]),
        "weight_scale": bytes_of(choices, "F32", grid),
        "comfy_quant": text(json.dumps(said)),
    }
    return under(name, tensors)


def comfy_int4(choices: Choices, name: str, told: Expected) -> Tensors:
    """ComfyUI's integers of 4 bits: rotated, on a grid of INT8, AWQ's, and SVDQuant's."""
    rows, floats = choices.pick((2, 1, 5)), choices.pick(SCALES)
    kind = choices.pick(("convrot_w4a4", "asym_w4a8_int8", "awq_w4a16", "svdquant_w4a4"))
    said: dict[str, Any] = {"format": kind}
    shapes: dict[str, tuple[str, list[int]]] = {"weight_scale": (floats, [1, rows])}
    if kind in ("convrot_w4a4", "asym_w4a8_int8"):
        said |= {"convrot_groupsize": choices.pick((64, 16, 4)), "group_size": 16}
        shapes = {"weight_scale": ("F32", [rows])}
    if kind == "asym_w4a8_int8":
        shapes = {
            "weight_s_rel": (choices.pick(("F8_E4M3", "F32")), [rows, 4]),
            "weight_s_channel": ("F32", [rows]),
            **({"weight_codebook": ("F32", [16])} if choices.below(2) else {}),
        }
    elif kind == "awq_w4a16":
        shapes["weight_zeros"] = floats, [1, rows]
    elif kind == "svdquant_w4a4":
        shapes |= {"smooth_factor": (floats, [64])}
        shapes |= {"proj_down": (floats, [64, 2]), "proj_up": (floats, [rows, 2])}
    tensors = {end: bytes_of(choices, *one) for end, one in shapes.items()}
    tensors["weight"] = bytes_of(choices, "I8", [rows, 32])
    return under(name, tensors | {"comfy_quant": text(json.dumps(said))})


def quanto(choices: Choices, name: str, told: Expected) -> Tensors:
    """qint4 and qint2 in groups of any size; the sizes of the model, or a bias, say the rest."""
    n, size = choices.below(9) + 1, choices.pick((32, 64, 96, 128, 7))
    stacked, scale = 2 << choices.below(2), choices.pick(SCALES)
    cols = size * choices.pick((2, 3, 1, 5))
    told.sizes.setdefault("hidden_size", cols)
    told.sizes.setdefault("vocab_size", max(n * size // cols, 1))
    parts = {
        "weight._data._data": bytes_of(choices, "U8", [-(-n // stacked), size]),
        "weight._scale": bytes_of(choices, scale, [n, 1]),
        "weight._shift": bytes_of(choices, scale, [n, 1]),
    }
    if choices.below(2):
        parts["bias"] = bytes_of(choices, "F32", [n * size // cols])
    return under(name, parts)


def hqq(choices: Choices, name: str, told: Expected) -> Tensors:
    """HQQ in any width, by either axis, seen as floats now and then, with its packing or not."""
    bits, axis, scale = choices.pick((4, 8, 3, 2, 1, 5)), choices.below(2), choices.pick(SCALES)
    matrix = [8 * choices.pick((1, 2, 5)), choices.pick((32, 1, 7))]
    stacked = 10 if bits == 3 else 1 if bits == 5 else 8 // bits
    grid = [matrix[0], 1] if axis else [1, matrix[1]]
    times = choices.pick((1, 2, 4))
    told_shape = [matrix[0] // times, matrix[1] * times]
    codes = [-(-matrix[0] // stacked), matrix[1]]
    kind = "I32" if bits == 3 else "U8"
    dtype, shape, raw = bytes_of(choices, kind, codes)
    if choices.below(4) == 3 and codes[1] % 2 == 0:
        dtype, shape = ("F32", shape) if bits == 3 else ("BF16", [codes[0], codes[1] // 2])
    tensors = {
        "W_q": (dtype, shape, raw),
        "scale": bytes_of(choices, scale, grid),
        "zero": bytes_of(choices, scale, grid),
        "shape": numbers("I64", told_shape),
        "nbits": numbers("I32", [bits], []),
        "axis": numbers("I32", [axis], []),
    }
    if bits == 5 or choices.below(2):
        tensors["packing"] = text(_PACKINGS[bits])
    if choices.below(4) == 3:
        tensors["group_size"] = numbers("I32", [choices.pick(GROUPS)], [])
    return under(name, tensors)


def gemma(choices: Choices, name: str, told: Expected) -> Tensors:
    """Gemma's integers, of layers and of embeddings."""
    bits, rows = choices.pick((2, 4, 8)), 1 + choices.below(4)
    told.say(quant_method="gemma", num_bits=bits)
    codes = bytes_of(choices, "I8" if bits == 8 else "U8", [rows, choices.pick((8, 1, 3))])
    scale = bytes_of(choices, "F32", [rows, 1])
    ends = choices.pick((("weight", "weight_scale"), ("embedding_quantized", "embedding_scale")))
    return under(name, dict(zip(ends, (codes, scale), strict=True)))


FAMILIES: tuple[Family, ...] = (
    *(compressed_tensors, one_byte, modelopt, bitnet, mlx, comfy, comfy_int4, quanto, hqq, gemma),
)
