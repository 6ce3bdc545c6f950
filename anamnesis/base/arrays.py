"""Arrays of any library as numpy's."""

from __future__ import annotations

import sys
from typing import Any

from anamnesis.base.dtypes import ALL_DTYPES, DTYPES, DType
from anamnesis.base.lazy import NDArray
from anamnesis.base.printable import kind_of

_ARRAYS = ("__array__", "__array_interface__", "__dlpack__")


def numpy_of(name: str, given: Any) -> NDArray[Any]:
    """Return an array of any library, numbers or lists of them as an array of numpy's dtypes."""
    import numpy as np

    if _is_torch(given):
        array, dtype = array_of(name, given)
        return array if dtype.numpy_name is None else array.view(dtype.numpy())
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype.kind in "OSU":
        kind = f"one of dtype {array.dtype}" if given is array else kind_of(given)
        raise TypeError(f"{name} must be an array of numbers, not {kind}")
    return array


def array_of(name: str, given: Any) -> tuple[NDArray[Any], DType]:
    """Return an array of any library as numpy's, or its bits as integers, and its dtype."""
    if _is_torch(given):
        return _of_torch(name, given, sys.modules["torch"])
    import numpy as np

    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name!r} is a masked array, and no format has masks: fill it")
    if not any(hasattr(given, protocol) for protocol in _ARRAYS):
        raise TypeError(f"{name!r} is {kind_of(given)}, not an array; np.asarray may make it one")
    is_numpy = hasattr(given, "__array__") or hasattr(given, "__array_interface__")
    array = np.asarray(given) if is_numpy else np.from_dlpack(given)
    numpy_name = array.dtype.name
    dtype = next((one for one in ALL_DTYPES.values() if one.numpy_name == numpy_name), None)
    if dtype is None:
        raise TypeError(f"{name!r} has the dtype {array.dtype}, which no format has: cast it")
    return array, dtype


def _is_torch(given: Any) -> bool:
    torch = sys.modules.get("torch")  # no tensor of it can be there before
    return torch is not None and isinstance(given, torch.Tensor)


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
