"""Importance matrices built from a fuzzer's bytes; see structured.py."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from structured import Choices

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.gguf_handmade import STRING, U32, Array, Tensor, gguf_bytes

NAMES = (b"blk.0.attn_q.weight", b"a", b"", b"\0", b"\xff\xc3", b"a.counts", b"x" * 300)
SIZES = (1, 2, 3, 4, 8, 0, 64, 300)
CALLS = (1, 2, 7, 0, -1, 2**31 - 1, -(2**31))
LIES = (*(0,) * 24, 1, -1, 2**20, 2**30, 2**31 - 1, -(2**31))  # what is added to a number
BITS = (b"\0\0\x80?", b"\0\0\0@", b"\0\0\0\0", b"\0\0\0\x80", b"\x01\0\0\0", b"\0\0\x80\x7f")


def imatrix_file(choices: Choices) -> bytes:
    """Return a file of either kind that is valid but for lies, odd names and odd numbers."""
    return _gguf(choices) if choices.below(2) else _dat(choices)


def _number(choices: Choices, value: int) -> bytes:
    told = value + choices.pick(LIES)
    return struct.pack("<i", max(-(2**31), min(told, 2**31 - 1)))


def _numbers(choices: Choices, n: int) -> bytes:
    """Numbers that repeat four, now and then of any bits."""
    four = b"".join(choices.pick((*BITS, choices.some(4))) for _ in range(4))
    return (four * (n // 4 + 1))[: 4 * n]


def _dat(choices: Choices) -> bytes:
    n_entries = choices.below(5)
    out = _number(choices, n_entries)
    for _ in range(n_entries):
        name, n = choices.pick(NAMES), choices.pick(SIZES)
        out += _number(choices, len(name)) + name + struct.pack("<i", choices.pick(CALLS))
        out += _number(choices, n) + _numbers(choices, n)
    if choices.below(2):
        out += _number(choices, 5)
    if choices.below(2):
        name = choices.pick(NAMES)
        out += _number(choices, len(name)) + name
    return out[: len(out) - choices.pick((0, 0, 0, 0, 0, 1, 4))]


def _gguf(choices: Choices) -> bytes:
    keys = {
        "general.type": (STRING, "imatrix"),
        "imatrix.datasets": Array(STRING, [choices.pick(NAMES) for _ in range(choices.below(3))]),
        "imatrix.chunk_count": (U32, 3),
        "imatrix.chunk_size": choices.pick(((U32, 512), (U32, 512), (STRING, "a"))),
    }
    if choices.below(16) == 15:
        keys.popitem()
    tensors = {}
    for _ in range(choices.below(5)):
        name, n, m = choices.pick(NAMES), choices.pick(SIZES), choices.pick((1, 1, 2, 4, 0))
        parts = {b".in_sum2": (n, m), b".counts": (choices.pick((1, 1, 1, 2, 0)), m)}
        for end, shape in parts.items():
            if choices.below(16) != 15:
                raw = _numbers(choices, shape[0] * shape[1])
                tensors[name + end] = Tensor(shape, choices.pick((0,) * 8 + (1, 26)), raw)
    return gguf_bytes(keys, tensors)
