"""Writes csrc/kernels/bnb_tables.c: the codebooks of bitsandbytes, and where its codes change.

    python tools/derive_bnb.py > csrc/kernels/bnb_tables.c

A code of 4 bits is found among the sorted entries of its codebook. One of 8 bits is looked up in a
table of 65,536 entries; that table never falls, so that where each code begins says all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import bitsandbytes.functional as library
import numpy as np
import torch
from numpy.typing import NDArray

BLOCK = 256
TABLES = Path(__file__).parents[1] / "csrc/kernels/bnb_tables.h"
STEPS = 65_536
WIDTH = 100
HEAD = """\
/* The codebooks of bitsandbytes. Written by tools/derive_bnb.py: do not edit. */
#include "bnb_tables.h"
#include <math.h>

/* clang-format off */
"""


def step_values() -> NDArray[np.float32]:
    """A number of each of the steps from -1 to 1 that bitsandbytes looks codes up by."""
    return (np.arange(STEPS) / (STEPS - 1) * 2 - 1).astype(np.float32)


def library_codes(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The codes that its `quantize_blockwise` gives numbers from -1 to 1, unscaled."""
    rows = np.ones((-(-values.size // (BLOCK - 1)), BLOCK), np.float32)  # 1 is the largest of each
    flat = np.zeros(rows.shape[0] * (BLOCK - 1), np.float32)
    flat[: values.size] = values
    rows[:, 1:] = flat.reshape(-1, BLOCK - 1)
    codes, _ = library.quantize_blockwise(torch.from_numpy(rows), blocksize=BLOCK)
    return codes.numpy().reshape(rows.shape)[:, 1:].reshape(-1)[: values.size]


def begins() -> NDArray[np.int64]:
    """The first step of each code from 1 on."""
    return np.searchsorted(library_codes(step_values()), np.arange(1, 256))


def wrapped(items: Iterable[str], indent: str) -> Iterator[str]:
    """Items of an initialiser in lines."""
    line = indent
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            yield line
            line = indent
        line += f" {item},"
    yield line


def floats(values: Iterable[float]) -> list[str]:
    """Literals of float32, to the bit."""
    return [
        "INFINITY" if value == np.inf else re.sub(r"\.?0*p", "p", float(value).hex(), count=1) + "f"
        for value in values
    ]


def bounds(
    middles: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
    """What bounds of midpoints in bfloat16 are found by: bnb_tables.h says what these are."""
    kept = middles != 0
    magnitudes = np.where(kept, np.abs(middles), np.float32(0.5))
    within = np.where(middles < 0, np.nextafter(magnitudes, np.float32(0)), magnitudes)
    return magnitudes * np.float32(1 - 2**-20), within, middles < 0, kept


def steps(middles: list[float]) -> tuple[list[float], list[int]]:
    """The midpoint in each step, if there is one, and how many lie before: see bnb_tables.h."""
    (to_1,) = re.findall(r"AMN_CODEBOOK_STEPS ([\d.]+)f", TABLES.read_text("utf-8"))
    at = {middle: middle * float(to_1) for middle in middles if middle}
    own = {int(np.floor(place)): middle for middle, place in at.items()}
    assert len(own) == len(at)
    assert all(0.02 < place % 1 < 0.98 for place in at.values())  # not by rounding
    found = [own.get(i if i < 16 else i - 32, np.inf) for i in range(32)]
    numbers = (i if i < 32 else i - 64 for i in range(64))
    return found, [sum(step < i for step in own) for i in numbers]


def masks(flags: NDArray[np.bool_]) -> Iterator[str]:
    """Words of all ones, or 0."""
    return ("0xffffffff" if flag else "0" for flag in flags)


def codebook4(kind: str) -> str:
    """A codebook of 16 entries as the kernels take it."""
    stored = library.get_4bit_type(kind, device="cpu")
    order = torch.argsort(stored)
    numbers = stored[order]
    middles = ((numbers[:-1] + numbers[1:]) / 2).tolist()
    search = [[middles[7]] * 8, [middles[3], middles[11]] * 4, middles[1::4] * 2, middles[::2]]
    reduced, within, signs, kept = bounds(
        np.array([*middles[::4], *middles[1::4], *middles[3::4], 0, *middles[2::4]], np.float32)
    )
    step_middles, before = steps(middles)
    rows = [
        *("    {", *wrapped(floats(stored.tolist()), "       "), "    },"),
        *("    {", *wrapped(floats(numbers.tolist()), "       "), "    },"),
        *("    {", *wrapped(floats(middles), "       "), "    },"),
        "    {",
        *(
            line
            for row in search
            for line in ("      {", *wrapped(floats(row), "       "), "      },")
        ),
        "    },",
        *("    {", *wrapped(floats(reduced.tolist()), "       "), "    },"),
        *("    {", *wrapped(floats(within.tolist()), "       "), "    },"),
        *("    {", *wrapped(masks(signs), "       "), "    },"),
        *("    {", *wrapped(masks(kept), "       "), "    },"),
        *("    {", *wrapped(floats(step_middles), "       "), "    },"),
        *("    {", *wrapped(map(str, before), "       "), "    },"),
        "    0xfbfc,",
        *("    {", *wrapped(map(str, order.tolist()), "       "), "    },"),
    ]
    return "\n".join([f"\nconst amn_codebook4 amn_{kind} = {{", *rows, "};\n"])


def table(declaration: str, items: Iterable[str]) -> str:
    """One array."""
    return "\n".join([f"\nconst {declaration} = {{", *wrapped(items, " "), "};\n"])


def derive() -> str:
    """The whole file."""
    dynamic = library.create_dynamic_map().tolist()
    return "".join(
        [
            HEAD,
            codebook4("nf4"),
            codebook4("fp4"),
            table("float amn_dynamic[256]", floats(dynamic)),
            table("uint16_t amn_dynamic_begins[255]", map(str, begins().tolist())),
        ]
    )


if __name__ == "__main__":
    print(derive(), end="")
