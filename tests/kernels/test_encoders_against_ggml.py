"""The encoders of GGUF blocks against ggml's own C, run here, at every level.

Byte-equal, with and without importance, of real weights and of rows made to be awkward.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import platform
from collections.abc import Iterator
from typing import Any

import ggml_c
import numpy as np
import numpy.typing as npt
import pytest

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.schemes import ggml
from helpers.quantised_rows import awkward, importances, real_matrix

Floats = npt.NDArray[np.float32]
TYPES = list(_core.ENCODERS)
# ggml makes the tables of these for many seconds, in each process.
PARAMETERS = [
    pytest.param(name, marks=pytest.mark.slow) if name.startswith(("IQ1", "IQ2")) else name
    for name in TYPES
]
LEVELS = list(_core.supported_levels())
# ggml divides by the scale of a block, which may be subnormal, and casts infinities to integers. C
# leaves the results open, and ours are those of x86-64.
IS_X86 = platform.machine() in ("x86_64", "AMD64")
UNDEFINED = frozenset() if IS_X86 else frozenset({"subnormal", "all 1e-40"})


def needs_importance(name: str) -> bool:
    return _core.encoder_weights(_core.BLOCKS[name]) == 2


def ours(name: str, values: Floats, weights: Floats | None) -> bytes | None:
    """Blocks of all levels, which are the same, or None where a scale is refused."""
    made = {level: at_level(name, values, weights, level) for level in LEVELS}
    first = made["scalar"]
    assert [level for level in LEVELS if made[level] != first] == []
    return first


def at_level(name: str, values: Floats, weights: Floats | None, level: str) -> bytes | None:
    rows, cols = values.shape
    row_bytes = cols // BLOCK_DTYPES[name].block_elements * BLOCK_DTYPES[name].block_bytes
    out = np.zeros(rows * row_bytes, np.uint8)
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    given = b"" if weights is None else weights.view(np.uint8)
    found = _core.encode_blocks(
        _core.BLOCKS[name], flat, rows, cols, given, out, False, _core.LEVELS[level]
    )
    return None if isinstance(found, int) else out.tobytes()


def theirs_or_none(
    name: str, values: Floats, weights: Floats | None
) -> npt.NDArray[np.uint8] | None:
    """ggml's blocks, made by a child: sums that overflow end some of its quantisers' processes."""
    oracle, type_id = ggml_c.ggml(), _core.BLOCKS[name]
    size = BLOCK_DTYPES[name]
    columns = np.ones(size.block_elements, np.float32)
    oracle.quantize(type_id, columns.reshape(1, -1), columns)  # its tables, made once
    made = mmap.mmap(-1, values.size // size.block_elements * size.block_bytes)
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os.environ["GGML_NO_BACKTRACE"] = "1"
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        made[:] = oracle.quantize(type_id, values, weights).tobytes()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return np.frombuffer(made, np.uint8) if status == 0 else None


def cases(name: str, rng: np.random.Generator) -> Iterator[tuple[str, Floats, Floats | None]]:
    size = BLOCK_DTYPES[name].block_elements
    for what, values in awkward(size, rng):
        if what in UNDEFINED:
            continue
        for kind, weights in importances(values.shape[1], rng):
            if weights is not None or not needs_importance(name):
                yield f"{what}, importance {kind}", values, weights


@pytest.mark.against("ggml")
@pytest.mark.parametrize("name", PARAMETERS)
def test_awkward_rows(name: str, rng: np.random.Generator) -> None:
    for what, values, weights in cases(name, rng):
        made = ours(name, values, weights)
        if made is None:
            theirs = theirs_or_none(name, values, weights)
            if theirs is not None:
                decoded = ggml_c.ggml().to_float(_core.BLOCKS[name], theirs)
                assert not np.isfinite(decoded).all(), what
        else:
            theirs = ggml_c.ggml().quantize(_core.BLOCKS[name], values, weights)
            assert made == theirs.tobytes(), what


@pytest.mark.against("ggml")
@pytest.mark.parametrize("name", ["IQ4_NL", "IQ4_XS"])
def test_beside_midpoints(name: str, rng: np.random.Generator) -> None:
    """Numbers on IQ4's levels, on the midpoints between them, and beside those."""
    block = np.frombuffer(np.float16(1).tobytes() + bytes(range(16)), np.uint8)
    levels = ggml_c.ggml().to_float(_core.BLOCKS["IQ4_NL"], block)[:16]
    shape = (256, 512)
    middles = rng.choice((levels[1:] + levels[:-1]) / 2, shape)
    near = middles * rng.uniform(0.992, 1.008, shape).astype(np.float32)
    numbers = np.choose(rng.integers(0, 3, shape), (rng.choice(levels, shape), middles, near))
    numbers[:, ::32] = levels[0]
    numbers *= rng.choice(np.array([-1, 1, -0.25, 2.0**-20], np.float32), (shape[0], 1))
    for kind, weights in importances(shape[1], rng):
        theirs = ggml_c.ggml().quantize(_core.BLOCKS[name], numbers, weights)
        assert ours(name, numbers, weights) == theirs.tobytes(), kind


@pytest.mark.oracle
@pytest.mark.against("ggml")
@pytest.mark.parametrize("name", PARAMETERS)
def test_real_weights(name: str, rng: np.random.Generator) -> None:
    values = real_matrix()
    for kind, weights in importances(values.shape[1], rng):
        if weights is None and needs_importance(name):
            continue
        theirs = ggml_c.ggml().quantize(_core.BLOCKS[name], values, weights)
        assert ours(name, values, weights) == theirs.tobytes(), kind


@pytest.mark.oracle
@pytest.mark.against("ggml")
@pytest.mark.parametrize("name", PARAMETERS)
def test_codes_stay(name: str, rng: np.random.Generator) -> None:
    """Decoded and encoded again, blocks are what ggml makes of their values."""
    values = real_matrix()[:16]
    weights = np.ones(values.shape[1], np.float32) if needs_importance(name) else None
    blocks = ggml.quantize(values, name, weights)
    again = ggml.quantize(ggml.dequantize(blocks, name, dtype="f32"), name, weights)
    theirs = ggml_c.ggml().to_float(_core.BLOCKS[name], blocks).reshape(values.shape)
    assert again.tobytes() == ggml_c.ggml().quantize(_core.BLOCKS[name], theirs, weights).tobytes()


@pytest.mark.oracle
@pytest.mark.against("ggml")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_in_memory(name: Any, dtype: str) -> None:
    """Stacks of matrices, each with its own importance, on any threads."""
    import ml_dtypes

    given = real_matrix()[:48].astype(getattr(ml_dtypes, dtype, dtype)).reshape(3, 16, -1)
    weights = np.linspace(0.5, 2, 3 * given.shape[-1], dtype=np.float32).reshape(3, -1)
    made = ggml.quantize(given, name.lower(), weights, threads=3)
    assert made.shape[:2] == (3, 16)
    for i in range(3):
        values = given[i].astype(np.float32)
        theirs = ggml_c.ggml().quantize(_core.BLOCKS[name], values, weights[i])
        assert made[i].tobytes() == theirs.tobytes()


def test_requirements_are_those_of_ggml() -> None:
    for name in TYPES:
        asked = ggml_c.ggml().requires_importance(_core.BLOCKS[name])
        assert needs_importance(name) == asked
