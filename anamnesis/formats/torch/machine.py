"""A pickle machine for torch's files, which runs what is usual in them in C.

`torch.save` writes some thirty opcodes for each tensor, always the same, and few others. Where they
appear in that order, a tensor is read in one step. Everything else, and anything that would be an
error, is left to the handlers of the opcodes. The outcome is the same either way, down to the memo
and the working set.
"""

from __future__ import annotations

import struct
from typing import Any

from anamnesis import _parse
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.costs import (
    CONTAINER,
    ENTRY,
    PICKLE_MAX_DEPTH,
    PICKLE_MAX_ITEMS,
    SLOT,
    text_cost,
)
from anamnesis.formats.pickle.machine import FindGlobal, PickleMachine
from anamnesis.formats.pickle.nodes import Builder
from anamnesis.formats.pickle.opcodes import COSTS, HANDLERS, Handler, Problem
from anamnesis.formats.torch.container import storage_id
from anamnesis.formats.torch.globals import (
    DTypeGlobal,
    Storage,
    TorchTensor,
    dictionary,
    rebuild_tensor,
    storage_from,
)

__all__ = ["TorchMachine"]

_COSTS = struct.pack("=259H", *COSTS, CONTAINER, ENTRY, SLOT)
# Many steps are run at once; with more on the stack, the handlers say what is too much.
_MOST_USUAL = PICKLE_MAX_ITEMS - (1 << 18)
_TYPES = (Builder, rebuild_tensor, dictionary, DTypeGlobal, Storage, TorchTensor)


class TorchMachine(PickleMachine):
    """A machine that takes what `torch.save` writes for tensors in one step.

    Parameters
    ----------
    data : bytes
    find_global : function
    budget : Budget
    name : str
        As `PickleMachine` has them.
    folder : str
        The prefix of the keys of storages.
    may_retype : bool
        Whether a storage may be of one dtype here and of another there, as in TorchScript; torch
        takes the first for all, elsewhere.

    Attributes
    ----------
    storages : dict of str to Storage
        Those that were referred to so far, by their keys.
    """

    most_marks = PICKLE_MAX_DEPTH

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
        # Where even short strings may exceed a limit, the handlers say which one.
        self.has_usual = self.max_payload >= _parse.TORCH_LONGEST

    def persistent_load(self, saved: Any) -> Storage:
        """Return the storage that a persistent id is of."""
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
        """Refuse it: the first of two tensors would be lost, which no `torch.save` writes."""
        raise Problem(f"a dictionary is given the key {str(key)[:200]!r} twice")


def _nothing(saved: Any) -> Any:
    raise AssertionError("the machine has a method for it")


def _unless_usual(handler: Handler) -> Handler:
    """Return a handler that is asked for what is not usual."""

    def run(machine: Any, pos: int) -> int:
        if len(machine.stack) >= _MOST_USUAL:
            machine.check_items()  # at once: what follows would be run one by one
        elif machine.has_usual:
            end = _parse.run_usual(machine, pos - 1, _COSTS, _TYPES)
            if end >= pos:
                return end
        return handler(machine, pos)

    return run


TorchMachine.handlers = [
    _unless_usual(handler) if opcode in _parse.USUAL_OPCODES else handler
    for opcode, handler in enumerate(HANDLERS)
]
