"""Named operations on weights, each beside its inverse: nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.source import DerivedSource
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.bands import Band, Cut
from anamnesis.schemes.core.plain import Plain, PlainMatrix
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run
from anamnesis.schemes.families.ggml.weight import GgmlWeight
from anamnesis.schemes.views import views
from anamnesis.schemes.views.gathered import Gathered, GatheredColumns, Reshaped, n_rows, parts_of
from anamnesis.schemes.views.transposed import Transposed, tiled, transposed
from anamnesis.sources.gathered import RowOrder, RowRun

if TYPE_CHECKING:
    Floats = NDArray[np.float32]


def renamed(weight: Weight, name: str) -> Weight:
    """Return a weight under another name; what is one stored tensor has it as that too."""
    if weight.name == name:
        return weight
    if _is_lone(weight):
        stored = weight.parts[0]._replace(name=name)
        return replace(weight, name=name, parts=(stored,))
    return replace(weight, name=name)


def reshaped(weight: Weight, name: str, shape: tuple[int, ...]) -> Weight:
    """Return a weight of another shape, of as many values. Its inverse: the shape that it had."""
    if prod(shape) != weight.n_elements:
        raise ValueError(f"{weight.name} {list(weight.shape)} cannot be of shape {list(shape)}")
    if weight.shape == shape:
        return renamed(weight, name)
    if _is_lone(weight) and (shape[-1] if shape else 1) % weight.parts[0].dtype.block_elements == 0:
        stored = weight.parts[0]._replace(name=name, shape=shape)
        return replace(weight, name=name, shape=shape, parts=(stored,))
    if isinstance(weight, Reshaped):
        return reshaped(weight.pieces[0], name, shape)
    return Reshaped(name, shape, weight.parts, (weight,))


def turned(weight: Weight, name: str) -> Weight:
    """Return the transpose of a matrix, or of each of a stack: its own inverse."""
    if isinstance(weight, Transposed):
        return renamed(weight.stored, name)
    if len(weight.shape) < 2:
        raise ValueError(f"{weight.name} {list(weight.shape)} is no matrix")
    return transposed(tiled(weight), name)


def _is_lone(weight: Weight) -> bool:
    """Return whether a weight is a stored tensor, of which nothing else counts."""
    return type(weight) in (Plain, PlainMatrix, GgmlWeight)


_F32 = DTYPES["F32"]


def gathered_columns(weight: Weight, name: str, order: Sequence[int]) -> Weight:
    """Return columns in an order: column i is what was `order[i]`; `inverse(order)` undoes it."""
    *lead, cols = weight.shape
    if not lead or not all(0 <= col < cols for col in order):
        raise ValueError(f"{weight.name} {list(weight.shape)} has not all of these columns")
    shape = (*lead, len(order))
    return GatheredColumns(name, shape, weight.parts, (weight,), tuple(order))


def mapped_values(weight: Weight, name: str, function: str) -> Weight:
    """Return what a function makes of each value, in F32; the value itself where none is named."""
    source = ValuesSource(weight, function)
    stored = StoredTensor(name, _F32, weight.shape, source.size, 0, source)
    return Plain(name, weight.shape, (stored,))


def widened(weight: Weight, name: str) -> Weight:
    """Return a float weight in F32, in which each of its values has a place, unless it is F64."""
    if weight.own_dtype is _F32:
        return renamed(weight, name)
    return mapped_values(weight, name, "")


def constant(name: str, array: NDArray[Any], like: Weight) -> Weight:
    """Return a small float32 array as a weight, as if it lay in the file of another one."""
    values = np.ascontiguousarray(array, np.float32)
    stored = views.constant(Part(name, _F32, values.shape), values.tobytes(), like.parts[0])
    return Plain(name, values.shape, (stored,))


# --- rows ---------------------------------------------------------------------------------------


def gathered_rows(
    name: str,
    pieces: Sequence[Weight],
    period: int,
    order: Sequence[int],
    shape: tuple[int, ...],
) -> Weight:
    """Return some rows of each group of `period` rows, in an order."""
    total = sum(n_rows(piece.shape) for piece in pieces)
    if period < 1 or total % period:
        raise ValueError(f"{name}: {total:,} rows are no groups of {period:,}")
    if not all(0 <= row < period for row in order):
        raise ValueError(f"{name}: a group of {period:,} rows has not all that are to be taken")
    return _taken(name, pieces, RowOrder.of(order, period, total // period), shape)


def interleaved(
    name: str,
    pieces: Sequence[Weight],
    periods: Sequence[int],
    shape: tuple[int, ...],
) -> Weight:
    """Return groups of rows of each piece in turn: the inverse of `rows_between` of each."""
    counts = [n_rows(piece.shape) for piece in pieces]
    n_groups = counts[0] // max(periods[0], 1)
    if counts != [n_groups * period for period in periods]:
        raise ValueError(f"{name}: {counts} rows are not as many groups of {list(periods)}")
    runs = [RowRun(sum(counts[:i]), period, period) for i, period in enumerate(periods) if period]
    order = RowOrder(tuple(runs), n_groups)
    if n_groups == 1:
        order = RowOrder((RowRun(0, sum(counts), sum(counts)),), 1)
    return _taken(name, pieces, order, shape)


def rows_between(weight: Weight, name: str, period: int, first: int, stop: int) -> Weight:
    """Return the rows `first` to `stop` of each `period`, of as many matrices."""
    # `interleaved` puts them together again.
    return gathered_rows(
        name, [weight], period, range(first, stop), _with_rows(weight, period, stop - first)
    )


def every_other(weight: Weight, name: str, first: int, step: int = 2) -> Weight:
    """Return every `step`-th row from row `first` on; `interleaved` by 1 undoes it."""
    return gathered_rows(name, [weight], step, [first], _with_rows(weight, step, 1))


def first_rows(weight: Weight, name: str, n: int) -> Weight:
    """Return the first n rows of a matrix, or values of a vector; the others are lost."""
    return rows_between(weight, name, n_rows(weight.shape), 0, n)


def permuted(weight: Weight, name: str, n_heads: int) -> Weight:
    """Return rows whose halves take turns within each head, as llama.cpp's rope wants them."""
    # Of each head [2, d/2] become [d/2, 2]. `unpermuted` undoes it.
    d = n_rows(weight.shape) // n_heads
    return gathered_rows(name, [weight], d, _by_turns(d // 2, 2), weight.shape)


def unpermuted(weight: Weight, name: str, n_heads: int) -> Weight:
    """Return rows as they were before `permuted`."""
    d = n_rows(weight.shape) // n_heads
    return gathered_rows(name, [weight], d, _by_turns(2, d // 2), weight.shape)


def in_order(weight: Weight, name: str, order: Sequence[int]) -> Weight:
    """Return the rows of each matrix, or the values of a vector, in an order."""
    # Row i is what was row `order[i]`; `inverse(order)` undoes it.
    return gathered_rows(name, [weight], len(order), order, weight.shape)


def inverse(order: Sequence[int]) -> list[int]:
    """Return the order that undoes another one, which has each index once."""
    found = [0] * len(order)
    for i, row in enumerate(order):
        found[row] = i
    return found


def stacked(name: str, pieces: Sequence[Weight]) -> Weight:
    """Return matrices, or vectors, of one shape as a stack; `matrix_of` takes one out."""
    shape = (len(pieces), *pieces[0].shape)
    if len(shape) == 3:
        made = pieces[0].stacked(name, pieces, 1, alternates=False)
        if made is not None:
            return made
    if len(shape) == 2:
        pieces = [reshaped(piece, piece.name, (1, *piece.shape)) for piece in pieces]
    total = n_rows(shape)
    return _taken(name, pieces, RowOrder((RowRun(0, total, total),), 1), shape)


def matrix_of(stack: Weight, name: str, i: int) -> Weight:
    """Return one matrix of a stack [E, rows, cols], or one vector of [E, n]."""
    rows = stack.shape[1] if len(stack.shape) == 3 else 1
    made = stack.cut_out(name, Cut(i, 0, rows))
    if made is not None:
        return made
    order, cols = range(i * rows, (i + 1) * rows), stack.shape[-1]
    made = gathered_rows(name, [stack], n_rows(stack.shape), order, (rows, cols))
    return reshaped(made, name, stack.shape[1:])


def _taken(name: str, pieces: Sequence[Weight], order: RowOrder, shape: tuple[int, ...]) -> Weight:
    """Return rows of weights, in their own codes where these can be moved."""
    cols = shape[-1] if len(shape) > 1 else 1
    for piece in pieces:
        if (piece.shape[-1] if len(piece.shape) > 1 else 1) != cols:
            raise ValueError(
                f"{piece.name} {list(piece.shape)} has not the columns of {list(shape)}"
            )
    if n_rows(shape) != order.n_rows:
        raise ValueError(f"{name}: {order.n_rows:,} rows are taken for {list(shape)}")
    made = pieces[0].with_rows(name, shape, pieces, order)
    if made is not None:
        return made
    return Gathered(name, shape, parts_of(tuple(pieces)), tuple(pieces), order)


def _with_rows(weight: Weight, period: int, n: int) -> tuple[int, ...]:
    """Return a weight's shape with n rows of each `period`."""
    if len(weight.shape) == 1:
        return (weight.shape[0] // max(period, 1) * n,)
    *lead, rows, cols = weight.shape
    return (*lead, rows // max(period, 1) * n, cols)


def _by_turns(n: int, step: int) -> list[int]:
    """Return [step, n] as [n, step]: 0, n, 2n, …, 1, n+1, …"""
    return [j * n + i for i in range(n) for j in range(step)]


_AT_ONCE = 1 << 16  # values


# Sums are torch's to the bit. Of its exp and log the last bit depends on the CPU, for MKL has
# several of each, which differ in one to five of a hundred values: here they are rounded once, from
# float64.
FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "plus-one": lambda x: x + np.float32(1),
    "minus-one": lambda x: x - np.float32(1),
    "minus-exp": lambda x: -np.exp(x.astype("f8")).astype("f4"),
    "log-of-minus": lambda x: np.log(-x.astype("f8")).astype("f4"),
}


class ValuesSource(DerivedSource):
    """The values of a weight in float32, row-major, decoded as they are read."""

    def __init__(self, weight: Weight, function: str = "") -> None:
        super().__init__(*(part.source for part in weight.parts))
        self._weight = weight
        self._function = function
        self.size = 4 * weight.n_elements

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        first, begin = divmod(offset, 4)
        stop = min(-(-(offset + len(view)) // 4), first + _AT_ONCE, self.size // 4)
        values = np.empty(stop - first, np.float32)
        raw = values.view(np.uint8).data
        decode_run(self._weight, Band(first, stop), _F32, Scratch(), raw)
        if self._function:
            with np.errstate(all="ignore"):
                values = FUNCTIONS[self._function](values)
                own = self._weight.own_dtype
                if own is not None and own.name == "F16":
                    values = values.astype(np.float16).astype(np.float32)
        part = values.view(np.uint8).data[begin : begin + len(view)]
        view[: len(part)] = part
        return len(part)

    @property
    def way(self) -> str:
        given = [(part.name, part.offset, part.source.way) for part in self._weight.parts]
        return f"{self._function or 'values'} of {self._weight.id} {given}"
