"""Where the tensors of a torch checkpoint lie: storages, strides, byte order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.pickle.nodes import Call
from anamnesis.formats.torch.values import Refused, Storage, TorchTensor, item_bytes
from anamnesis.sources.altered import swapped
from anamnesis.sources.strided import StridedSource, Strips, strided

if TYPE_CHECKING:
    from anamnesis.formats.torch.pickled_arrays import PickledArray

PTH_MAX_EXPANSION = 64  # bytes of all tensors for each byte of the storages that they lie in
_SMALL = 16 << 20  # bytes that all tensors may take in any case

# Reads of 8 KiB that tensors which do not lie row-major may take: in any case, and 64 for each that
# the file has. Its storages may be deflated, and its tensors views of the same one.
PTH_MAX_READS = 1 << 18
_BYTES_PER_READ = 128

_BYTES = DTYPES["U8"]
_UNREADABLE = DType("?", 8, None, "?", "unknown", 1, 1)


class Place(NamedTuple):
    """Where a storage lies."""

    source: Source
    offset: int
    n_bytes: int


class Placed(NamedTuple):
    """All tensors of a file."""

    tensors: dict[str, StoredTensor]
    unreadable: dict[str, AnamnesisError]
    tied: list[list[str]]
    refused: set[str]


def place_all(
    tensors: Mapping[str, TorchTensor | PickledArray | Refused],
    locate: Callable[[Storage], Place],
    source: Source,
    budget: Budget,
    *,
    big_endian: bool = False,
) -> Placed:
    """Find each tensor's bytes."""
    placed: dict[str, StoredTensor] = {}
    unreadable: dict[str, AnamnesisError] = {}
    strips = Strips()
    places: dict[Storage, Place] = {}
    arrays: dict[PickledArray, Place] = {}
    refused: list[Any] = []
    names: dict[Any, list[str]] = {}
    n_bytes = n_reads = 0
    for name, tensor in tensors.items():
        if isinstance(tensor, TorchTensor):
            storage = tensor.storage
            place = places.get(storage)
            if place is None:
                place = places[storage] = locate(storage)
            placed[name] = made = _placed(name, tensor, place, strips, big_endian)
            if type(made.source) is StridedSource:
                n_reads += made.source.n_reads()
            if made.dtype.kind == "unknown":
                what = f"torch's dtype {made.dtype.torch_name}, which is not supported"
                unreadable[name] = source.unsupported(f"tensor {name!r} has {what}")
        elif isinstance(tensor, Refused):
            placed[name] = made = StoredTensor(name, _UNREADABLE, tensor.shape, 0, 0, source)
            what = f"tensor {name!r} cannot be read: it is {tensor.what}"
            unreadable[name] = source.unsupported(what)
            refused.append(tensor.parts)
        else:
            inner, offset = tensor.bytes_of(source, strips)
            n = len(tensor.raw)
            placed[name] = made = StoredTensor(name, tensor.dtype, tensor.shape, n, offset, inner)
            arrays[tensor] = Place(inner, 0, n)
        if made.n_bytes:
            names.setdefault(tensor, []).append(name)
        n_bytes += made.n_bytes
    _check_expansion(n_bytes, [*places.values(), *arrays.values()], source, budget)
    if n_reads > PTH_MAX_READS + source.size // _BYTES_PER_READ:
        raise source.exceeded(
            "PTH_MAX_READS",
            f"the tensors are scattered over {n_reads:,} reads;"
            f" {PTH_MAX_READS + source.size // _BYTES_PER_READ:,} are allowed",
        )
    tied = [same for same in names.values() if len(same) > 1]
    return Placed(placed, unreadable, tied, keys_in(refused) if refused else set())


def list_lost(placed: Placed, others: Mapping[str, Place], source: Source, budget: Budget) -> None:
    """List storages that no tensor lies in, by their keys, as bytes that are not read."""
    for key, place in others.items():
        n_bytes = place.n_bytes
        if not n_bytes:
            continue
        if key in placed.tensors:
            raise source.error(f"a tensor has the name of storage {key!r}")
        budget.items(1, "the storages without tensors")
        placed.tensors[key] = StoredTensor(
            key, _BYTES, (n_bytes,), n_bytes, place.offset, place.source
        )
        placed.unreadable[key] = source.unsupported(
            f"storage {key!r}, of {n_bytes:,} bytes, is used by no tensor"
        )


def keys_in(value: Any) -> set[str]:
    """Return the keys of all storages in a value, which may go in circles."""
    keys: set[str] = set()
    seen: set[int] = set()
    left = [value]
    while left:
        value = left.pop()
        if type(value) is Storage:
            keys.add(value.key)
        elif id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, (tuple, list)):
                left.extend(value)
            elif type(value) is dict:
                left.extend(value.values())
            elif type(value) is Call:
                left.extend((value.args, *value.states, value.items, value.pairs))
    return keys


def _placed(
    name: str, tensor: TorchTensor, place: Place, strips: Strips, big_endian: bool
) -> StoredTensor:
    storage, dtype, first, shape, strides = tensor
    item = item_bytes(dtype)
    source, start, room = place
    if storage.start or storage.n_bytes < room:
        start += storage.start
        room = min(room - storage.start, storage.n_bytes or room)
    last = first
    contiguous = True
    n_elements = 1
    for size, stride in zip(shape[::-1], strides[::-1], strict=True):
        if size != 1:
            if stride != n_elements:
                contiguous = False
            n_elements *= size
            last += (size - 1) * stride
    if n_elements and (last + 1) * item > room:
        raise source.error(
            f"tensor {name!r} ends at byte {(last + 1) * item:,} of storage {storage.key!r},"
            f" which has {max(0, room):,} bytes"
        )
    n_bytes = n_elements * item
    offset = start + first * item if n_elements else start
    if n_elements and big_endian and item > 1:
        end = start + (last + 1) * item
        number = item // 2 if dtype.torch_name.startswith("complex") else item
        source = swapped(source, offset, end, number)
    if n_elements and not contiguous:
        source, offset = strided(source, offset, shape, strides, item, strips)
    if dtype.bits < 8:  # torch counts bytes, safetensors the elements packed in them
        *outer, inner = shape or (1,)
        shape = (*outer, inner * dtype.block_elements)
    return StoredTensor(name, dtype, shape, n_bytes, offset, source)


def _check_expansion(n_bytes: int, places: Iterable[Place], source: Source, budget: Budget) -> None:
    """Refuse tensors whose strides repeat a little storage endlessly."""
    ratio = budget.limits.max_decompression_ratio
    if ratio is None and n_bytes <= _SMALL:
        return
    n_stored = sum([place.n_bytes for place in set(places)])
    if ratio is not None and n_bytes > n_stored and n_bytes > ratio * n_stored:
        raise source.exceeded(
            "max_decompression_ratio",
            f"the tensors take {n_bytes:,} bytes, their storages {n_stored:,}",
        )
    if n_bytes > max(_SMALL, PTH_MAX_EXPANSION * n_stored):
        raise source.exceeded(
            "PTH_MAX_EXPANSION",
            f"the tensors take {n_bytes:,} bytes, more than {PTH_MAX_EXPANSION}"
            f" times the {n_stored:,} of their storages",
        )
