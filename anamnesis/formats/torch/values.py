"""What a torch checkpoint is made of: dtypes, storages, tensors and plain values."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.formats.pickle.nodes import Call, Global, text_cost

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


def is_of_slots(state: Any) -> bool:
    """Return whether a state is one of an object's dictionary and its slots."""
    return (
        type(state) is tuple
        and len(state) == 2
        and all(part is None or type(part) is dict for part in state)
    )


def is_a(value: Any, *names: str) -> TypeGuard[Call]:
    """Return whether a value is an object of a class, or of one of several."""
    return (
        type(value) is Call and isinstance(value.function, Global) and value.function.name in names
    )


def attributes(state: Any) -> dict[str, Any] | None:
    """Return what a state sets, in slots too; None if it sets no attributes."""
    if is_of_slots(state):
        state = {**(state[0] or {}), **(state[1] or {})}
    return state if type(state) is dict else None


def fields_of(value: Any, *names: str) -> dict[str, Any] | None:
    """Return the attributes of an object of a class, or of one of several; None if it is none."""
    is_one = is_a(value, *names) and len(value.states) == 1
    return attributes(value.states[0]) if is_one else None


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


_AS_IN_JSON = frozenset((bool, int, float, str))


def value_cost(value: Any) -> int:
    """Return a leaf's cost in bytes: of a long integer its bits, for digits take their square."""
    kind = type(value)
    if kind is str:
        return text_cost(value)
    if kind is int:
        return value.bit_length() // 64 * 64  # type: ignore[no-any-return]
    n_bytes = 0
    if kind is list or kind is tuple:
        for item in value:  # not a list of all their costs: there may be millions
            part = type(item)
            if part is str:
                n_bytes += text_cost(item)
            elif part is int:
                n_bytes += item.bit_length() // 64 * 64
            elif part is list or part is tuple:
                n_bytes += value_cost(item) if item else 0
    return n_bytes


def plain_list(items: Any, kinds: set[type]) -> list[Any]:
    """Return a list of plain values, of those kinds, as one that JSON has."""
    if kinds <= _AS_IN_JSON:
        return list(items)
    return ["None" if item is None else plain(item) for item in items]


def plain(value: Any) -> Any:
    """Return a leaf as a value that JSON has."""
    if type(value) in _AS_IN_JSON:
        return value
    if value is None:
        return "None"  # the same string each time, which `str` does not give
    if type(value) is bytes:
        return f"({len(value):,} bytes)"
    if type(value) is tuple:
        return "()"
    return str(value)[:200]
