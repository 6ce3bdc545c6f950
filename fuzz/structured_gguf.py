"""GGUF files built from a fuzzer's bytes; see structured.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from structured import Choices

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from anamnesis import _core
from helpers.gguf_handmade import ARRAY, CODES, STRING, U32, Array, Tensor, Value, gguf_bytes

KEYS = (
    *("a", "b", "é\n", "general.architecture", "split.no", "split.count"),
    *("split.tensors.count", "tokenizer.ggml.tokens", "_quantization_metadata", "format"),
)
NAMES = ("a", "b", "blk.0.attn_q.weight", "output_norm.weight", "x.scale", "", "é\n")
TEXTS = ("", "a", "llama", "x" * 300, b"\xff\xc3", "\0", "é", "x" * 70_000)
NUMBERS = (*range(4), 31, 32, 64, 127)
LENGTHS = (*range(6), 64, 65, 300)
LIES = (0, 1, 2, 255, 2**16, 10**6 + 1, 2**31, 2**32 - 1)
OFFSETS = (*(None,) * 40, 0, 1, 32, 64, 2**31, 2**40, 2**63, 2**64 - 1)
DIMS = (*range(8), *range(8), *range(8), 32, 64, 256, 2**31, 2**32 - 1)
SIZES = {0: (1, 4), 1: (1, 2), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8)} | {
    30: (1, 2),
    **{row.id: (row.elements, row.bytes) for row in _core.block_types()},
}
TYPES = (*SIZES, *SIZES, 4, 31, 38, 43, 2**32 - 1)
NVFP4 = next(row.id for row in _core.block_types() if row.name == "NVFP4")
MOST_BYTES = 4096  # of one tensor


def gguf_file(choices: Choices) -> bytes:
    """Return a file that is valid but for lies in counts, offsets and types, and odd bytes."""
    form: dict[str, Any] = {
        "version": choices.pick((3, 3, 2, 1, *(3,) * 8, 4)),
        "big": choices.below(3) == 2,
    }
    alignment = choices.pick((*(32,) * 8, 1, 8, 64, 3))
    keys = [(choices.pick(KEYS), value(choices, 0)) for _ in range(choices.below(8))]
    if alignment != 32:
        keys.append(("general.alignment", (U32, alignment)))
    tensors = [(choices.pick(NAMES), tensor(choices)) for _ in range(choices.below(6))]
    if choices.below(6) == 5:
        tensors += scaled_blocks(choices)
    if choices.below(8):  # mostly nothing appears twice
        keys, tensors = list(dict(keys).items()), list(dict(tensors).items())
    if choices.below(30) == 29:
        form["n_keys"] = choices.pick(LIES)
    if choices.below(30) == 29:
        form["n_tensors"] = choices.pick(LIES)
    raw = bytearray(gguf_bytes(keys, tensors, alignment=alignment, **form))
    for _ in range(max(0, choices.below(16) - 13)):
        at = (choices.below(256) * 256 + choices.below(256)) % len(raw)
        raw[at] = choices.below(256)
    return bytes(raw)


def scaled_blocks(choices: Choices) -> list[tuple[str, Tensor]]:
    """Return blocks of NVFP4 with a second scale, mostly of the shape that it has."""
    rows, experts = choices.below(4), choices.pick((1, 1, 2))
    dims = [64, rows, experts][: 2 + (experts > 1)]
    blocks = bytes(byte & 0x77 for byte in choices.some(36 * rows * experts))
    n = choices.pick((1, 1, experts, experts, 3))
    return [
        ("x.weight", Tensor(dims, NVFP4, blocks)),
        ("x.scale", Tensor([n], choices.pick((0, 0, 0, 1)), choices.some(4 * n))),
    ]


def value(choices: Choices, depth: int) -> Value:
    """Return a scalar, a string or an array, of arrays too while they are not too deep."""
    kind = choices.below(len(CODES) + 2)
    if kind == STRING:
        return (STRING, choices.pick(TEXTS))
    if kind == ARRAY:
        item = choices.below(len(CODES) + 2)
        n = choices.pick(LENGTHS)
        if item == ARRAY:
            arrays = [value(choices, depth + 1) for _ in range(n % 3 if depth < 6 else 0)]
            return Array(ARRAY, [a for a in arrays if isinstance(a, Array)])
        if item == STRING:
            return Array(STRING, [choices.pick(TEXTS[:-1])] * n)
        return Array(item, [choices.below(2)] * n)
    return (kind, choices.pick(NUMBERS) if kind != 7 else choices.below(2))


def tensor(choices: Choices) -> Tensor:
    """Return a tensor, mostly of the length that its type and dimensions imply."""
    kind = choices.pick(TYPES)
    dims = [choices.pick(DIMS) for _ in range(choices.below(5))]
    elements, size = SIZES.get(kind, (1, 1))
    if dims and choices.below(16):
        dims[0] = dims[0] % 3 * elements
    n = size
    for dim in dims:
        n *= dim
    n //= elements
    return Tensor(dims, kind, choices.some(n) if n <= MOST_BYTES else b"", choices.pick(OFFSETS))
