"""What C reads where files are as usual is what is read without it, down to the account of it."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import anamnesis as an
from anamnesis import _parse
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.nodes import Call, Global, Key, PickledSet
from anamnesis.formats.torch.globals import find_torch_global
from anamnesis.formats.torch.machine import TorchMachine
from anamnesis.formats.zip.members import read_directory
from anamnesis.sources.memory import BufferSource

MOST_VALUES = 20_000  # that are compared

_find = partial(find_torch_global, allow_foreign=True)


def _children(value: Any) -> list[Any] | None:
    """Return what is in a value that holds others, in order; None for one that holds none."""
    match value:
        case dict():
            return [part for pair in value.items() for part in pair]
        case list() | tuple():
            return list(value)
        case Call():
            return [value.function, value.args, value.states, value.items, value.pairs]
        case PickledSet():
            return [value.items]
        case Key():
            return [value.value]
    return None


def same_values(one: Any, other: Any) -> bool:
    """Tell whether values are the same: types, contents, and what is shared in them.

    They may go in circles; only so many are compared.
    """
    left = [(one, other)]
    twins: dict[int, Any] = {}
    for _ in range(MOST_VALUES):
        if not left:
            break
        a, b = left.pop()
        if type(a) is not type(b):
            return False
        parts, others = _children(a), _children(b)
        if parts is None or others is None:
            if isinstance(a, Global):
                if (a.module, a.name) != (b.module, b.name):
                    return False
            elif repr(a) != repr(b):
                return False
        elif id(a) in twins:
            if twins[id(a)] is not b:
                return False
        else:
            twins[id(a)] = b
            if len(parts) != len(others):
                return False
            left += zip(parts, others, strict=True)
    return True


def _run(data: bytes, limits: an.ParseLimits, *, has_usual: bool) -> tuple[Any, ...]:
    machine = TorchMachine(data, _find, Budget(limits), "x", "data/")
    machine.has_usual = machine.has_usual and has_usual
    try:
        made = machine.load()
    except an.AnamnesisError as error:
        made = f"{type(error).__name__}: {error}"
    return made, machine.memo, machine.working_set, machine.pos


def check_run(data: bytes, limits: an.ParseLimits) -> None:
    """Run a pickle with and without what C takes of it: value, memo, costs and errors."""
    usual = _run(data, limits, has_usual=True)
    assert same_values(usual, _run(data, limits, has_usual=False))


def _members(raw: bytes, limits: an.ParseLimits) -> object:
    budget = Budget(limits)
    try:
        directory = read_directory(BufferSource(raw), budget)
    except an.AnamnesisError as error:
        return str(error)
    found = []
    for entry in directory.entries.values():
        try:
            at: object = directory.data_offset(entry)
        except an.AnamnesisError as error:
            at = str(error)
        found.append((entry._replace(header_bytes=0), at))
    return found, budget.bytes_used, budget.items_used


def check_members(raw: bytes, limits: an.ParseLimits) -> None:
    """Read an archive's directory with and without what C takes of it."""
    usual = _members(raw, limits)
    with mock.patch.object(_parse, "zip_members", return_value=None):
        assert _members(raw, limits) == usual
