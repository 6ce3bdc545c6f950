"""PyTorch's files since 1.6: a ZIP archive of a pickle and the storages.

    NAME/data.pkl  NAME/byteorder  NAME/data/0  NAME/data/1 …  NAME/version

`torch.jit.save` writes the same, and constants and code beside; of those archives the tensors are
read, in the order and by the names of the attributes that hold them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.base.plain_json import plain_json
from anamnesis.base.source import Source
from anamnesis.formats.base import Container, TypedMetadata, names_below
from anamnesis.formats.pickle.limits import PICKLE_MAX_BYTES, PICKLE_MAX_RATIO, PICKLE_SMALL
from anamnesis.formats.pickle.machine import FindGlobal, PickleMachine
from anamnesis.formats.pickle.nodes import Builder, Global, text_cost
from anamnesis.formats.pickle.opcodes import Problem
from anamnesis.formats.torch.flatten import Flattened, flatten
from anamnesis.formats.torch.globals import find_torch_global, storage_from
from anamnesis.formats.torch.tensors import Place, keys_in, list_lost, place_all
from anamnesis.formats.torch.values import Storage, TorchTensor, Wrapper

if TYPE_CHECKING:
    from anamnesis.formats.zip.directory import ZipEntry
    from anamnesis.formats.zip.members import ZipDirectory

_LONGEST_CARRIED = 1000  # characters


class PthMetadata(TypedMetadata):
    """What is no tensor in a checkpoint: numbers, strings, lists of them, by dotted name."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def summary(self) -> dict[str, Any]:
        return self._values

    def is_carried(self, key: str) -> bool:
        value = self._values[key]
        n = sum(len(str(item)) for item in value) if type(value) is list else len(str(value))
        return n + len(key) <= _LONGEST_CARRIED

    def below(self, prefix: str) -> PthMetadata:
        return PthMetadata(names_below(self._values, prefix))

    def text(self, key: str) -> str:
        value = plain_json(self._values[key])
        return value if isinstance(value, str) else json.dumps(value)


def container_of(
    kind: str,
    flattened: Flattened,
    locate: Callable[[Storage], Place],
    others: Callable[[set[str]], dict[str, Place]],
    source: Source,
    budget: Budget,
    *,
    header_bytes: int,
    big_endian: bool = False,
) -> Container:
    """Return a file's container."""
    placed = place_all(flattened.tensors, locate, source, budget, big_endian=big_endian)
    lost = others(placed.refused | keys_in(flattened.spent))
    if lost:
        list_lost(placed, lost, source, budget)
    return Container(
        "torch",
        f"PyTorch {kind}",
        source,
        placed.tensors,
        PthMetadata(flattened.others),
        header_bytes,
        {"byte_order": "big" if big_endian else "little"},
        placed.unreadable,
        tied=placed.tied,
        described=flattened.described,
        sharded=flattened.sharded,
    )


def read_pickle(directory: ZipDirectory, entry: ZipEntry) -> bytes:
    """Return a member that is a pickle."""
    if entry.n_bytes > max(PICKLE_SMALL, PICKLE_MAX_RATIO * entry.n_compressed):
        raise directory.source.exceeded(
            "PICKLE_MAX_RATIO",
            f"the pickle {entry.name!r} has {entry.n_bytes:,} bytes, more"
            f" than {PICKLE_MAX_RATIO} times the {entry.n_compressed:,} that it takes",
        )
    return directory.read(entry, PICKLE_MAX_BYTES, "PICKLE_MAX_BYTES", crc_optional=True)


def storage_id(saved: Any, name: str) -> tuple[Any, ...]:
    """Return what follows `storage` in a persistent id."""
    if type(saved) is not tuple or len(saved) < 5 or saved[0] not in ("storage", b"storage"):
        raise ParseError("a persistent id that names no storage", source=name)
    return saved[1:]


class TorchMachine(PickleMachine):
    """A machine that finds the storages of tensors, and refuses keys that are given twice."""

    def __init__(
        self,
        data: bytes,
        find_global: FindGlobal,
        budget: Budget,
        name: str,
        folder: str,
        *,
        may_retype: bool = False,
    ) -> None:
        super().__init__(data, find_global, None, budget, name)
        self.folder = folder
        self.may_retype = may_retype
        self.storages: dict[str, Storage] = {}

    def persistent_load(self, saved: Any) -> Storage:
        kind, key, _, n_elements = storage_id(saved, self.name)[:4]
        storage = storage_from(kind, key, n_elements, self.folder)
        self.charge(text_cost(storage.key))
        known = self.storages.setdefault(storage.key, storage)
        if known == storage:
            return known
        if not self.may_retype:
            raise Problem(f"storage {storage.key!r} is declared inconsistently")
        return storage

    def replace_item(self, key: Any) -> None:
        raise Problem(f"a dictionary is given the key {str(key)[:200]!r} twice")


_PICKLE = "data.pkl"
_IN_FOLDER = f"/{_PICKLE}"
_CONSTANTS = "constants.pkl"
_MAX_ORDER = 16  # bytes


def pickles_of(directory: ZipDirectory) -> list[str]:
    """Return the members that are called as the pickle of torch's archives is."""
    return [name for name in directory.entries if name.endswith(_IN_FOLDER) or name == _PICKLE]


