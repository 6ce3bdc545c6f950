"""What a torch checkpoint is made of: dtypes, storages and tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.formats.pickle.nodes import Global

PTH_MAX_DIMS = 64
_MOST_SIZE = (1 << 63) - 1
_UNTYPED = DTYPES["U8"]


class DTypeGlobal(Global):
    """A dtype, or a storage class, which implies one; `None` for untyped storages."""

    __slots__ = ("dtype", "item_bytes")

    def __init__(self, module: str, name: str, dtype: DType | None) -> None:
        super().__init__(module, name)
        self.dtype = dtype
        self.item_bytes = item_bytes(dtype or _UNTYPED)


class Storage(NamedTuple):
    """A run of bytes that tensors lie in."""

    key: str
    dtype: DType | None
    n_bytes: int
    start: int = 0

    @property
    def element(self) -> DType:
        """The dtype of a tensor that does not say its own."""
        return self.dtype or _UNTYPED


class TorchTensor(NamedTuple):
    """A tensor as it lies in a storage; offset and strides are in elements."""

    storage: Storage
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Refused(NamedTuple):
    """A tensor that can be listed but not read."""

    what: str
    shape: tuple[int, ...] = ()
    parts: tuple[Any, ...] = ()


class Attributed(NamedTuple):
    """A tensor with attributes."""

    tensor: Any
    state: Any


class SubclassGlobal(Global):
    """A library's subclass of `torch.Tensor`, whose attributes hold what it is made of."""

    __slots__ = ()


class Wrapper(NamedTuple):
    """A tensor of such a subclass, which has no storage of its own."""

    kind: SubclassGlobal
    dtype: DType
    shape: tuple[int, ...]
    state: Any = None


def too_large(shape: tuple[int, ...]) -> bool:
    """Return whether torch has no tensor of a shape, be it one without elements."""
    # It multiplies sizes from the first on, and gives up where that takes more than 64 bits.
    n_elements = 1
    for size in shape:
        n_elements *= size
        if size > _MOST_SIZE or n_elements >> 64:
            return True
    return False


def whole(storage: Storage) -> TorchTensor:
    """Return a storage as one row."""
    dtype = storage.element
    return TorchTensor(storage, dtype, 0, (storage.n_bytes // item_bytes(dtype),), (1,))


def item_bytes(dtype: DType) -> int:
    """Return what torch takes for one element; it packs sub-byte types into bytes."""
    return dtype.bits // 8 or 1
