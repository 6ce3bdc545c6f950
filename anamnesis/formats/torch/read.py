"""PyTorch's files since 1.6: a ZIP archive of a pickle and the storages.

    NAME/data.pkl  NAME/byteorder  NAME/data/0  NAME/data/1 …  NAME/version

`torch.jit.save` writes the same, and constants and code beside; of those archives the tensors are
read, in the order and by the names of the attributes that hold them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.formats.base import Container
from anamnesis.formats.pickle.nodes import Global
from anamnesis.formats.torch.container import TorchMachine, container_of, read_pickle
from anamnesis.formats.torch.flatten import flatten
from anamnesis.formats.torch.globals import find_torch_global
from anamnesis.formats.torch.tensors import Place
from anamnesis.formats.torch.values import Storage, TorchTensor, Wrapper

if TYPE_CHECKING:
    from anamnesis.formats.zip.directory import ZipEntry
    from anamnesis.formats.zip.members import ZipDirectory

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
        self._find_global = partial(find_torch_global, allow_foreign=allow_foreign)
        self.folder = self._folder(pickles)
        self.is_script = self.folder + _CONSTANTS in directory.entries
        self.storage_folders = ("data/", "constants/") if self.is_script else ("data/",)
        self.located: set[str] = set()  # the members that are storages of tensors
        self.header_bytes = 0

    def _folder(self, pickles: list[str]) -> str:
        """Return the one folder that all members are in, with its slash, if there is one."""
        entries = self.directory.entries
        if len(pickles) > 1:
            raise self._error(f"more than one pickle: {', '.join(sorted(pickles)[:3])}")
        folder = pickles[0].removesuffix(_PICKLE)
        if not (min(entries).startswith(folder) and max(entries).startswith(folder)):
            stranger = next(name for name in entries if not name.startswith(folder))
            raise self._error(f"member {stranger!r} lies outside the folder of {pickles[0]}")
        return folder

    def _error(self, message: str) -> ParseError:
        return ParseError(message, source=self.source.name)

    def container(self) -> Container:
        value, machine = self._load(_PICKLE, "data/")
        flattened = flatten(value, self.source.name, self.budget, machine)
        if self.is_script:  # whose code calls some tensors CONSTANTS.c0 and so on
            stored, machine = self._load(_CONSTANTS, "constants/")
            constants = flatten({"CONSTANTS": stored}, self.source.name, self.budget, machine)
            for name, tensor in constants.tensors.items():
                number = name.removeprefix("CONSTANTS.")
                flattened.add_tensor(f"CONSTANTS.c{number}", tensor)
        return container_of(
            "TorchScript archive" if self.is_script else kind_of(value),
            flattened,
            self._locate,
            self._others,
            self.source,
            self.budget,
            header_bytes=self.header_bytes,
            big_endian=self._is_big_endian(),
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
        find = partial(self._find_script_global, name) if self.is_script else self._find_global
        machine = TorchMachine(data, find, self.budget, name, storages, may_retype=self.is_script)
        value = machine.load()
        if machine.pos != len(data):
            raise ParseError("bytes follow the pickle", offset=machine.pos, source=name)
        return value, machine

    def _find_script_global(self, where: str, module: str, name: str) -> Global:
        """Find the classes of TorchScript too: they are code in the archive, which is never run."""
        if module == "__torch__" or module.startswith("__torch__."):
            return Global(module, name)
        if module == "torch.jit._pickle":
            return _script_global(name, where)
        return self._find_global(module, name)

    def _locate(self, storage: Storage) -> Place:
        entry = self.directory.entries.get(self.folder + storage.key)
        if entry is None:
            raise self._error(f"member {self.folder + storage.key!r}, a storage, is missing")
        if entry.n_bytes < storage.n_bytes or (
            entry.n_bytes > storage.n_bytes and not self.is_script
        ):
            raise self._error(
                f"storage {entry.name!r} has {entry.n_bytes:,} bytes, but the pickle says"
                f" {storage.n_bytes:,}"
            )
        self.located.add(entry.name)
        return self._place(entry)

    def _place(self, entry: ZipEntry) -> Place:
        source, offset = self.directory.locate(entry)
        return Place(source, offset, entry.n_bytes)

    def _is_big_endian(self) -> bool:
        entry = self.directory.entries.get(f"{self.folder}byteorder")
        if entry is None:
            return False
        order = self.directory.read(entry, _MAX_ORDER, "PTH_MAX_BYTEORDER", crc_optional=True)
        if order not in (b"little", b"big"):
            raise self._error(f"byteorder is {order!r}, not little or big")
        return order == b"big"


def kind_of(value: Any) -> str:
    """Return what people call a checkpoint: a state dictionary has tensors by name, no more."""
    if type(value) is dict and {type(item) for item in value.values()} <= {TorchTensor, Wrapper}:
        return "state_dict"
    return "checkpoint"


def _script_global(name: str, where: str) -> Global:
    from anamnesis.formats.pickle.nodes import Builder

    if name in ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist"):
        return Builder("torch.jit._pickle", name, _as_list)
    if name == "restore_type_tag":
        return Builder("torch.jit._pickle", name, lambda value, tag: value)
    raise UnsupportedError(f"{where} refers to torch.jit._pickle.{name}, which is not supported")


def _as_list(items: Any) -> list[Any]:
    if type(items) is not list:
        raise TypeError("a list is expected")
    return items
