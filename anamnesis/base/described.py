"""What a file says of a tensor that it stores as several, in torchao's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Described(NamedTuple):
    """A tensor of a class of torchao's."""

    kind: str
    shape: tuple[int, ...] | None = None
    block: tuple[int, ...] = ()
    element: str = ""
    dtype: str = ""
    is_tiled: bool | None = None
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Described:
        """Understand what a file says; what is not said as torchao does is not believed."""
        kind, data, names = map(told.get, ("_type", "_data", "_tensor_data_names"))
        data = data if isinstance(data, dict) else {}
        block, element, is_tiled = map(data.get, ("block_size", "elem_dtype", "is_swizzled_scales"))
        return cls(
            kind if isinstance(kind, str) else "",
            _sizes(data.get("shape")),
            _sizes([block] if type(block) is int else block) or (),
            element if isinstance(element, str) else _dtype(element),
            _dtype(data.get("dtype")),
            is_tiled if isinstance(is_tiled, bool) else None,
            tuple(str(name) for name in names) if isinstance(names, list) else (),
        )


def _sizes(value: Any) -> tuple[int, ...] | None:
    is_list = isinstance(value, list) and all(type(n) is int for n in value)
    return tuple(value) if is_list else None


def _dtype(value: Any) -> str:
    told = value.get("_data") if isinstance(value, dict) else None
    return "" if told is None else str(told)
