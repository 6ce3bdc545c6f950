"""Models built from a fuzzer's bytes, for random bytes seldom get past a header.

Every choice takes a byte of the input, so that a fuzzer that changes a byte changes a choice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

BITS = {
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E8M0", "U8", "I8", "BOOL"), 8),
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
HEADS = ("a", "b", "x", "x_weight", "layers.0.mlp", "q_proj", "weight", "", "é\n", "__metadata__")
TAILS = (
    *("", ".weight", ".bias", "_scale", "_scale_inv", "_weight_scale", "_weight_scale_inv"),
    *(".weight_scale", ".weight_scale_inv", ".scale", ".scales", ".scale_weight", ".qscale_weight"),
    *(".input_scale", ".comfy_quant", ".weight_scale_2", ".qweight", ".k_scale", "scaled_fp8"),
    *(".scaled_fp8", "_weight", ".weight.absmax", "_blocks", "_scales", ".weight_packed"),
)
DIMS = (*range(14), 16, 31, 32, 33, 64, 128, 129, 256, 384, 576, 2**40, 2**62, 2**63, 2**64 - 1)
SCRAPS = (
    *("{", "}", "[", "]", ",", ":", '"', "\\", "\\ud800", "-", "0", "9", "e9", " ", "\n", "\0"),
    *("null", "NaN", '"a":1,', '"dtype":"U8",', '"shape":[1],', '"__metadata__":null,', "[[[["),
)
COMFY = "_quantization_metadata"
METADATA: tuple[Any, ...] = (
    *(None, {}, {"format": "pt"}, {COMFY: "{}"}, {COMFY: "[1"}),
    {COMFY: '{"layers":{"a":{"format":"float8_e4m3fn"}}}'},
)
CONFIGS: tuple[Any, ...] = (
    *({}, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}),
    {"quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 10**30]}},
    {"text_config": {"quantization_config": {"weight_block_size": "2x3"}}},
    {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {}}}},
    *({"quantization": None, "producer": {"name": 1}}, {"quantization_config": [1]}, [], 1),
)
MOST_BYTES = 6_000  # of one tensor


class Choices:
    """A fuzzer's bytes, taken from the front; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, n: int) -> int:
        return next(self._bytes, 0) % n

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def some(self, n: int) -> bytes:
        """Return `n` bytes: at most 16 of the input's, repeated."""
        seed = bytes(islice(self._bytes, min(n, 16))) or b"\x38"
        return (seed * (n // len(seed) + 1))[:n]


def tensor(choices: Choices) -> tuple[str, dict[str, Any], bytes]:
    """Return a name, an entry without its range, and the tensor's bytes."""
    dtype = choices.pick(tuple(BITS))
    shape = [choices.pick(DIMS) for _ in range(choices.below(5))]
    bits = BITS[dtype]
    for dim in shape:
        bits *= dim
    data = choices.some(bits // 8) if bits <= MOST_BYTES * 8 else b""
    name = choices.pick(HEADS) + choices.pick(TAILS)
    return name, {"dtype": dtype, "shape": shape}, data


def safetensors_file(choices: Choices) -> bytes:
    """Return a file that is valid but for what its tensors claim and for scraps in its header."""
    header: dict[str, Any] = {}
    data = b""
    metadata = choices.pick(METADATA)
    if metadata is not None:
        header["__metadata__"] = metadata
    for _ in range(choices.below(12)):
        name, entry, raw = tensor(choices)
        if name not in header:
            header[name] = {**entry, "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(header, ensure_ascii=choices.below(2) == 0)
    for _ in range(max(0, choices.below(8) - 5)):
        at = (choices.below(256) * 256 + choices.below(256)) % (len(text) + 1)
        text = text[:at] + choices.pick(SCRAPS) + text[at + choices.below(3) :]
    head = text.encode("utf-8", "surrogatepass")
    return len(head).to_bytes(8, "little") + head + data
