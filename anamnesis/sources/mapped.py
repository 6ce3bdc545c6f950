"""Bytes made of others, unit by unit: nibbles swapped, codes joined to blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.lazy import NDArray, np
from anamnesis.base.source import DerivedSource, Source

if TYPE_CHECKING:
    Units = NDArray[np.uint8]
    Mapping = Callable[..., NDArray[Any]]

_AT_ONCE = 1 << 18  # bytes that are made, and about as many that are read, at a time: in cache


class Input(NamedTuple):
    """What units are made of: a run of units of another source."""

    source: Source
    offset: int
    unit_bytes: int
    n_units: int


class MappedSource(DerivedSource):
    """Units of n bytes, each made of a unit of every input.

    Nothing is kept: what is asked for is made anew, some of it at a time, by any number of threads.
    """

    def __init__(
        self,
        like: Source,
        inputs: Sequence[Input],
        n_units: int,
        unit_bytes: int,
        make: Mapping,
    ) -> None:
        super().__init__(*(given.source for given in inputs), like=like)
        self._inputs = tuple(inputs)
        self._n_units = n_units
        self._unit_bytes = unit_bytes
        self._function = make
        largest = max([unit_bytes, *(i.unit_bytes for i in inputs)])
        self._units_at_once = max(1, _AT_ONCE // max(largest, 1))
        self.size = n_units * unit_bytes

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        first, begin = divmod(offset, self._unit_bytes)
        wanted = -(-(begin + len(view)) // self._unit_bytes)
        stop = min(first + min(wanted, self._units_at_once), self._n_units)
        made = self._make(range(first, stop))[begin : begin + len(view)]
        view[: len(made)] = made
        return len(made)

    def _make(self, units: range) -> memoryview:
        made = self._function(units, *(_read(given, units) for given in self._inputs))
        return np.ascontiguousarray(made).reshape(-1).view(np.uint8).data


def _read(given: Input, units: range) -> Units:
    """Return units of an input, those behind its last as zeros."""
    n = given.unit_bytes
    stop = min(units.stop, given.n_units)
    offset, n_bytes = given.offset + units.start * n, max(stop - units.start, 0) * n
    held = given.source.held(offset, n_bytes) if stop == units.stop else None
    if held is not None:
        return np.frombuffer(held, np.uint8).reshape(len(units), n)
    made = np.zeros((len(units), n), np.uint8)
    given.source.read_into(offset, made.reshape(-1).data[:n_bytes])
    return made
