"""What both kinds of torch file share: a pickle machine, and their container."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.plain_json import plain_json
from anamnesis.base.source import Source
from anamnesis.formats.base import Container, TypedMetadata, names_below
from anamnesis.formats.pickle.machine import FindGlobal, PickleMachine
from anamnesis.formats.pickle.nodes import (
    PICKLE_MAX_BYTES,
    PICKLE_MAX_RATIO,
    PICKLE_SMALL,
    text_cost,
)
from anamnesis.formats.pickle.opcodes import Problem
from anamnesis.formats.torch.flatten import Flattened
from anamnesis.formats.torch.globals import storage_from
from anamnesis.formats.torch.tensors import Place, keys_in, list_lost, place_all
from anamnesis.formats.torch.values import Storage

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
        raise LimitExceeded(
            "PICKLE_MAX_RATIO",
            f"{directory.source.name}: the pickle {entry.name!r} has {entry.n_bytes:,} bytes, more"
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
