"""One pickle: as the fuzzer's bytes are, or built from them if they start with `S`.

The machine runs it, with every global let through, and so does `scan`; what CPython's own pickle
makes of it, where nothing foreign is in it, must be the same. Torch's machine may refuse it, too.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from functools import partial
from typing import Any

from structured import Choices
from structured_pickle import pickle_of
from traced import fuzz

import anamnesis as an
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.machine import PickleMachine
from anamnesis.formats.pickle.nodes import Call, Global, Key, PickledSet
from anamnesis.formats.scan.scan import scan
from anamnesis.formats.torch.flatten import flatten
from anamnesis.formats.torch.globals import find_torch_global
from anamnesis.formats.torch.read import TorchMachine


class Restricted(pickle._Unpickler):
    """CPython's, in Python, without globals."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("no globals")


def file_from(data: bytes) -> bytes:
    """Return the pickle that an input stands for."""
    return pickle_of(Choices(data[1:])) if data[:1] == b"S" else data


def same(ours: Any, theirs: Any, left: list[int]) -> bool:
    """Compare values, up to a number of them, for they may go in circles."""
    left[0] -= 1
    if left[0] < 0 or isinstance(ours, (Call, Global, PickledSet)):
        return True
    if type(ours) is Key:
        ours = ours.value
    if type(theirs) is bytearray:
        theirs = bytes(theirs)
    if type(ours) is not type(theirs):
        return False
    if type(ours) is dict:
        ours, theirs = list(ours.items()), list(theirs.items())
        if len(ours) != len(theirs):
            return True  # keys that are equal, but not plain
    if type(ours) in (list, tuple):
        return len(ours) == len(theirs) and all(
            same(a, b, left) for a, b in zip(ours, theirs, strict=True)
        )
    return repr(ours) == repr(theirs)


def theirs_of(data: bytes) -> Any:
    """Return what CPython makes of it; NotImplemented if it refuses."""
    try:
        return Restricted(io.BytesIO(data)).load()
    except Exception:
        return NotImplemented


def ours_of(data: bytes, limits: an.ParseLimits) -> Any:
    """Return what the machine makes of it; NotImplemented if it refuses."""
    budget = Budget(limits)
    machine = PickleMachine(data, Global, lambda saved: ("id", saved), budget, "x")
    try:
        made = machine.load()
        flatten(made, "x", budget, machine)
    except an.AnamnesisError:
        return NotImplemented
    return made


def run_as_torch(data: bytes, limits: an.ParseLimits) -> None:
    """Run torch's machine, which knows some globals."""
    find = partial(find_torch_global, allow_foreign=True)
    with contextlib.suppress(an.AnamnesisError):
        TorchMachine(data, find, Budget(limits), "x", "data/").load()


def check(data: bytes, limits: an.ParseLimits | None = None) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw = file_from(data)
    limits = limits or an.ParseLimits()
    run_as_torch(raw, limits)
    ours = ours_of(raw, limits)
    assert scan(raw, limits=limits).verdict in ("safe", "unknown", "dangerous")
    if ours is NotImplemented:
        return
    theirs = theirs_of(raw)
    assert theirs is NotImplemented or same(ours, theirs, [200])


if __name__ == "__main__":
    fuzz(check)
