"""Weights in words and in tiles, from a fuzzer's bytes: GPTQ, AWQ, Marlin, Quark, EXL2."""

from __future__ import annotations

from structured import Choices
from structured_parts import SCALES, Expected, Family, Tensors, bytes_of, module_of, numbers, under

__all__ = ["FAMILIES", "exl2", "marlin_24"]

IN_FEATURES = (64, 128, 256, 96, 32, 100, 33, 8, 1, 0)
OUT_FEATURES = (32, 64, 8, 40, 96, 33, 1, 0)
EXL2_GROUPS: tuple[list[tuple[int, int]], ...] = (
    *([(4, 32), (3, 32), (2, 16)], [(8, 32), (6, 32), (5, 64), (5, 32)], [(2, 48)], [(3, 32)] * 3),
    *([(4, 32), (5, 32)], [(4, 16)], [(7, 32)], [], [(8, 64)]),
)
GROUPS = (32, 64, 128, 16, 256, 1, 7)


def gptq(choices: Choices, name: str, told: Expected) -> Tensors:
    """GPTQ in any width, with a g_idx of any kind or none."""
    bits = choices.pick((4, 3, 2, 8, 5, 6, 7))
    in_features, out_features = choices.pick(IN_FEATURES), choices.pick(OUT_FEATURES)
    n_groups = -(-in_features // choices.pick(GROUPS))
    tensors = {
        "qweight": bytes_of(choices, "I32", [-(-in_features * bits // 32), out_features]),
        "qzeros": bytes_of(choices, "I32", [n_groups, -(-out_features * bits // 32)]),
        "scales": bytes_of(choices, choices.pick(SCALES), [n_groups, out_features]),
    }
    if not choices.below(2):
        planes = {"checkpoint_format": "gptq_p"} if choices.below(4) == 3 else {}
        told.say(**{module_of(name): {"bits": bits}}, **planes)
    kind = choices.below(5)
    if kind:
        tensors["g_idx"] = "I32", [in_features], g_idx(choices, kind, in_features, n_groups)
    return under(name, tensors)


def g_idx(choices: Choices, kind: int, n: int, n_groups: int) -> bytes:
    """Return the group of each in feature: runs, mixed, one of them lying, or anything."""
    size = -(-n // max(n_groups, 1))
    groups = [i // max(size, 1) for i in range(n)]
    if kind == 2:
        step = choices.below(256)
        groups = [i * step % max(n_groups, 1) for i in range(n)]
    elif kind == 3 and n:
        groups[choices.below(256) % n] = choices.pick((-1, n_groups, 2**31 - 1, -(2**31)))
    elif kind == 4:
        return choices.some(4 * n)
    return b"".join(group.to_bytes(4, "little", signed=True) for group in groups)


def awq(choices: Choices, name: str, told: Expected) -> Tensors:
    """AWQ's GEMM layout, and the same in other widths."""
    bits = choices.pick((4, 4, 4, 8, 5))
    in_features, out_features = choices.pick(IN_FEATURES), choices.pick(OUT_FEATURES)
    n_groups = -(-in_features // choices.pick(GROUPS))
    n_words = out_features * bits // 32
    tensors = {
        "qweight": bytes_of(choices, "I32", [in_features, n_words]),
        "qzeros": bytes_of(choices, "I32", [n_groups, n_words]),
        "scales": bytes_of(choices, choices.pick(SCALES), [n_groups, out_features]),
    }
    return under(name, tensors)


def awq_gemv(choices: Choices, name: str, told: Expected) -> Tensors:
    """AWQ's GEMV and GEMV-fast, with as many places for scales as it has, or others."""
    rows, cols = choices.pick((8, 4, 64, 12)), choices.pick((64, 128, 256, 512, 96))
    size = choices.pick((32, 64, 128, cols))
    places = 8 * -(-cols // size // 8) * choices.pick((1, 1, 2, 4))
    if choices.below(2):
        parts = {
            "qweight": bytes_of(choices, "I16", [rows // 4, cols]),
            "qzeros": bytes_of(choices, "F16", [places, rows]),
            "scales": bytes_of(choices, "F16", [places, rows]),
        }
        if choices.below(2):
            parts["qzeros"] = "F16", [places, rows], bytes(2 * places * rows)
    else:
        parts = {
            "qweight": bytes_of(choices, "I32", [rows, cols // 8]),
            "qzeros": bytes_of(choices, "I32", [rows, places // 8]),
            "scales": bytes_of(choices, choices.pick(SCALES), [rows, places]),
        }
    return under(name, parts)


def marlin(choices: Choices, name: str, told: Expected) -> Tensors:
    """Marlin under either pair of names, of whole tiles mostly."""
    rows, lines = choices.pick((64, 128, 192, 48)), choices.pick((1, 8, 4, 0))
    names = choices.pick((("B", "s"), ("qweight", "scales")))
    groups = choices.pick((1, 2, 4, 3, 0))
    width = choices.pick((2, 2, 4)) * rows
    codes = bytes_of(choices, "I32", [lines, width])
    scales = bytes_of(choices, choices.pick(SCALES), [groups, rows])
    return under(name, dict(zip(names, (codes, scales), strict=True)))


def marlin_24(choices: Choices, name: str, told: Expected) -> Tensors:
    """2:4 sparse Marlin under either names, of whole tiles mostly; what is stored is in order."""
    rows, lines = choices.pick((64, 128, 48, 0)), choices.pick((1, 4, 2, 0))
    names = choices.pick((("weight_packed", "scale_packed", "meta"), ("B_24", "s", "B_meta")))
    width, n_items = choices.pick((2, 4)) * rows, 2 * lines * rows
    meta = choices.pick((b"\x44", b"\x98", b"\xec", b"\xde")) * (2 * n_items)
    parts = (
        bytes_of(choices, "I32", [lines, width]),
        bytes_of(choices, choices.pick(SCALES), [choices.pick((1, 2, 4, 3, 0)), rows]),
        ("I16", [lines, 2 * rows], choices.some(2 * n_items) if choices.below(4) == 3 else meta),
    )
    return under(name, dict(zip(names, parts, strict=True)))


def quark(choices: Choices, name: str, told: Expected) -> Tensors:
    """Quark's words in groups, rows, or with one scale, with or without zero points; bytes."""
    rows, cols = 8 * choices.pick((1, 2, 5)), choices.pick((32, 8, 64, 256))
    group, scale, kind = choices.pick(GROUPS), choices.pick(SCALES), choices.below(5)
    dtype, order = choices.pick(("int4", "uint4")), choices.pick(("order", "reorder"))
    told.say(quant_method="quark", export={"pack_method": order})
    told.say(**{module_of(name): {"weight": {"dtype": dtype}, "group_size": group}})
    n_groups = -(-cols // group)
    codes, grid, zeros = {
        0: (("I32", [cols, rows // 8]), [n_groups, rows], ("I32", [n_groups, rows // 8])),
        1: (("I32", [rows, cols // 8]), [rows], ("I32", [rows // 8])),
        2: (("I32", [rows, cols // 8]), [], ("I32", [])),
        3: (("I8", [cols, rows]), [n_groups, rows], ("I8", [n_groups, rows])),
        4: (("I8", [rows, cols]), [], ("I8", [])),
    }[kind]
    tensors = {
        "weight": bytes_of(choices, *codes),
        "weight_scale": bytes_of(choices, scale, grid),
    }
    if kind == 0 or choices.below(2) == 0:
        tensors["weight_zero_point"] = bytes_of(choices, *zeros)
    return under(name, tensors)


def exl2(choices: Choices, name: str, told: Expected) -> Tensors:
    """EXL2 of groups of some bits and sizes, with an order, either of which may lie."""
    out_features = choices.pick((32, 64, 8, 40, 33, 0))
    groups = choices.pick(EXL2_GROUPS)
    starts = [sum(size * bits // 32 for bits, size in groups[:i]) for i in range(len(groups) + 1)]
    in_features = sum(size for _, size in groups)
    step = choices.pick((1, 5, 2))
    order = [i * step % max(in_features, 1) for i in range(in_features)]
    pairs = [n for (bits, _), start in zip(groups, starts, strict=False) for n in (bits, start)]
    kind = choices.below(6)
    if kind == 3 and pairs:
        pairs[choices.below(256) % len(pairs)] = choices.pick((0, 1, 7, 32767, -1, -32768))
    elif kind == 4 and order:
        order[choices.below(256) % len(order)] = choices.pick((-1, in_features, 2**31 - 1))
    elif kind == 5:
        order = []
    tensors = {
        "q_weight": bytes_of(choices, "I32", [starts[-1], out_features]),
        "q_scale": bytes_of(choices, "I32", [len(groups), out_features // 8]),
        "q_scale_max": bytes_of(choices, "F16", [len(groups)]),
        "q_groups": numbers("I16", pairs),
        "q_invperm": numbers("I32", order),
    }
    if choices.below(4) == 3:
        tensors["q_perm"] = numbers("I32", order)
    told.say(quant_method="exl2", bits=4.0)
    return under(name, tensors)


FAMILIES: tuple[Family, ...] = (gptq, awq, awq_gemv, marlin, quark)
