"""NumPy's arrays as tensors of torch and arrays of JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DType
from anamnesis.base.printable import shown

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

# By the words that safetensors and others have for them, too.
_NAMES = {
    "numpy": "numpy",
    "np": "numpy",
    "torch": "torch",
    "pt": "torch",
    "pytorch": "torch",
    "jax": "jax",
}


def framework(
    name: str, device: Any, dtypes: Mapping[str, DType]
) -> Callable[[NDArray[Any], DType], Any]:
    """Return what makes a framework's array of NumPy's and its dtype."""
    if name not in _NAMES:
        known = ", ".join(map(repr, _NAMES))
        raise ValueError(f"framework must be one of {known}, not {name!r}")
    package = _NAMES[name]
    if package == "numpy":
        if device is not None:
            raise TypeError("NumPy's arrays are on no device: leave device=... out")
        return lambda array, _: array
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"framework={name!r} needs {package}, which is not installed", name=package
        ) from None
    if package == "torch":
        return partial(to_torch, device=None if device is None else _device(device))
    if not module.config.jax_enable_x64:  # without which it cuts 64 bits to 32
        for tensor, dtype in dtypes.items():
            if dtype.bits >= (128 if dtype.kind == "complex" else 64):
                raise ValueError(
                    f"tensor {tensor!r} is {dtype}, which JAX has only after"
                    " jax.config.update('jax_enable_x64', True)"
                )
    where = module.devices(device)[0] if isinstance(device, str) else device
    return lambda array, _: module.device_put(array, where)


def to_torch(
    array: NDArray[Any], dtype: DType, device: torch.device | str | int | None = None
) -> torch.Tensor:
    """Return a tensor in an array's memory; a copy, on another device than the CPU."""
    import numpy as np
    import torch

    flat = torch.from_numpy(array.reshape(-1).view(np.uint8))
    if array.dtype != np.uint8:
        flat = flat.view(getattr(torch, dtype.torch_name))
    made = flat.reshape(array.shape)
    return made if device is None else made.to(_device(device))


def _device(device: Any) -> torch.device:
    """Return a device of torch's by what `torch.Tensor.to` takes."""
    import torch

    try:
        return torch.device(device)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise ValueError(f"device must be one of torch's, not {shown(device)}: {why}") from None
