"""What the builders of quantised weights have in common: tensors, and what is told of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from structured import BITS, Choices

Entry: TypeAlias = tuple[str, list[int], bytes]  # dtype, shape, the bytes
Tensors: TypeAlias = dict[str, Entry]

SCALES = ("F16", "BF16", "F32")
E8M0 = ("U8", "F8_E8M0")
FP8 = ("F8_E4M3", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_FORMATS = {"I16": "h", "I32": "i", "I64": "q"}
TILE = (128, 4)


@dataclass
class Expected:
    """What a checkpoint says of itself; of what is said twice, the first counts.

    Attributes
    ----------
    config : dict of str to anything
        The section of config.json about quantisation.
    sizes : dict of str to anything
        Of the model, and its type, beside that section.
    metadata : dict of str to str
        The file's own.
    """

    config: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    def say(self, **words: Any) -> None:
        """Add to the config, section by section."""
        _merge(self.config, words)

    def config_json(self) -> dict[str, Any] | None:
        """Return config.json; None if there is nothing to tell."""
        section = {"quantization_config": self.config} if self.config else {}
        return {**self.sizes, **section} or None


Family: TypeAlias = Callable[[Choices, str, Expected], Tensors]


def _merge(into: dict[str, Any], words: Mapping[str, Any]) -> None:
    for key, value in words.items():
        known = into.setdefault(key, value)
        if known is not value and isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)


def bytes_of(choices: Choices, dtype: str, shape: list[int]) -> Entry:
    """Return a tensor of random bytes."""
    return dtype, shape, choices.some(BITS[dtype] * prod(shape) // 8)


def numbers(dtype: str, values: list[int], shape: list[int] | None = None) -> Entry:
    """Return a tensor of these whole numbers, by default of one dimension."""
    raw = struct.pack(f"<{len(values)}{_FORMATS[dtype]}", *values)
    return dtype, [len(values)] if shape is None else shape, raw


def text(value: str | bytes) -> Entry:
    """Return a tensor of the bytes of a text."""
    raw = value.encode() if isinstance(value, str) else value
    return "U8", [len(raw)], raw


def tiled(rows: int, cols: int) -> list[int]:
    """Return the shape of scales in whole tiles."""
    return [-(-rows // TILE[0]) * TILE[0], -(-cols // TILE[1]) * TILE[1]]


def module_of(name: str) -> str:
    """Return what the names of a weight's parts begin with."""
    return name.removesuffix("weight")


def under(name: str, parts: Tensors) -> Tensors:
    """Return the parts of a module whose weight has this name."""
    return {f"{module_of(name)}{part}": entry for part, entry in parts.items()}
