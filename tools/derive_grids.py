"""Writes csrc/kernels/iq_grids.c: the grids, levels and signs of the IQ types, as gguf-py has them.

    python tools/derive_grids.py > csrc/kernels/iq_grids.c

A grid's entry is a row of 4 or 8 values out of a few levels. It stands there as the indices of the
levels, a byte each, the first value in the lowest byte. Grids that share their levels name them
once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import gguf.quants as quants
import numpy as np

GRIDS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")
LEVELS = {"iq1": "IQ1_S", "iq2": "IQ2_XXS", "iq3_xxs": "IQ3_XXS", "iq3_s": "IQ3_S"}
WIDTH = 100
HEAD = """\
/* The grids, levels and signs of the IQ types. Written by tools/derive_grids.py: do not edit. */
#include "iq_grids.h"

/* clang-format off */
"""


def levels(name: str) -> list[int]:
    """The values a grid is made of, in the order of their indices."""
    return [int(level) for level in getattr(quants, name).grid_map]


def indices(name: str) -> np.ndarray:
    """A grid as indices of its levels: an entry a row."""
    traits = getattr(quants, name)
    traits.init_grid()
    values = traits.grid.reshape(traits.grid_shape).astype(np.int64)
    found = np.array([levels(name).index(value) for value in values.ravel()], np.uint8)
    return found.reshape(values.shape)


def wrapped(items: Iterable[str]) -> Iterator[str]:
    """Items of an initialiser in lines."""
    line = " "
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            yield line
            line = " "
        line += f" {item},"
    yield line


def table(declaration: str, items: Iterable[str]) -> str:
    """One array."""
    return "\n".join([f"\nconst {declaration} = {{", *wrapped(items), "};\n"])


def derive() -> str:
    """The whole file."""
    parts = [HEAD]
    for name in GRIDS:
        entries = indices(name)
        count, length = entries.shape
        words = (int.from_bytes(entry.tobytes(), "little") for entry in entries)
        parts.append(
            table(
                f"uint{8 * length}_t amn_{name.lower()}_grid[{count}]",
                (f"0x{word:0{2 * length}x}{'' if length == 4 else 'u'}" for word in words),
            )
        )
    for name, grid in LEVELS.items():
        parts.append(
            table(f"int8_t amn_{name}_levels[{len(levels(grid))}]", map(str, levels(grid)))
        )
    values = quants.IQ4_NL.kvalues
    parts.append(table(f"int8_t amn_iq4_levels[{len(values)}]", map(str, values)))
    signs = quants.IQ2_XXS.ksigns
    parts.append(table(f"uint8_t amn_iq_signs[{len(signs)}]", (f"0x{sign:02x}" for sign in signs)))
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(derive())
