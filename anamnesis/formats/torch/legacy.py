"""PyTorch's files before 1.6: consecutive pickles, then the storages.

    magic | protocol | sys_info | object | keys | number of elements, bytes, number, bytes …

Storages are little-endian on every system: torch's writer sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.formats.base import Container
from anamnesis.formats.magic import TORCH_MAGIC
from anamnesis.formats.pickle.limits import PICKLE_MAX_BYTES
from anamnesis.formats.pickle.machine import (
    FindGlobal,
    PersistentLoad,
    PickleMachine,
    TruncatedPickle,
)
from anamnesis.formats.pickle.nodes import in_words
from anamnesis.formats.torch.flatten import flatten
from anamnesis.formats.torch.globals import find_torch_global, storage_from
from anamnesis.formats.torch.read import container_of, kind_of, storage_id
from anamnesis.formats.torch.tensors import Place
from anamnesis.formats.torch.values import Storage, item_bytes

_PROTOCOL = 1001
_COUNT_BYTES = 8
_FIRST_WINDOW = 1 << 14
_GROWTH = 4

_MAGIC_BINARY = b"\x8a\x0a" + TORCH_MAGIC.to_bytes(10, "little")
_MAGIC_TEXT = b"L%dL\n." % TORCH_MAGIC
_MOST_BEFORE = 11  # PROTO and FRAME


def is_legacy(source: Source) -> bool:
    """Return whether a file begins with the pickled magic number."""
    head = source.read(0, min(source.size, _MOST_BEFORE + len(_MAGIC_TEXT)))
    return _MAGIC_TEXT in head or _MAGIC_BINARY in head


class PickleStream:
    """Consecutive pickles in a file, read little further than they extend."""

    machine: PickleMachine

    def __init__(
        self, source: Source, budget: Budget, pos: int = 0, most_bytes: int = PICKLE_MAX_BYTES
    ) -> None:
        self.source = source
        self.budget = budget
        self.pos = pos
        self.most_bytes = most_bytes
        self._start = pos  # of what is read
        self._data = b""

    def load(
        self,
        find_global: FindGlobal,
        persistent_load: PersistentLoad,
        make_machine: Callable[..., PickleMachine] = PickleMachine,
    ) -> Any:
        if self.pos == self._start + len(self._data):
            self._read_on()
        while True:
            machine = make_machine(
                self._data,
                find_global,
                persistent_load,
                self.budget,
                self.source.name,
                self.pos - self._start,
                self._start,
            )
            try:
                value = machine.load()
            except TruncatedPickle:
                if not self._read_on():
                    raise
                continue
            self.pos = self._start + machine.pos
            self.machine = machine
            return value

    def _read_on(self) -> bool:
        """Read several times as much as before; False if there is no more."""
        have = len(self._data) - (self.pos - self._start)
        if self._start + len(self._data) >= self.source.size:
            return False
        if have >= self.most_bytes:
            raise self.source.exceeded(
                "PICKLE_MAX_BYTES", f"a pickle of more than {self.most_bytes:,} bytes"
            )
        wanted = min(max(_FIRST_WINDOW, have * _GROWTH), self.source.size - self.pos)
        self.budget.alloc(wanted - have, "a pickle")
        kept = self._data[self.pos - self._start :]
        self._data = kept + self.source.read(self.pos + have, wanted - have)
        self._start = self.pos
        return True


def parse(source: Source, budget: Budget, *, allow_foreign: bool = False) -> Container:
    """Read the pickles of a file, and of its storages where they begin."""
    return _LegacyFile(source, budget, allow_foreign).container()


def end_of_storages(
    source: Source, budget: Budget, pos: int, saved: Iterable[Any], keys: Any
) -> int:
    """Return where the last storage ends."""
    file = _LegacyFile(source, budget, allow_foreign=True)
    file.stream.pos = pos
    try:
        for persistent_id in saved:
            file._storage(persistent_id)
    except (TypeError, ValueError) as error:
        raise source.error(str(error), pos) from None
    return max((p.offset + p.n_bytes for p in file._places(keys).values()), default=pos)


class _LegacyFile:
    """One file on its way to a container."""

    def __init__(self, source: Source, budget: Budget, allow_foreign: bool) -> None:
        self.source = source
        self.budget = budget
        self._find_global = partial(find_torch_global, allow_foreign=allow_foreign)
        self.stream = PickleStream(source, budget)
        self.storages: dict[str, Storage] = {}  # whole ones, as the pickle declares them

    def _next(self) -> Any:
        def nothing(saved: Any) -> Any:
            raise TypeError("a persistent id is not expected here")

        return self.stream.load(self._find_global, nothing)

    def container(self) -> Container:
        if self._next() != TORCH_MAGIC:
            raise self.source.error("not a PyTorch file", 0)
        protocol = self._next()
        if protocol != _PROTOCOL:
            raise self.source.unsupported(
                f"version {in_words(protocol)} of torch's old format; {_PROTOCOL} is read here"
            )
        self._next()  # sys_info, which torch does not look at either
        value = self.stream.load(self._find_global, self._storage)
        flattened = flatten(value, self.source.name, self.budget, self.stream.machine)
        places = self._places(self._next())
        header_bytes = self.stream.pos
        located: set[str] = set()

        def locate(storage: Storage) -> Place:
            if storage.key not in places:
                what = f"storage {storage.key!r} is referred to, but not stored"
                raise self.source.error(what)
            located.add(storage.key)
            return places[storage.key]

        def others(refused: set[str]) -> dict[str, Place]:
            return {key: places[key] for key in sorted(places.keys() - located - refused)}

        return container_of(
            f"{kind_of(value)}, before 1.6",
            flattened,
            locate,
            others,
            self.source,
            self.budget,
            header_bytes=header_bytes,
        )

    def _storage(self, saved: Any) -> Any:
        if type(saved) is tuple and saved and saved[0] in ("module", b"module"):
            return saved[1] if len(saved) > 1 else None  # a class, with its source
        kind, key, _, n_elements, *rest = storage_id(saved, self.source.name)
        given = storage_from(kind, key, n_elements)
        whole = self.storages.setdefault(given.key, given)
        if whole != given:
            raise self.source.error(f"storage {whole.key!r} is declared inconsistently")
        view: Any = rest[0] if rest else None
        if view is None:
            return whole
        is_view = type(view) is tuple and len(view) == 3
        if not is_view or any(type(n) is not int or n < 0 for n in view[1:]):
            raise self.source.error("a malformed view of a storage")
        item = 1 if whole.dtype is None else item_bytes(whole.dtype)
        start, n_bytes = (n * item for n in view[1:])
        if start + n_bytes > whole.n_bytes:
            raise self.source.error(f"a view runs past the end of storage {whole.key!r}")
        return whole._replace(start=start, n_bytes=n_bytes)

    def _counts(self, keys: list[Any]) -> Iterator[tuple[int, int]]:
        """Yield where the numbers of elements lie, if the pickle is right."""
        pos = self.stream.pos
        for key in keys:
            storage = self.storages.get(key) if type(key) is str else None
            if storage is None or pos > self.source.size:
                return
            yield pos, pos + _COUNT_BYTES
            pos += _COUNT_BYTES + storage.n_bytes

    def _places(self, keys: Any) -> dict[str, Place]:
        """Walk over the storages, each of which begins with its number of elements."""
        if type(keys) is not list:
            raise self.source.error("the keys of the storages must be a list")
        places: dict[str, Place] = {}
        pos = self.stream.pos
        self.source.prefetch(self._counts(keys))
        for key in keys:
            key = key.decode("latin-1") if type(key) is bytes else key
            storage = self.storages.get(key) if type(key) is str else None
            if storage is None or key in places:
                raise self.source.error(
                    f"storage {in_words(key)} is stored, but nothing refers to it"
                    if storage is None
                    else f"storage {key!r} is stored twice",
                    pos,
                )
            n_elements = int.from_bytes(self.source.read(pos, _COUNT_BYTES), "little", signed=True)
            item = 1 if storage.dtype is None else item_bytes(storage.dtype)
            if n_elements * item != storage.n_bytes:
                raise self.source.error(
                    f"storage {key!r} has {n_elements:,} elements, but the pickle says"
                    f" {storage.n_bytes // item:,}",
                    pos,
                )
            pos += _COUNT_BYTES
            if pos + storage.n_bytes > self.source.size:
                raise self.source.error(
                    f"truncated: {self.source.size:,} of at least {pos + storage.n_bytes:,} bytes"
                    f" (storage {key!r} ends there)",
                    self.source.size,
                )
            places[key] = Place(self.source, pos, storage.n_bytes)
            pos += storage.n_bytes
        return places
