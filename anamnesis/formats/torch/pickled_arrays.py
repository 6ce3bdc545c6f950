"""NumPy's arrays and scalars in a pickle, where their bytes lie too.

They are written as calls: one that makes an empty array, with its dtype and bytes as its state, or
one that takes dtype and bytes. The dtype is a call of `numpy.dtype`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.base.source import Source
from anamnesis.formats.numpy.npy import NPY_MAX_ELEMENTS, dtype_of
from anamnesis.formats.pickle.nodes import Call, Global, in_words
from anamnesis.formats.torch.values import PTH_MAX_DIMS, Refused
from anamnesis.sources.altered import swapped
from anamnesis.sources.memory import BufferSource
from anamnesis.sources.strided import Strips, column_major, strided

_MODULES = tuple(f"numpy.{core}" for core in ("core", "_core"))  # before and since NumPy 2
_RECONSTRUCT = {(f"{module}.multiarray", "_reconstruct") for module in _MODULES}
_FROM_BUFFER = {(f"{module}.numeric", "_frombuffer") for module in _MODULES}
_SCALAR = {(f"{module}.multiarray", "scalar") for module in _MODULES}
_MASKED = {("numpy.ma.core", "_mareconstruct")}
_ARRAYS = _RECONSTRUCT | _FROM_BUFFER | _MASKED


@dataclass(eq=False, repr=False)
class PickledArray:
    """An array whose bytes were in a pickle; strides are in elements."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    raw: bytes
    big_endian: bool

    def bytes_of(self, file: Source, strips: Strips) -> tuple[Source, int]:
        """Return a source of its bytes, row-major and little-endian, and where in it they begin."""
        # `file` is what the pickle was read from, and `strips` those of its tensors.
        source: Source = _Pickled(self.raw, file)
        width = self.dtype.block_bytes
        if self.big_endian:
            number = width // 2 if self.dtype.kind == "complex" else width
            source = swapped(source, 0, len(self.raw), number)
        return strided(source, 0, self.shape, self.strides, width, strips)


class _Pickled(BufferSource):
    """Bytes that were in a file's pickle, and are not to be found at their offset in the file."""

    def __init__(self, raw: bytes, file: Source) -> None:
        super().__init__(raw, file.name)
        self._file = file

    @property
    def base(self) -> Source:
        return self._file.base


def _name(call: Call) -> tuple[str, str]:
    function = call.function
    return (function.module, function.name) if isinstance(function, Global) else ("", "")


def is_array(call: Call) -> bool:
    """Return whether a call makes an array."""
    return _name(call) in _ARRAYS


def read_array(call: Call) -> PickledArray | Refused:
    """Return the array that a call makes, or what is reported of one that is not read."""
    if _name(call) in _MASKED:
        return Refused("a masked array of NumPy", parts=(call.args, call.states))
    if _name(call) in _FROM_BUFFER:
        return _from_buffer(*call.args)
    if len(call.states) != 1:
        how = "without its data" if not call.states else "that is set more than once"
        return Refused(f"a NumPy array {how}", parts=(call.states,))
    (state,) = call.states
    if type(state) is not tuple or len(state) not in (4, 5):  # the version is optional
        raise ValueError("an array's state must be its shape, dtype, order and data")
    shape, dtype, is_column_major, raw = state[-4:]
    return _array(raw, dtype, shape, "F" if is_column_major else "C")


def _from_buffer(
    raw: Any, dtype: Any, shape: Any, order: Any, axes: Any = None
) -> PickledArray | Refused:
    """numpy._core.numeric._frombuffer."""
    if order == "K" and axes is not None:
        made = _array(raw, dtype, shape, "C")
        if type(made) is PickledArray:
            if type(axes) is not tuple or sorted(axes) != list(range(len(made.shape))):
                raise ValueError("an array's axes must be a permutation")
            made.shape = tuple(made.shape[axis] for axis in axes)
            made.strides = tuple(made.strides[axis] for axis in axes)
        return made
    return _array(raw, dtype, shape, order)


def _array(raw: Any, dtype: Any, shape: Any, order: Any) -> PickledArray | Refused:
    if (
        type(shape) is not tuple
        or len(shape) > PTH_MAX_DIMS
        or any(type(n) is not int or n < 0 for n in shape)
        or prod(max(n, 1) for n in shape) > NPY_MAX_ELEMENTS
    ):
        raise ValueError("an array's shape must be a tuple of a few numbers, none of them negative")
    stored, big_endian, problem = _dtype(dtype)
    if problem:
        return Refused(f"a NumPy array of {problem}", shape, (raw,))
    if type(raw) is not bytes:
        raise ValueError("an array's data must be bytes")
    if prod(shape) * stored.block_bytes != len(raw):
        raise ValueError(f"an array of {stored.name} {list(shape)} has {len(raw):,} bytes of data")
    strides = column_major(shape) if order == "F" else column_major(shape[::-1])[::-1]
    return PickledArray(stored, shape, strides, raw, big_endian=big_endian)


def _dtype(made: Any) -> tuple[DType, bool, str]:
    """Return a dtype, whether it is big-endian, and why its values cannot be read."""
    if type(made) is not Call or _name(made) != ("numpy", "dtype") or not made.args:
        raise ValueError("an array's dtype must be one of NumPy's")
    kind = made.args[0]
    state = made.states[-1] if made.states else None
    order = ""
    if type(state) is tuple and len(state) >= 5:
        order = state[1]
        if state[2:5] != (None, None, None):
            return dtype_of(None)
    if isinstance(kind, Global):
        return dtype_of(kind.name if kind.module == "ml_dtypes" else str(kind))
    if type(kind) is not str or type(order) is not str:
        raise ValueError("an array's dtype must have a name")
    return dtype_of(order + kind)


def read_value(call: Call) -> Any:
    """Return the number that a call makes, or what it is in words; None if it is no scalar."""
    if _name(call) not in _SCALAR:
        return None
    if len(call.args) != 2 or type(call.args[1]) is not bytes:
        return f"({in_words(call.function)})"
    dtype, big_endian, problem = _dtype(call.args[0])
    raw = call.args[1]
    if problem:
        return f"(one of NumPy's {problem})"
    if len(raw) != dtype.block_bytes:
        raise ValueError(f"a scalar of {dtype.name} has {len(raw):,} bytes")
    if big_endian:
        return np.frombuffer(raw, dtype.numpy().newbyteorder(">"))[0].item()
    return np.frombuffer(raw, dtype.numpy())[0].item()
