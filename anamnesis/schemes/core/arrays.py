"""Arrays as stored tensors, and whole weights decoded into arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import anamnesis._core as _core
from anamnesis.base.arrays import numpy_of
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.printable import shown
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import Cancel, default_threads, run, stop_if
from anamnesis.schemes.core.bands import Band, band_bytes, cut
from anamnesis.schemes.core.codes import Task
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Scratch, Weight
from anamnesis.sources.memory import BufferSource


def as_scale(scale: ArrayLike) -> NDArray[Any]:
    """Return `scale` as an array; Python numbers and float64 become float32."""
    array = numpy_of("scale", scale)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def stored(array: NDArray[Any], what: str, allowed: Iterable[str]) -> StoredTensor:
    """Return an array as a stored tensor, without a copy if it is contiguous."""
    wanted = {DTYPES[name].numpy(): DTYPES[name] for name in allowed}
    array = numpy_of(what, array)
    if array.dtype not in wanted:
        names = ", ".join(str(dtype) for dtype in wanted)
        raise TypeError(f"{what} has dtype {array.dtype}, but must be one of {names}")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return StoredTensor(
        what, wanted[array.dtype], array.shape, data.nbytes, 0, BufferSource(data, "")
    )


def decode(
    weight: Weight,
    dtype: DType,
    out: NDArray[Any] | None,
    threads: int | None,
    level: int,
    cancel: Cancel | None = None,
) -> NDArray[Any]:
    """Decode all bands of a weight into an array, on `threads` threads or as many as are usual."""
    if threads is None:
        threads = usual_threads(weight, dtype.n_bytes(weight.n_elements))
    return decode_counting(weight, dtype, out, threads, level, cancel)[0]


def aligned_bytes(n_bytes: int) -> NDArray[np.uint8]:
    """Return room from a cache line's start on: numpy's own begins with a part of one."""
    room = np.empty(n_bytes + _core.CACHE_LINE, np.uint8)
    start = -room.ctypes.data % _core.CACHE_LINE
    return room[start : start + n_bytes]


def empty(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """Return an array without values, which a decoder fills fastest."""
    n_bytes = prod(shape) * dtype.numpy().itemsize  # packed ones come as their bytes
    try:
        if n_bytes < _core.STREAMED_BYTES:
            return np.empty(shape, dtype.numpy())
        # Stores past the caches are of whole lines.
        return aligned_bytes(n_bytes).view(dtype.numpy()).reshape(shape)
    except ValueError as error:  # dims beyond numpy's, of a tensor without elements
        raise UnsupportedError(f"numpy has no array of shape {list(shape)}: {error}") from None


def usual_threads(weight: Weight, n_bytes: int) -> int:
    """Return how many threads make an array of `n_bytes` soonest.

    One if it is small, or if bytes are inflated, swapped or gathered on their way here.
    """
    n_bands = n_bytes // band_bytes()
    if n_bands < 2 or not _lies_in_files(weight):
        return 1
    return min(max(default_threads(), weight.parts[0].source.in_flight(band_bytes())), n_bands)


def threads_for(n_bytes: int) -> int:
    """Return how many threads an array of `n_bytes` is worth."""
    return 1 if n_bytes < 2 * band_bytes() else min(default_threads(), n_bytes // band_bytes())


def _lies_in_files(weight: Weight) -> bool:
    return all(part.source.shows_base for part in weight.parts)


def decode_counting(
    weight: Weight,
    dtype: DType,
    out: NDArray[Any] | None,
    threads: int,
    level: int,
    cancel: Cancel | None = None,
) -> tuple[NDArray[Any], int]:
    """Decode, and count the values that became infinite by the rounding."""
    # Packed sub-byte types come as their bytes, in one dimension.
    shape = weight.shape if dtype.bits >= 8 else (dtype.n_bytes(weight.n_elements),)
    if out is None:
        out = empty(shape, dtype)
    elif not isinstance(out, np.ndarray):
        raise TypeError(f"out must be an array of numpy, not {shown(out)}")
    elif out.dtype != dtype.numpy():
        raise TypeError(f"out has dtype {out.dtype}, but {dtype.numpy()} is asked for")
    elif out.shape != shape:
        raise ValueError(f"out has shape {out.shape}, the weight {shape}")
    elif not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writable")
    buffer = out.reshape(-1).view(np.uint8).data
    overflows: list[int] = []

    def worker() -> Callable[[list[Band]], None]:
        scratch = Scratch(level)

        def decode_bands(bands: list[Band]) -> None:
            for band in bands:
                stop_if(cancel)
                start, stop = (dtype.n_bytes(n) for n in band)
                overflows.append(weight.decode(band, dtype, scratch, buffer[start:stop]))

        return decode_bands

    # Each thread decodes its whole share at once, if that takes no memory.
    at_once, is_copied = band_bytes(), isinstance(weight, Plain) and dtype is weight.parts[0].dtype
    takes_none = weight.is_held or (is_copied and (threads == 1 or _lies_in_files(weight)))
    if cancel is None and takes_none:
        at_once = max(at_once, -(-out.nbytes // max(threads, 1)))  # `run` refuses 0
    run(weight.bands(dtype, at_once).runs(), worker, threads)
    return out, sum(overflows)


def encode(
    encoding: Encoding, array: NDArray[Any], threads: int, level: int, found: bytes = b""
) -> tuple[NDArray[Any], ...]:
    """Encode matrices of the encoding's `values`, on `threads` threads; return one array per part.

    `found` is what a survey of more than this array has found.
    """
    shape = array.shape
    values = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    item = encoding.values.n_bytes(1)
    grain = max(encoding.encoder.grain(shape), 1)
    wanted = max(band_bytes() // item // grain, 1) * grain
    bands = cut(1, array.size, wanted, step=grain)
    survey = encoding.encoder.survey(shape)
    if survey is not None and not found:

        def see(band: Band) -> None:
            survey.see(values[band.start * item : band.stop * item], band, level)

        run(iter(bands), lambda: see, threads)
        found = survey.found()
    parts, constants = encoding.laid_out("array", shape, found)
    outs = [aligned_bytes(part.n_bytes) for part in parts]
    for place, data in constants.items():
        outs[place][:] = np.frombuffer(data, np.uint8)

    def encode_band(band: Band) -> None:
        places = []  # of each part one piece, or rows of them
        for out, extent in zip(outs, encoding.extents(shape, band), strict=True):
            offset, n_bytes, stride, n = extent
            lines = out if n == 1 else out.reshape(n, stride)
            places.append(lines[..., offset : offset + n_bytes])
        source = values[band.start * item : band.stop * item]
        rooms = [np.empty(place.shape, np.uint8) if place.ndim > 1 else place for place in places]
        encoding.encode(
            source, Task(band, shape, found, level), [room.reshape(-1).data for room in rooms]
        )
        for place, room in zip(places, rooms, strict=True):
            if room is not place:
                place[:] = room

    run(iter(bands), lambda: encode_band, threads)
    return tuple(
        out  # the bytes of blocks have no shape of their own
        if part.dtype.kind == "block"
        else out.view(part.dtype.numpy()).reshape(part.shape)
        for out, part in zip(outs, parts, strict=True)
    )
