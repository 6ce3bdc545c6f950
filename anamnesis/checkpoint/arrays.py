"""Arrays of any library as stored tensors, which lie in memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from anamnesis.base.dtypes import ALL_DTYPES, DTYPES, DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.formats.base import Container
from anamnesis.sources.array import array_source
from anamnesis.sources.memory import BufferSource

NAME = "<arrays>"

_ARRAYS = ("__array__", "__array_interface__", "__dlpack__")


def in_memory(stored: Mapping[str, StoredTensor]) -> Checkpoint:
    """Return tensors of any sources as a model that was opened from no file.

    The files that some of them lie in are among its shards, so that none of these is written to.
    """
    own = Container("arrays", "arrays in memory", BufferSource(b"", NAME), dict(stored))
    shards = {NAME: own}
    for source in {id(t.source.base): t.source.base for t in stored.values()}.values():
        if source.path is not None:
            shards.setdefault(source.name, Container("arrays", own.format, source, {}))
    return Checkpoint(None, shards, own.tensors)


def stored_array(name: str, given: Any) -> StoredTensor:
    """Return an array as a tensor that lies in memory; it is not copied."""
    array, dtype = array_of(name, given)
    shape = array.shape
    if dtype.bits < 8 and shape:  # several in a byte
        shape = (*shape[:-1], shape[-1] * 8 // dtype.bits)
    return StoredTensor(name, dtype, shape, array.nbytes, 0, array_source(array, NAME))


def array_of(name: str, given: Any) -> tuple[NDArray[Any], DType]:
    """Return an array of any library as numpy's, or its bits as integers, and its dtype."""
    torch = sys.modules.get("torch")  # no tensor of it can be there before
    if torch is not None and isinstance(given, torch.Tensor):
        return _of_torch(name, given, torch)
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name!r} is a masked array, and no format has masks: fill it")
    if not any(hasattr(given, protocol) for protocol in _ARRAYS):
        kind = type(given).__name__
        raise TypeError(f"{name!r} is a {kind}, not an array; np.asarray may make it one")
    is_numpy = hasattr(given, "__array__") or hasattr(given, "__array_interface__")
    array = np.asarray(given) if is_numpy else np.from_dlpack(given)
    dtype = _of_numpy(array.dtype.name)
    if dtype is None:
        raise TypeError(f"{name!r} has the dtype {array.dtype}, which no format has: cast it")
    return array, dtype


def _of_numpy(name: str) -> DType | None:
    for dtype in ALL_DTYPES.values():
        if dtype.numpy_name == name:
            return dtype
    return None


def _of_torch(name: str, tensor: Any, torch: Any) -> tuple[NDArray[Any], DType]:
    """Return a tensor's bits, as integers where numpy has no such dtype."""
    tensor = tensor.detach()
    kind = str(tensor.dtype).removeprefix("torch.")
    dtype = next((d for d in ALL_DTYPES.values() if d.torch_name == kind), None)
    if dtype is None:
        raise TypeError(f"{name!r} has the dtype {tensor.dtype}, which no format has: cast it")
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        what = type(tensor).__name__ if tensor.layout is torch.strided else str(tensor.layout)
        raise TypeError(
            f"{name!r} is a {what}, which has no plain values; to_dense() may make some"
        )
    if tensor.device.type == "meta":
        raise TypeError(f"{name!r} lies on the device 'meta', and has no values")
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    if dtype.numpy_name is None or dtype is DTYPES["BF16"] or dtype.name.startswith("F8_"):
        tensor = tensor.view({1: torch.uint8, 2: torch.int16}[tensor.element_size()])
    return tensor.numpy(), dtype
