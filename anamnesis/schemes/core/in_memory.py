"""What all functions on arrays share: keywords, checks, results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

import anamnesis._core as _core
from anamnesis.base.arguments import checked
from anamnesis.base.dtypes import DTYPES, DType, DTypeLike, output_dtype
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.levels import LevelName, resolve_level
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.arrays import decode, encode, threads_for
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.weight import Weight

F = TypeVar("F", bound=Callable[..., Any])


class QuantizeOptions(TypedDict, total=False):
    """The keywords of all functions that encode arrays; `anamnesis.schemes` explains them."""

    threads: int | None
    level: LevelName | None


class DequantizeOptions(QuantizeOptions, total=False):
    """The keywords of all functions that decode arrays; `anamnesis.schemes` explains them."""

    dtype: DTypeLike
    out: NDArray[Any] | None


def dequantize(
    weight: Weight,
    /,
    *,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the values of a weight of arrays: the end of every function that decodes them."""
    with as_arguments():
        return decode(weight, output_dtype(dtype), out, threads, resolve_level(level))


def quantize(
    encoding: Encoding,
    array: NDArray[Any],
    found: bytes = b"",
    /,
    *,
    threads: int | None = None,
    level: LevelName | None = None,
) -> tuple[NDArray[Any], ...]:
    """Return the parts of an array in an encoding: the end of every function that encodes."""
    # `found` is what a survey of more than this array has found.
    if threads is None:
        threads = threads_for(array.nbytes)
    fitted = encoding.fitted(_float_dtype(array))
    array = array.astype(fitted.values.numpy(), copy=False)
    return encode(fitted, array, threads, resolve_level(level), found)


def _showing(shared: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator: arguments are checked, and `help` shows `**options` as of `shared`."""
    keywords = [p for p in signature(shared).parameters.values() if p.kind is p.KEYWORD_ONLY]

    hints = {p.name: p.annotation for p in keywords if p.name != "out"}  # which is written to

    def show(function: F) -> F:
        shown = signature(function)
        *own, _ = shown.parameters.values()
        made = checked(function, hints)
        made.__signature__ = shown.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return made

    return show


dequantizer = _showing(dequantize)
quantizer = _showing(quantize)


@contextmanager
def as_arguments() -> Iterator[None]:
    """Say of arguments what is wrong with the stored tensors of a caller's arrays."""
    try:
        yield
    except AnamnesisError as error:
        raise ValueError(str(error).removeprefix(": ")) from None


def check_groups(shape: tuple[int, ...], group: int, scales: StoredTensor | None = None) -> None:
    """Check that rows are of whole groups, each of which has one of the `scales`."""
    n_groups, rest = divmod(shape[-1], group)
    if scales is None and rest:
        raise ValueError(f"{shape[-1]} columns are not a whole number of groups of {group}")
    wanted = (*shape[:-1], n_groups)
    if scales is not None and (rest or scales.shape != wanted):
        raise ValueError(
            f"scales have shape {scales.shape}, but values of shape {shape} in groups of {group} "
            f"have scales of shape {wanted}"
        )


def values(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of values that can be encoded."""
    array = np.asarray(array)
    _float_dtype(array)
    if array.size == 0:
        raise ValueError(f"array has shape {array.shape}, and so no values")
    return array


def matrices(array: NDArray[Any], *, stacked: bool = False) -> NDArray[Any]:
    """Return an array of values that can be encoded: a matrix, or any number of `stacked` ones."""
    array = np.asarray(array)
    if array.size == 0 or not (array.ndim == 2 or (stacked and array.ndim > 2)):
        what = "matrices that are" if stacked else "a matrix that is"
        raise ValueError(f"array must be {what} not empty, not of shape {array.shape}")
    _float_dtype(array)
    return array


def _float_dtype(array: NDArray[Any]) -> DType:
    for name in _core.SOURCES:
        if DTYPES[name].numpy() == array.dtype:
            return DTYPES[name]
    names = ", ".join(str(DTYPES[name].numpy()) for name in _core.SOURCES)
    raise TypeError(f"array has dtype {array.dtype}, but must be one of {names}")
