"""What torch's own loader makes of a checkpoint, flattened by the rule of this package's names."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import torch

import anamnesis as an
from helpers.pickle_handmade import torch_saved as saved

__all__ = ["assert_same", "loaded", "raw", "saved", "tensors_of"]


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all tensors in dictionaries, lists and tuples, with their dotted names."""
    if isinstance(value, torch.Tensor):
        yield name or "tensor", value.detach()
        return
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return
    for key, item in items:
        yield from tensors_of(item, f"{name}.{key}" if name else str(key))


def raw(tensor: torch.Tensor) -> bytes:
    """Return a tensor's row-major bytes."""
    flat = tensor.contiguous().reshape(-1)
    return b"" if flat.numel() == 0 else flat.view(torch.uint8).numpy().tobytes()


def assert_same(model: an.Model, value: Any) -> int:
    """Compare every tensor's name, dtype, shape and bytes; return how many there are."""
    expected = dict(tensors_of(value))
    assert list(model.stored) == list(expected)
    for name, tensor in expected.items():
        stored = model.stored[name]
        assert stored.dtype.torch_name == str(tensor.dtype).removeprefix("torch."), name
        assert stored.shape == tuple(tensor.shape), name
        assert stored.read() == raw(tensor), name
    return len(expected)


def loaded(where: Any, *, weights_only: bool = True) -> Any:
    """Return what torch.load makes of bytes or a path."""
    where = io.BytesIO(where) if isinstance(where, bytes) else where
    return torch.load(where, map_location="cpu", weights_only=weights_only)
