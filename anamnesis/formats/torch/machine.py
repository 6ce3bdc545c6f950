"""A pickle machine for torch's files, which knows what a persistent id is of."""

from __future__ import annotations

from typing import Any

from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.costs import text_cost
from anamnesis.formats.pickle.machine import FindGlobal, PickleMachine
from anamnesis.formats.pickle.opcodes import Problem
from anamnesis.formats.torch.container import storage_id
from anamnesis.formats.torch.globals import storage_from
from anamnesis.formats.torch.values import Storage


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
        super().__init__(data, find_global, _nothing, budget, name)
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


def _nothing(saved: Any) -> Any:
    raise AssertionError("the machine has a method for it")
