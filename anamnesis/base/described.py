"""What a file says of a tensor that it stores as several, in torchao's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Described"]


class Described(NamedTuple):
    """A tensor of a class of torchao's.

    Attributes
    ----------
    kind : str
        The class.
    shape : tuple of int or None
        Of all of it, if the file says that.
    block : tuple of int
        Sizes of the blocks that share a scale, or one: so many values of a row. Empty if the file
        does not say it.
    element, dtype : str
        torch's name of the dtype of codes, and of what they stand for; empty if not said.
    is_tiled : bool or None
        Whether scales are in tiles, if the file says it.
    parts : tuple of str
        What it is made of, by the ends of their names.
    """

    kind: str
    shape: tuple[int, ...] | None = None
    block: tuple[int, ...] = ()
    element: str = ""
    dtype: str = ""
    is_tiled: bool | None = None
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Described:
        """Understand what a file says; what is not said as torchao does is not believed.

        Parameters
        ----------
        told : mapping
            `_type`, the class; `_data`, its attributes; `_tensor_data_names`.
        """
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
