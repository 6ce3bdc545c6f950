"""Weights out of codebooks, and those with a bitmask, from a fuzzer's bytes."""

from __future__ import annotations

from structured import Choices
from structured_parts import SCALES, Expected, Family, Tensors, bytes_of, module_of, numbers, under

__all__ = ["FAMILIES"]

ROWS = (8, 1, 2, 3, 32, 33, 0)
COLS = (32, 64, 8, 1, 2, 7, 65, 128, 0)
SIZES = (*range(9), 31, 32, 64, 100, 256, 4096, 2**31, 2**40, 2**62, 2**63 - 1)


def aqlm(choices: Choices, name: str, told: Expected) -> Tensors:
    """Codes and codebooks, of as many entries as there are bits, or of others."""
    books, entries = choices.pick((1, 2, 3)), choices.pick((256, 16, 2, 1, 100))
    tall, wide = choices.pick((1, 2, 3)), choices.pick((8, 1, 3))
    groups = [choices.pick((1, 3, 8, 0)), choices.pick((1, 2, 9, 0))]
    told.say(quant_method="aqlm")
    parts = {
        "codes": bytes_of(choices, choices.pick(("I8", "I16", "U8")), [*groups, books]),
        "codebooks": bytes_of(choices, choices.pick(SCALES), [books, entries, tall, wide]),
        "scales": bytes_of(choices, choices.pick(SCALES), [groups[0], 1, 1, 1]),
    }
    return under(name, parts)


def vptq(choices: Choices, name: str, told: Expected) -> Tensors:
    """Indices of vectors and of corrections, in words or not, permuted, scaled; what says it."""
    length, n_vectors = choices.pick((6, 1, 8)), choices.pick((2, 1, 5))
    groups, per_group = choices.pick((1, 2)), choices.pick((16, 8, 33))
    entries, more = choices.pick((64, 1, 256, 100)), choices.pick((0, 16, 64))
    dtype, cols = choices.pick(SCALES), groups * per_group
    bits = (entries - 1).bit_length() + (max(more, 1) - 1).bit_length()
    lines = [groups, n_vectors, per_group]
    parts = {"centroids.weight": bytes_of(choices, dtype, [groups, entries * length])}
    if choices.below(2):
        parts["indices"] = bytes_of(choices, "I16", lines)
    else:
        parts["indices"] = bytes_of(choices, "I32", [groups, n_vectors, -(-per_group * bits // 32)])
    if more:
        parts["res_centroids.weight"] = bytes_of(choices, dtype, [groups, more * length])
    if more and parts["indices"][0] == "I16":
        parts["res_indices"] = bytes_of(choices, "I16", lines)
    if choices.below(2):
        step = choices.pick((1, 5, 2))
        parts["perm"] = numbers("I64", [i * step % max(cols, 1) for i in range(cols)])
    if choices.below(2):
        scales = {f"weight_{end}": bytes_of(choices, dtype, [cols]) for end in ("scale", "bias")}
        parts |= scales
    said = {"vector_lens": [-1, length], "out_features": n_vectors * length - choices.below(2)}
    layers = {module_of(name).rstrip("."): {**said, "in_features": cols}}
    told.say(quant_method="vptq", config_for_layers=layers)
    return under(name, parts)


def sparse(choices: Choices, name: str, told: Expected) -> Tensors:
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
    shape = [rows, cols if choices.below(16) < 15 else choices.pick(SIZES)]
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


FAMILIES: tuple[Family, ...] = (aqlm, vptq, sparse)
