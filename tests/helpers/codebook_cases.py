"""One layer of AQLM and one of VPTQ, made by hand, with their values."""

from __future__ import annotations

import struct

from helpers.handmade import Entry

Tensors = dict[str, Entry]


def halves(*values: float, shape: tuple[int, ...]) -> Entry:
    return "F16", shape, struct.pack(f"<{len(values)}e", *values)


def shorts(*values: int, shape: tuple[int, ...]) -> Entry:
    return "I16", shape, struct.pack(f"<{len(values)}h", *values)


# Two codebooks of four entries, of two columns each; rows times 2 and -1.
AQLM: Tensors = {
    "a.codes": ("I8", (2, 2, 2), bytes([0, 1, 2, 0xFF, 0xFE, 0, 1, 1])),
    "a.codebooks": halves(
        0, 1, 2, 3, 4, 5, 6, 7, 0, 10, 20, 30, 40, 50, 60, 70, shape=(2, 4, 1, 2)
    ),
    "a.scales": halves(2, -1, shape=(2, 1, 1, 1)),
}
AQLM_VALUES = [[40, 62, 128, 150], [-4, -15, -22, -33]]

# Vectors of two rows; of four columns, which go elsewhere, are scaled and moved.
VPTQ: Tensors = {
    "a.indices": shorts(0, 1, 2, 1, 2, 2, 0, 0, shape=(1, 2, 4)),
    "a.centroids.weight": halves(1, 2, 3, 4, 5, 6, shape=(1, 6)),
    "a.perm": shorts(1, 0, 3, 2, shape=(4,)),
    "a.weight_scale": halves(1, 2, 1, 1, shape=(4,)),
    "a.weight_bias": halves(0, 0, 0, 0.5, shape=(4,)),
}
VPTQ_VALUES = [[3, 2, 3, 5.5], [4, 4, 4, 6.5], [5, 10, 1, 1.5]]
LAYER = {"vector_lens": [-1, 2], "in_features": 4, "out_features": 3}