def parse(
    directory: ZipDirectory, pickles: list[str], budget: Budget, *, allow_foreign: bool = False
) -> Container:
    """Read the pickle of an archive, and nothing of its storages."""
    return _Archive(directory, pickles, budget, allow_foreign).container()


class _Archive:
    """One archive on its way to a container."""

    def __init__(
        self, directory: ZipDirectory, pickles: list[str], budget: Budget, allow_foreign: bool
    ) -> None:
        self.directory = directory
        self.source = directory.source
        self.budget = budget
        self._find_global: FindGlobal = partial(find_torch_global, allow_foreign=allow_foreign)
        if len(pickles) > 1:
            raise self.source.error(f"more than one pickle: {', '.join(sorted(pickles)[:3])}")
        # The one folder that all members are in, with its slash, if there is one.
        self.folder = folder = pickles[0].removesuffix(_PICKLE)
        entries = directory.entries
        if not (min(entries).startswith(folder) and max(entries).startswith(folder)):
            stranger = next(name for name in entries if not name.startswith(folder))
            raise self.source.error(f"member {stranger!r} lies outside the folder of {pickles[0]}")
        self.is_script = folder + _CONSTANTS in entries
        self.storage_folders = ("data/", "constants/") if self.is_script else ("data/",)
        self.located: set[str] = set()  # the members that are storages of tensors
        self.header_bytes = 0

    def container(self) -> Container:
        value, machine = self._load(_PICKLE, "data/")
        flattened = flatten(value, self.source.name, self.budget, machine)
        if self.is_script:  # whose code calls some tensors CONSTANTS.c0 and so on
            stored, machine = self._load(_CONSTANTS, "constants/")
            constants = flatten({"CONSTANTS": stored}, self.source.name, self.budget, machine)
            for name, tensor in constants.tensors.items():
                number = name.removeprefix("CONSTANTS.")
                flattened.add(flattened.tensors, f"CONSTANTS.c{number}", tensor)
        entry = self.directory.entries.get(f"{self.folder}byteorder")
        order = b"little"
        if entry is not None:
            order = self.directory.read(entry, _MAX_ORDER, "PTH_MAX_BYTEORDER", crc_optional=True)
        if order not in (b"little", b"big"):
            raise self.source.error(f"byteorder is {order!r}, not little or big")
        return container_of(
            "TorchScript archive" if self.is_script else kind_of(value),
            flattened,
            self._locate,
            self._others,
            self.source,
            self.budget,
            header_bytes=self.header_bytes,
            big_endian=order == b"big",
        )

    def _others(self, refused: set[str]) -> dict[str, Place]:
        """Return where the storages lie that are not of those keys and were not located."""
        entries = self.directory.entries
        folders = tuple([self.folder + name for name in self.storage_folders])
        lost = [name for name in entries.keys() - self.located if name.startswith(folders)]
        keyed = [(name.removeprefix(self.folder), entries[name]) for name in sorted(lost)]
        return {key: self._place(entry) for key, entry in keyed if key not in refused}

    def _load(self, member: str, storages: str) -> tuple[Any, TorchMachine]:
        """Run a pickle; return its value, and the machine that did."""
        entry = self.directory.entries[self.folder + member]
        name = f"{self.source.name}: {entry.name}"
        data = read_pickle(self.directory, entry)
        self.header_bytes += len(data)
        find = self._find_global
        if self.is_script:
            find = partial(_find_script_global, find, name)
        machine = TorchMachine(data, find, self.budget, name, storages, may_retype=self.is_script)
        value = machine.load()
        if machine.pos != len(data):
            raise ParseError("bytes follow the pickle", offset=machine.pos, source=name)
        return value, machine

    def _locate(self, storage: Storage) -> Place:
        entry = self.directory.entries.get(self.folder + storage.key)
        if entry is None:
            raise self.source.error(f"member {self.folder + storage.key!r}, a storage, is missing")
        if entry.n_bytes < storage.n_bytes or (
            entry.n_bytes > storage.n_bytes and not self.is_script
        ):
            raise self.source.error(
                f"storage {entry.name!r} has {entry.n_bytes:,} bytes, but the pickle says"
                f" {storage.n_bytes:,}"
            )
        self.located.add(entry.name)
        return self._place(entry)

    def _place(self, entry: ZipEntry) -> Place:
        source, offset = self.directory.locate(entry)
        return Place(source, offset, entry.n_bytes)


def kind_of(value: Any) -> str:
    """Return what people call a checkpoint: a state dictionary has tensors by name, no more."""
    if type(value) is dict and {type(item) for item in value.values()} <= {TorchTensor, Wrapper}:
        return "state_dict"
    return "checkpoint"


def _find_script_global(find: FindGlobal, where: str, module: str, name: str) -> Any:
    """Find the classes of TorchScript too: they are code in the archive, which is never run."""
    if module == "__torch__" or module.startswith("__torch__."):
        return Global(module, name)
    if module != "torch.jit._pickle":
        return find(module, name)
    if name in ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist"):
        return Builder(module, name, _as_list)
    if name == "restore_type_tag":
        return Builder(module, name, lambda value, tag: value)
    raise UnsupportedError(f"{where} refers to {module}.{name}, which is not supported")


def _as_list(items: Any) -> list[Any]:
    if type(items) is not list:
        raise TypeError("a list is expected")
    return items
