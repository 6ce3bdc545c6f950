"""What the GGUF fuzzers begin with: small files of every version, byte order and kind of value."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gguf_handmade import (
    ARRAY,
    BOOL,
    CODES,
    F32,
    STRING,
    U8,
    U32,
    Array,
    Tensor,
    gguf_bytes,
)

# ggml's ids with the bytes of a block of 256 elements or the least that fills one.
_BLOCKS = {2: (32, 18), 8: (32, 34), 12: (256, 144), 16: (256, 66), 39: (32, 17), 42: (64, 18)}


def seeds() -> Iterator[bytes]:
    """Yield whole files."""
    scalars = {f"k{kind}": (kind, 1) for kind in CODES}
    arrays = {f"a{kind}": Array(kind, [0, 1, 1]) for kind in CODES}
    nested = Array(ARRAY, [Array(STRING, ["a", ""]), Array(ARRAY, [Array(BOOL, [1])])])
    plain = {
        "f32": Tensor((3, 2), 0, bytes(range(24))),
        "bf16": Tensor((4,), 30, bytes(8)),
        "none": Tensor((0, 5), 26),
        "scalar": Tensor((), 28, bytes(8)),
    }
    blocks = {
        f"b{kind}": Tensor((elements, 1), kind, bytes(range(size)))
        for kind, (elements, size) in _BLOCKS.items()
    }
    unknown = {"old": Tensor((64,), 31, bytes(36)), "new": Tensor((9,), 99, bytes(1))}
    for version in (1, 2, 3):
        for big in (False, True):
            form = {"version": version, "big": big}
            yield gguf_bytes(**form)
            yield gguf_bytes({**scalars, "s": (STRING, "text"), "x": (F32, 1e-5)}, **form)
            yield gguf_bytes({**arrays, "tokens": Array(STRING, ["a", "b" * 40, "é"])}, **form)
            yield gguf_bytes({"n": nested, "e": Array(U8, [])}, plain, **form)
            yield gguf_bytes({"general.architecture": (STRING, "llama")}, blocks, **form)
            yield gguf_bytes({}, {**plain, **unknown}, **form)
            yield gguf_bytes({"general.alignment": (U32, 8)}, plain, alignment=8, **form)
            yield gguf_bytes({"split.count": (U32, 2), "split.no": (U32, 0)}, plain, **form)


def corpus() -> str:
    """Write the seeds to a new folder and return its path."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-gguf-"))
    for number, seed in enumerate(seeds()):
        (folder / f"seed-{number:03d}").write_bytes(seed)
    return str(folder)
