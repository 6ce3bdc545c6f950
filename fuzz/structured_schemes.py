"""Quantised weights built from a fuzzer's bytes: what a scheme looks for, mostly as it should be.

A family is a function that returns the stored tensors of one weight. New families go into FAMILIES.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from structured import BITS, Choices

Entry = tuple[str, list[int], bytes]  # dtype, shape, the bytes
Tensors = dict[str, Entry]

ROWS = (0, 1, 2, 3, 8, 32, 33)
COLS = (0, 1, 2, 7, 32, 64, 65, 128)
SIZES = (*range(9), 31, 32, 64, 100, 256, 4096, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30)
IN_FEATURES = (64, 128, 256, 96, 32, 100, 33, 8, 1, 0)
OUT_FEATURES = (32, 64, 8, 40, 96, 33, 1, 0)
GROUPS = (32, 64, 128, 16, 256, 1, 7)
SCALES = ("F16", "BF16", "F32")
CONFIGS: tuple[dict[str, str], ...] = (  # as GPTQ's savers repeat them in the metadata
    *({}, {"gptq_checkpoint_format": "gptq_v2"}, {"gptq_bits": "4", "gptq_group_size": "32"}),
    *({"gptq_bits": "2", "gptq_group_size": "-1"}, {"gptq_checkpoint_format": "marlin"}),
    {"gptq_group_size": "0", "gptq_bits": "-999999999"},
    *({"gptq_checkpoint_format": layout} for layout in ("gptq_p", "gemv")),
)
LIES: tuple[Any, ...] = (
    *(None, True, False, -1, 0.5, "64", [], {}, [64], 10**400, 1e300, float("nan"), "nf4", "fp4"),
)
SHAPES: tuple[list[Any], ...] = (
    *([], [-1, -1], [0], [2**40, 2**40], [1] * 70, [1.0], [True], [None], ["2"], [2**63]),
)


def bytes_of(choices: Choices, dtype: str, shape: list[int]) -> Entry:
    """Return a tensor of random bytes."""
    n = BITS[dtype]
    for dim in shape:
        n *= dim
    return dtype, shape, choices.some(n // 8)


def bnb_four_bit(choices: Choices, name: str) -> Tensors:
    """NF4 or FP4 of bitsandbytes, plain or double-quantised, in any block size and storage."""
    shape = [choices.pick(ROWS), choices.pick(COLS)]
    n, block, nested = shape[0] * shape[1], choices.pick((64, 32, 1, 7, 4096)), choices.below(2)
    n_absmax = -(-n // block)
    kind = choices.pick(("nf4", "fp4"))
    told: dict[str, Any] = {"quant_type": kind, "blocksize": block, "shape": shape}
    tensors = {
        name: bytes_of(choices, "U8", [(n + 1) // 2, 1]),
        f"{name}.absmax": bytes_of(choices, "U8" if nested else "F32", [n_absmax]),
        f"{name}.quant_map": bytes_of(choices, "F32", [16]),
    }
    if nested:
        told |= {"nested_blocksize": choices.pick((256, 1, 3)), "nested_offset": 0.25}
        n_nested = -(-n_absmax // told["nested_blocksize"])
        tensors[f"{name}.nested_absmax"] = bytes_of(choices, "F32", [n_nested])
        tensors[f"{name}.nested_quant_map"] = bytes_of(choices, "F32", [256])
    raw = bnb_quant_state(choices, told)
    tensors[f"{name}.quant_state.bitsandbytes__{kind}"] = "U8", [len(raw)], raw
    return tensors


def bnb_quant_state(choices: Choices, told: dict[str, Any]) -> bytes:
    """Return its JSON, now and then with a lie or a scrap in it."""
    for _ in range(max(0, choices.below(8) - 5)):
        key = choices.pick(sorted(told))
        told[key] = choices.pick((*LIES, *SIZES, *SHAPES))
    text = json.dumps(told)
    if choices.below(16) == 15:
        at = choices.below(256) % (len(text) + 1)
        text = text[:at] + choices.pick(("", "\0", "[" * 5000, "}", "é", "\ud800", "1e999"))
    return text.encode("utf-8", "surrogatepass")


def bnb_int8(choices: Choices, name: str) -> Tensors:
    """LLM.int8() of bitsandbytes."""
    layer = name.removesuffix("weight")
    shape = [choices.pick(ROWS), choices.pick(COLS)]
    tensors = {
        name: bytes_of(choices, "I8", shape),
        f"{layer}SCB": bytes_of(choices, "F32", shape[:1]),
    }
    if choices.below(2):
        tensors[f"{layer}weight_format"] = "U8", [], bytes([choices.below(8) // 7])
    return tensors


def gptq(choices: Choices, name: str) -> Tensors:
    """GPTQ in any width, with a g_idx of any kind or none."""
    bits = choices.pick((4, 3, 2, 8, 5, 6, 7))
    in_features, out_features = choices.pick(IN_FEATURES), choices.pick(OUT_FEATURES)
    n_groups = -(-in_features // choices.pick(GROUPS))
    tensors = {
        "qweight": bytes_of(choices, "I32", [-(-in_features * bits // 32), out_features]),
        "qzeros": bytes_of(choices, "I32", [n_groups, -(-out_features * bits // 32)]),
        "scales": bytes_of(choices, choices.pick(SCALES), [n_groups, out_features]),
    }
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


def awq(choices: Choices, name: str) -> Tensors:
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


def awq_gemv(choices: Choices, name: str) -> Tensors:
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


def marlin(choices: Choices, name: str) -> Tensors:
    """Marlin under either pair of names, of whole tiles mostly."""
    rows, lines = choices.pick((64, 128, 192, 48)), choices.pick((1, 8, 4, 0))
    names = choices.pick((("B", "s"), ("qweight", "scales")))
    groups = choices.pick((1, 2, 4, 3, 0))
    width = choices.pick((2, 2, 4)) * rows
    codes = bytes_of(choices, "I32", [lines, width])
    scales = bytes_of(choices, choices.pick(SCALES), [groups, rows])
    return under(name, dict(zip(names, (codes, scales), strict=True)))


def sparse(choices: Choices, name: str) -> Tensors:
    """A matrix with a bitmask, two of four values or any number of them, with a scale or none."""
    rows, cols = choices.pick(ROWS), choices.pick(COLS)
    dtype, kind = choices.pick(("BF16", "F8_E4M3", "I8", "F32", "F64", "BOOL")), choices.below(3)
    mask_row = -(-cols // 8)
    mask = choices.some(rows * mask_row) if kind else b"\x5a" * (rows * mask_row)
    lines = [mask[i * mask_row : (i + 1) * mask_row] for i in range(rows)]
    counts = [(int.from_bytes(line, "little") & ((1 << cols) - 1)).bit_count() for line in lines]
    if kind == 2:
        counts = [min(count + choices.below(2), cols) for count in counts]
    starts = [sum(counts[:i]) for i in range(rows)]
    shape = [rows, cols if choices.below(16) else choices.pick(SIZES) % 2**63]
    raw_shape = b"".join(n.to_bytes(8, "little") for n in shape)
    is_24 = choices.below(2)
    n_values = [rows, cols // 2] if is_24 else [sum(counts)]
    module = name.removesuffix("weight") if is_24 else f"{name}."
    tensors = {
        f"{module}bitmask": ("U8", [rows, mask_row], mask),
        f"{module}compressed": bytes_of(choices, dtype, n_values),
        f"{module}shape": ("I64", [2, 1] if is_24 else [2], raw_shape),
    }
    if not is_24:
        raw = b"".join(start.to_bytes(8, "little") for start in starts)
        tensors[f"{module}row_offsets"] = "I64", [rows], raw
    if choices.below(2):
        tensors[f"{name}_scale"] = bytes_of(choices, "F32", [rows, 1])
    return tensors


def aqlm(choices: Choices, name: str) -> Tensors:
    """Codes and codebooks, of as many entries as there are bits, or of others."""
    books, entries = choices.pick((1, 2, 3)), choices.pick((256, 16, 2, 1, 100))
    tall, wide = choices.pick((1, 2, 3)), choices.pick((8, 1, 3))
    groups = [choices.pick((1, 3, 8, 0)), choices.pick((1, 2, 9, 0))]
    parts = {
        "codes": bytes_of(choices, choices.pick(("I8", "I16", "U8")), [*groups, books]),
        "codebooks": bytes_of(choices, choices.pick(SCALES), [books, entries, tall, wide]),
        "scales": bytes_of(choices, choices.pick(SCALES), [groups[0], 1, 1, 1]),
    }
    return under(name, parts)


def quark(choices: Choices, name: str) -> Tensors:
    """Quark's words in groups, rows, or with one scale; bytes in groups; FP6."""
    rows, cols, group = 8 * choices.pick((1, 2, 5)), 8 * choices.pick(COLS), choices.pick(GROUPS)
    scale, kind = choices.pick(SCALES), choices.below(5)
    n_groups = -(-cols // group)
    grid = [n_groups, rows] if kind in (0, 3) else [rows] if kind == 1 else []
    codes, zeros = ("I32", [rows, cols // 8]), ("I32", [rows // 8] if kind == 1 else [])
    if kind == 0:
        codes, zeros = ("I32", [cols, rows // 8]), ("I32", [n_groups, rows // 8])
    elif kind == 3:
        codes, zeros = ("I8", [cols, rows]), ("I8", grid)
    elif kind == 4:
        groups = cols // 8
        tensors = {"weight": bytes_of(choices, "U8", [rows, 24 * groups])}
        return under(name, tensors | {"weight_scale": bytes_of(choices, "U8", [rows, groups])})
    tensors = {
        "weight": bytes_of(choices, *codes),
        "weight_scale": bytes_of(choices, scale, grid),
        "weight_zero_point": bytes_of(choices, *zeros),
    }
    return under(name, tensors)


def quanto(choices: Choices, name: str) -> Tensors:
    """qint4 and qint2 in groups of any size."""
    n, size = choices.below(9) + 1, choices.pick((32, 64, 96, 128, 7))
    stacked, scale = 2 << choices.below(2), choices.pick(SCALES)
    return {
        f"{name}._data._data": bytes_of(choices, "U8", [-(-n // stacked), size]),
        f"{name}._scale": bytes_of(choices, scale, [n, 1]),
        f"{name}._shift": bytes_of(choices, scale, [n, 1]),
    }


def hqq(choices: Choices, name: str) -> Tensors:
    """HQQ in any width, by either axis."""
    bits, axis, scale = choices.pick((1, 2, 3, 4, 8, 5)), choices.below(2), choices.pick(SCALES)
    matrix = [8 * choices.pick((1, 2, 5)), choices.pick((1, 7, 32))]
    stacked = 10 if bits == 3 else max(8 // bits, 1)
    grid = [matrix[0], 1] if axis else [1, matrix[1]]
    codes = [-(-matrix[0] // stacked), matrix[1]]
    numbers = {"nbits": bits, "axis": axis}
    tensors = {
        "W_q": bytes_of(choices, "I32" if bits == 3 else "U8", codes),
        "scale": bytes_of(choices, scale, grid),
        "zero": bytes_of(choices, scale, grid),
        "shape": ("I64", [2], b"".join(n.to_bytes(8, "little") for n in matrix)),
        **{k: ("I32", list[int](), n.to_bytes(4, "little")) for k, n in numbers.items()},
    }
    return under(name, tensors)


def under(name: str, parts: Tensors) -> Tensors:
    """Return the parts of a module whose weight has this name."""
    module = name.removesuffix("weight")
    return {f"{module}{part}": entry for part, entry in parts.items()}


FAMILIES: tuple[Callable[[Choices, str], Tensors], ...] = (
    *(bnb_four_bit, bnb_int8, gptq, awq, awq_gemv, marlin, sparse, aqlm),
    *(quark, quanto, hqq),
)

# What a directory's config.json says, for what a file alone leaves open.
_WORDS: tuple[dict[str, Any], ...] = tuple(
    {"quant_method": "quark", "export": {"pack_method": order}, "x": {"weight": {"dtype": dtype}}}
    for order in ("order", "reorder")
    for dtype in ("int4", "uint4", "fp6_e2m3", "fp6_e3m2")
)
DIRECTORIES: tuple[dict[str, Any] | None, ...] = (
    *(None, None, None, None, None, None, None, None),
    *({"quantization_config": section} for section in _WORDS),
    *({"hidden_size": 192, "intermediate_size": 2}, {"hidden_size": 256, "vocab_size": 2}),
)


def spoil(choices: Choices, tensors: Tensors) -> None:
    """Lose a tensor, or give it another name, dtype or shape."""
    name = choices.pick(sorted(tensors))
    dtype, shape, raw = tensors.pop(name)
    kind = choices.below(5)
    if kind == 1:
        tensors[choices.pick((*sorted(tensors), f"{name}.absmax", f"x{name}"))] = dtype, shape, raw
    elif kind == 2:
        dtype = choices.pick(sorted(BITS))
        n_bytes = BITS[dtype] * (len(raw) // max(BITS[dtype], 8)) // 8 * 8
        n = n_bytes * 8 // BITS[dtype]
        tensors[name] = dtype, [n], raw[:n_bytes]
    elif kind == 3:
        tensors[name] = dtype, [1, *shape, 1], raw
    elif kind == 4:
        tensors[name] = bytes_of(choices, dtype, [choices.pick(ROWS), choices.pick(COLS)])


def quantised_file(choices: Choices) -> bytes:
    """Return a valid safetensors file of a few quantised weights, some of them spoiled."""
    tensors: Tensors = {}
    for _ in range(1 + choices.below(3)):
        family = choices.pick(FAMILIES)
        tensors |= family(choices, choices.pick(("a.weight", "b.weight", "weight", "a", "é")))
    for _ in range(max(0, choices.below(6) - 3)):
        if tensors:
            spoil(choices, tensors)
    config = choices.pick(CONFIGS)
    header: dict[str, Any] = {"__metadata__": config} if config else {}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data
