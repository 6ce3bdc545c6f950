"""One weight of each kind that is read, of random codes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from anamnesis import _core
from helpers.handmade import Entry

NAME = "h.0.attn.c_proj"


def four_bit(rng: np.random.Generator, rows: int, cols: int, block: int, nested: bool) -> Any:
    n = rows * cols
    n_absmax = -(-n // block)
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": block, "shape": [rows, cols]}
    tensors = {
        "weight": ("U8", [(n + 1) // 2, 1], rng.bytes((n + 1) // 2)),
        "weight.quant_map": ("F32", [16], _core.BNB_CODEBOOKS["NF4"]),
    }
    if nested:
        state |= {"nested_blocksize": 16, "nested_offset": 0.5}
        n_nested = -(-n_absmax // 16)
        codebook = rng.uniform(-1, 1, 256).astype(np.float32)
        nested_absmax = rng.uniform(0, 1, n_nested).astype(np.float32)
        tensors["weight.absmax"] = ("U8", [n_absmax], rng.bytes(n_absmax))
        tensors["weight.nested_absmax"] = ("F32", [n_nested], nested_absmax.tobytes())
        tensors["weight.nested_quant_map"] = ("F32", [256], codebook.tobytes())
    else:
        absmax = rng.uniform(0, 1e5, n_absmax).astype(np.float32)  # some are infinite in F16
        tensors["weight.absmax"] = ("F32", [n_absmax], absmax.tobytes())
    text = json.dumps(state).encode()
    tensors["weight.quant_state.bitsandbytes__nf4"] = ("U8", [len(text)], text)
    return tensors


def int8(rng: np.random.Generator, rows: int, cols: int) -> Any:
    scb = rng.uniform(0, 1e5, rows).astype(np.float32)
    return {
        "weight": ("I8", [rows, cols], rng.bytes(rows * cols)),
        "SCB": ("F32", [rows], scb.tobytes()),
    }


def packed(rng: np.random.Generator, rows: int, cols: int, bits: int, group: int, kind: str) -> Any:
    groups = -(-cols // group)
    scales = rng.uniform(1e-3, 1e4, (groups, rows)).astype(np.float16)
    words, zeros = (cols * bits // 32, rows), (groups, -(-rows * bits // 32))
    if kind == "awq":
        words = (cols, rows * bits // 32)
    tensors = {
        "qweight": ("I32", list(words), rng.bytes(4 * words[0] * words[1])),
        "qzeros": ("I32", list(zeros), rng.bytes(4 * zeros[0] * zeros[1])),
        "scales": ("F16", list(scales.shape), scales.tobytes()),
    }
    if kind == "act":
        g_idx = rng.permutation(np.arange(cols) // group).astype(np.int32)
        tensors["g_idx"] = ("I32", [cols], g_idx.tobytes())
    return tensors


def fp8(rng: np.random.Generator, rows: int, cols: int, grid: tuple[int, int]) -> Any:
    block = (-(-rows // grid[0]), -(-cols // grid[1]))
    scales = rng.uniform(0, 1e3, block).astype(np.float32)
    codes = (rng.integers(0, 2, (rows, cols)) << 7 | rng.integers(0, 127, (rows, cols))).astype(
        "u1"
    )
    return {
        "weight": ("F8_E4M3", [rows, cols], codes.tobytes()),
        "weight_scale_inv": ("F32", list(block), scales.tobytes()),
    }


def powers(rng: np.random.Generator, rows: int, cols: int) -> Entry:
    """E8M0 scales whose products are finite."""
    return "U8", [rows, cols], rng.integers(0, 250, (rows, cols), np.uint8).tobytes()


def fp4(rng: np.random.Generator, rows: int, cols: int, group: int) -> Any:
    """compressed-tensors' NVFP4, or MXFP4."""
    tensors = {
        "weight_packed": ("U8", [rows, cols // 2], rng.bytes(rows * cols // 2)),
        "weight_scale": powers(rng, rows, cols // group),
    }
    if group == 16:
        scale = rng.integers(0, 127, (rows, cols // group), np.uint8)
        tensors["weight_scale"] = ("F8_E4M3", [rows, cols // group], scale.tobytes())
        tensors["weight_global_scale"] = ("F32", [1], np.float32(0.01).tobytes())
    return tensors


def mxfp6(rng: np.random.Generator, rows: int, cols: int) -> Any:
    return {
        "weight_packed": ("U8", [rows, cols * 3 // 4], rng.bytes(rows * cols * 3 // 4)),
        "weight_scale": powers(rng, rows, cols // 32),
    }


CASES: dict[str, tuple[Any, ...]] = {
    "nf4": (four_bit, 96, 256, 64, False),
    "nf4-nested": (four_bit, 160, 192, 64, True),
    "nf4-long-blocks": (four_bit, 33, 512, 256, False),
    "nf4-uneven": (four_bit, 70, 90, 64, True),
    "nf4-odd": (four_bit, 67, 133, 32, False),
    "nf4-wide": (four_bit, 37, 1205, 64, True),
    "nf4-wide-even": (four_bit, 37, 1206, 1, False),
    "nf4-row": (four_bit, 1, 3001, 64, False),
    "nf4-column": (four_bit, 3001, 1, 64, False),
    "int8": (int8, 67, 133),
    "int8-row": (int8, 1, 3001),
    "int8-column": (int8, 3001, 1),
    "gptq": (packed, 96, 256, 4, 64, "gptq"),
    "gptq-3-bits": (packed, 160, 96, 3, 32, "gptq"),
    "gptq-act-order": (packed, 200, 256, 8, 32, "act"),
    "gptq-tall": (packed, 3008, 32, 2, 32, "gptq"),
    "awq": (packed, 136, 160, 4, 32, "awq"),
    "awq-tall": (packed, 3008, 32, 4, 32, "awq"),
    "fp8": (fp8, 67, 133, (32, 64)),
    "fp8-groups": (fp8, 130, 96, (1, 32)),
    "fp8-channels": (fp8, 130, 96, (1, 96)),
    "fp8-tensor": (fp8, 130, 96, (130, 96)),
    "nvfp4": (fp4, 67, 144, 16),
    "nvfp4-row": (fp4, 1, 3008, 16),
    "mxfp4": (fp4, 130, 96, 32),
    "mxfp6": (mxfp6, 67, 160),
}


def tensors_of(case: str, rng: np.random.Generator) -> dict[str, Entry]:
    make, *how = CASES[case]
    parts = make(rng, *how)
    rows = how[0]
    bias = ("F32", [rows], bytes(4 * rows))
    return {f"{NAME}.{part}": entry for part, entry in {**parts, "bias": bias}.items()}
