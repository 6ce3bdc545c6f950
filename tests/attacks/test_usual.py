"""What C reads of the directory of an archive is what Python reads of it, errors and costs too."""

from __future__ import annotations

import io
import random
import zipfile
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import anamnesis as an
from anamnesis import _parse
from helpers.pickle_handmade import torch_saved
from helpers.zip_handmade import Member, zip_bytes

usual = import_module("usual")  # of the fuzzers
UNLIMITED = an.ParseLimits()


def optimised() -> dict[str, Any]:
    layer = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimiser.step()
    return {"model": layer.state_dict(), "optimizer": optimiser.state_dict(), "epoch": 3}


VALUES: dict[str, Any] = {
    "two": {"weight": torch.ones(4, 4), "bias": torch.ones(4)},
    "long": {f"layers.{i}.weight": torch.zeros(1 + i % 300) for i in range(90)},
    "an optimiser": optimised(),
}


def archives() -> dict[str, bytes]:
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3), b=np.ones((2, 2)))
    several = [Member(b"m/a", b"abc"), Member(b"m/b", b""), Member(b"m/c", bytes(40_000))]
    return {
        **{name: torch_saved(value) for name, value in VALUES.items()},
        "numpy's": stream.getvalue(),
        "by hand": zip_bytes(several),
        "with a comment": zip_bytes(several, comment=b"abc"),
        "one": zip_bytes([Member(b"a", b"abc")]),
        "none": zip_bytes([]),
        "deflated": zip_bytes([Member(b"a", b"abc" * 50, method=8)]),
        "twice": zip_bytes([Member(b"a", b"abc"), Member(b"a", b"abc")]),
        "not ASCII": zip_bytes([Member("é".encode(), b"abc", flags=1 << 11)]),
    }


ARCHIVES = archives()


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(name: str) -> None:
    usual.check_members(ARCHIVES[name], UNLIMITED)
    for most in range(6):
        usual.check_members(ARCHIVES[name], an.ParseLimits(max_item_count=most))
    for most in range(0, 1000, 9):
        usual.check_members(ARCHIVES[name], an.ParseLimits(max_total_bytes=most))


@pytest.mark.parametrize("name", ["two", "long"])
def test_torch_archives_are_usual(name: str) -> None:
    raw = ARCHIVES[name]
    start = max(0, len(raw) - (1 << 15))
    n_bytes, members, ends = _parse.zip_members(raw[start:], start, _Fields) or (0, {}, {})
    with zipfile.ZipFile(io.BytesIO(raw)) as theirs:
        assert list(members) == theirs.namelist()
    assert len(ends) == len(members)
    assert n_bytes > 46 * len(members)
    at_hand = [fields for fields in members.values() if fields[5] >= start]
    assert at_hand
    assert all(fields[-1] for fields in at_hand), "local headers at hand were read"


class _Fields(tuple[Any, ...]):
    __slots__ = ()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["two", "by hand", "one", "none"])
def test_every_byte_of_an_archive_counts(name: str) -> None:
    """All bytes of all headers, and some of the members'."""
    raw = bytearray(ARCHIVES[name])
    rng = random.Random(name)
    n_checked = min(len(raw), 1500)
    for at in {*range(n_checked // 2), *range(len(raw) - n_checked, len(raw))}:
        kept = raw[at]
        for value in (0, 255, kept ^ 1, kept ^ 0x80, rng.randrange(256)):
            raw[at] = value
            usual.check_members(bytes(raw), UNLIMITED)
        raw[at] = kept


@pytest.mark.parametrize("name", ["two", "by hand"])
def test_archives_cut_short(name: str) -> None:
    raw = ARCHIVES[name]
    for n in (*range(120), *range(len(raw) - 600, len(raw))):
        usual.check_members(raw[:n], UNLIMITED)
        usual.check_members(raw[n:], UNLIMITED)
