"""A tensor that lies in boxes, as ranks hold it: each row-major, somewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from operator import add, lt
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.lazy import np
from anamnesis.base.source import DerivedSource, Source
from anamnesis.base.stored import StoredTensor

BOXES_MAX_NEIGHBOURS = 1 << 21  # pairs of boxes that are compared, and 64 for each box


Place = Callable[[], tuple[Source, int]]  # which returns where the first byte lies


def place_of(source: Source, offset: int) -> Place:
    """Return a place in a source that is open."""
    return lambda: (source, offset)


class Box(NamedTuple):
    """A part of a tensor."""

    offsets: tuple[int, ...]  # of its first element
    sizes: tuple[int, ...]
    place: Place  # of its bytes, which is asked for when they are first read


def boxed(
    name: str, dtype: DType, shape: tuple[int, ...], boxes: Sequence[Box], like: Source
) -> StoredTensor:
    """Return the tensor of a file that boxes fill: none outside, none twice, and nothing left."""
    what, n = f"tensor {name!r}", len(shape)
    for box in boxes:
        if len(box.offsets) != n or len(box.sizes) != n:
            other = f"{what}: a piece has other dimensions than {list(shape)}"
            raise ParseError(other, source=like.name)
        ends = map(sum, zip(box.offsets, box.sizes, strict=True))
        if min(box.offsets, default=0) < 0 or any(e > s for e, s in zip(ends, shape, strict=True)):
            raise ParseError(
                f"{what}: a piece of {list(box.sizes)} at {list(box.offsets)} lies outside of"
                f" {list(shape)}",
                source=like.name,
            )
    held = sum(prod(box.sizes) for box in boxes)
    if held != prod(shape):
        raise ParseError(
            f"{what}: its pieces hold {held:,} values, and {list(shape)} are {prod(shape):,}",
            source=like.name,
        )
    if shape and boxes:
        _check_apart(boxes, what, like.name)
    source = BoxSource(like, shape, dtype.bits // 8 or 1, boxes)
    if dtype.bits < 8:  # shapes of boxes count bytes, as torch does; that of a tensor, its elements
        *outer, inner = shape or (1,)
        shape = (*outer, inner * 8 // dtype.bits)
    return StoredTensor(name, dtype, shape, source.size, 0, source)


def _check_apart(boxes: Sequence[Box], what: str, source: str) -> None:
    """Refuse boxes of which two hold the same element."""
    # Along the dimension that is cut most often, few others are there at the same time.
    axis = max(range(len(boxes[0].sizes)), key=lambda i: len({box.offsets[i] for box in boxes}))
    active: list[tuple[Sequence[int], Sequence[int]]] = []  # where they begin and end
    left = BOXES_MAX_NEIGHBOURS + 64 * len(boxes)
    for begin, sizes, _ in sorted(boxes, key=lambda box: box.offsets[axis]):
        end = tuple(map(add, begin, sizes))
        active = [one for one in active if one[1][axis] > begin[axis]]
        left -= len(active)
        if left < 0:
            raise LimitExceeded(
                "BOXES_MAX_NEIGHBOURS", f"{what}: {len(boxes):,} pieces that overlap"
            )
        for start, stop in active:
            if all(map(lt, map(max, start, begin), map(min, stop, end))):
                meets = f"two pieces hold the element {list(map(max, start, begin))}"
                raise ParseError(f"{what}: {meets}", source=source)
        active.append((begin, end))


class BoxSource(DerivedSource):
    """The bytes of a whole tensor, row-major; as a part of the file `like`."""

    way = "boxes"

    def __init__(
        self, like: Source, shape: tuple[int, ...], item_bytes: int, boxes: Iterable[Box]
    ) -> None:
        super().__init__(like=like)
        self._shape = shape or (1,)
        self._item = item_bytes
        self._boxes = [box if shape else Box((0,), (1,), box.place) for box in boxes]
        self._rows = [prod(self._shape[axis + 1 :]) for axis in range(len(self._shape))]
        self._unit = np.dtype(f"u{item_bytes}" if item_bytes in (1, 2, 4, 8) else f"V{item_bytes}")
        self.size = prod(self._shape) * item_bytes

    def _read_some(self, offset: int, view: memoryview) -> int:
        n = min(len(view), self.size - offset)
        if n <= 0:
            return 0
        first, stop = offset // self._item, -(-(offset + n) // self._item)
        begin = offset - first * self._item
        if begin or n % self._item:  # within an element
            whole = memoryview(bytearray((stop - first) * self._item))
            self._fill((), first, stop, whole)
            view[:n] = whole[begin : begin + n]
        else:
            self._fill((), first, stop, view[:n])
        return n

    def _fill(self, at: tuple[int, ...], begin: int, end: int, view: memoryview) -> None:
        """Fill `view` with elements of the block whose first indices are `at`."""
        row = self._rows[len(at)]
        first, stop = -(-begin // row), end // row
        if first > stop:  # within one row
            self._fill((*at, stop), begin - stop * row, end - stop * row, view)
            return
        head, middle = (first * row - begin) * self._item, (stop * row - begin) * self._item
        if head:
            self._fill((*at, first - 1), begin - (first - 1) * row, row, view[:head])
        if middle > head:
            self._fill_rows(at, first, stop, view[head:middle])
        if len(view) > middle:
            self._fill((*at, stop), 0, end - stop * row, view[middle:])

    def _fill_rows(self, at: tuple[int, ...], first: int, stop: int, view: memoryview) -> None:
        """Fill `view` with whole rows of a block, each box's where they belong."""
        axis = len(at)
        out = None
        for offsets, sizes, place in self._boxes:
            low, high = max(first, offsets[axis]), min(stop, offsets[axis] + sizes[axis])
            within = [i - o for i, o in zip(at, offsets, strict=False)]
            if low >= high or not all(0 <= i < s for i, s in zip(within, sizes, strict=False)):
                continue
            index = 0
            for i, size in zip([*within, low - offsets[axis]], sizes, strict=False):
                index = index * size + i
            inner = sizes[axis + 1 :]
            n_row = prod(inner) * self._item
            source, start = place()
            start += index * n_row
            if inner == self._shape[axis + 1 :]:
                source.read_into(start, view[(low - first) * n_row : (high - first) * n_row])
                continue
            part = np.empty((high - low, *inner), self._unit)
            source.read_into(start, part.reshape(-1).view(np.uint8).data)
            if out is None:
                shape = (stop - first, *self._shape[axis + 1 :])
                out = np.frombuffer(view, self._unit).reshape(shape)
            spans = zip(offsets[axis + 1 :], inner, strict=True)
            out[(slice(low - first, high - first), *(slice(o, o + n) for o, n in spans))] = part
