"""What C reads of usual archives and pickles is what Python reads of them, errors and costs too."""

from __future__ import annotations

import ast
import io
import pickletools
import random
import re
import zipfile
from collections import OrderedDict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pickle_handmade import torch_saved
from zip_handmade import Member, zip_bytes

import anamnesis as an
from anamnesis import _parse
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.costs import PICKLE_MAX_DEPTH
from anamnesis.formats.torch.globals import find_torch_global
from anamnesis.formats.torch.machine import TorchMachine

PROJECT = Path(__file__).parents[2]
usual = import_module("usual")  # of the fuzzers
UNLIMITED = an.ParseLimits()


def tied() -> dict[str, torch.Tensor]:
    base = torch.arange(24.0)
    return {"a": base, "b": base, "row": base[4:], "t": base.reshape(4, 6).T}


def optimised() -> dict[str, Any]:
    layer = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimiser.step()
    return {"model": layer.state_dict(), "optimizer": optimiser.state_dict(), "epoch": 3}


def of_every_dtype() -> dict[str, torch.Tensor]:
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint16, torch.complex64)
    return {str(dtype): torch.zeros(2, 3).to(dtype) for dtype in dtypes}


VALUES: dict[str, Any] = {
    "two": {"weight": torch.ones(4, 4), "bias": torch.ones(4)},
    "a module": torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5)).state_dict(),
    "an ordered dictionary": OrderedDict(a=torch.ones(1), b=torch.zeros(0, 2)),
    "shapes": {str(n): torch.zeros((2,) * n) for n in range(10)},
    "long": {f"layers.{i}.weight": torch.zeros(1 + i % 300) for i in range(90)},
    "long names": {n * "x": torch.zeros(n) for n in (1, 254, 255, 256, 257)},
    "not ASCII": {"é": torch.zeros(2), "b": torch.zeros(70_000)},
    "dtypes": of_every_dtype(),
    "tied": tied(),
    "a list": [torch.zeros(1), torch.zeros(2), {"a": torch.zeros(3)}],
    "an optimiser": optimised(),
    "parameters": {"p": torch.nn.Parameter(torch.ones(2)), "r": torch.ones(1, requires_grad=True)},
    "other values": {"n": None, "t": True, "i": -5, "j": 70_000, "x": (1, 2, 3, 4), "e": ()},
}


def pickled(name: str, protocol: int = 2) -> bytes:
    """Return the pickle that torch writes into its archive."""
    with zipfile.ZipFile(io.BytesIO(torch_saved(VALUES[name], pickle_protocol=protocol))) as file:
        return file.read(next(n for n in file.namelist() if n.endswith("data.pkl")))


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("name", VALUES)
def test_what_torch_writes(name: str, protocol: int) -> None:
    usual.check_run(pickled(name, protocol), UNLIMITED)


@pytest.mark.parametrize("name", ["two", "a module", "an ordered dictionary", "long"])
def test_all_of_it_is_usual(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C takes it from the first opcode to the last but one, which stops the machine."""
    data = pickled(name)
    machine = TorchMachine(data, find_torch_global, Budget(UNLIMITED), "x", "data/")
    ends = []
    run = _parse.run_usual

    def counted(*args: Any) -> int:
        ends.append(run(*args))
        return ends[-1]

    monkeypatch.setattr(_parse, "run_usual", counted)
    machine.load()
    assert ends[-1] == len(data) - 1
    assert len(ends) <= 3  # a global before the first tensor is left to Python


@pytest.mark.parametrize("name", ["two", "a module", "parameters", "other values"])
def test_every_byte_of_it_counts(name: str) -> None:
    rng = random.Random(name)
    data = bytearray(pickled(name))
    for at in range(len(data)):
        kept = data[at]
        for value in {0, kept ^ 1, kept ^ 0x80, rng.randrange(256), *rng.sample(b"hqXK(t)Ru", 2)}:
            data[at] = value
            usual.check_run(bytes(data), UNLIMITED)
        data[at] = kept


@pytest.mark.parametrize("name", ["two", "shapes", "not ASCII"])
def test_cut_short(name: str) -> None:
    data = pickled(name)
    for n in range(len(data)):
        usual.check_run(data[:n], UNLIMITED)


def test_limits() -> None:
    data = pickled("two")
    for most in range(0, 20_000, 7):
        usual.check_run(data, an.ParseLimits(max_total_bytes=most))
    for most in range(300):
        usual.check_run(data, an.ParseLimits(max_single_alloc=most))


@pytest.mark.parametrize("depth", range(PICKLE_MAX_DEPTH - 4, PICKLE_MAX_DEPTH + 2))
def test_depth(depth: int) -> None:
    two = pickled("two")[2:-1]
    usual.check_run(b"\x80\2" + depth * b"(" + two + depth * b"t" + b".", UNLIMITED)


@pytest.mark.parametrize("at", range(250, 260))
def test_where_the_memo_outgrows_a_byte(at: int) -> None:
    memo = b"".join(b"Nq" + bytes([i]) + b"0" for i in range(min(at, 256)))
    memo += b"".join(b"Nr" + i.to_bytes(4, "little") + b"0" for i in range(256, at))
    tensors = pickled("two")[2:]
    usual.check_run(b"\x80\2" + memo + tensors, UNLIMITED)  # it memoises under what is taken
    moved = bytearray(b"\x80\2" + memo)
    for opcode, operand in opcodes(tensors):
        if opcode in b"qh":
            n = operand[0] + at
            short = n < 256
            moved += bytes([opcode if short else ord("r" if opcode == ord("q") else "j")])
            moved += bytes([n]) if short else n.to_bytes(4, "little")
        else:
            moved += bytes([opcode]) + operand
    usual.check_run(bytes(moved), UNLIMITED)


def opcodes(data: bytes) -> list[tuple[int, bytes]]:
    found = [at for _, _, at in pickletools.genops(b"\x80\2" + data) if at is not None]
    ends = [*found[1:], len(data) + 2]
    return [(data[a - 2], data[a - 1 : b - 2]) for a, b in zip(found, ends, strict=True) if a >= 2]


FOREIGN = (
    *(b"cos\nsystem\nq\0.", b"ctorch\nNoStorage\nq\0.", b"ccollections\nOrderedDict\nq\0)Rq\1."),
    *(b"X\0\0\0\0q\0.", b"X\xff\xff\xff\xffq\0.", b"J\0\0\0\x80.", b"h\0.", b"q\0.", b"t.", b"u."),
    *(b"\x85.", b"(\x86.", b"K\1\x87.", b"}K\1K\2s.", b"](K\1K\2u.", b"}(K\1u.", b"}(NK\2u."),
    *(b"Ns.", b"))R.", b"N)R.", b"}Nb.", b"]Nb.", b"b.", b"\x80\6.", b"\x80", b"j\0\0", b"(."),
)


@pytest.mark.parametrize("data", FOREIGN)
def test_small_ones(data: bytes) -> None:
    usual.check_run(data, UNLIMITED)


# --- archives -----------------------------------------------------------------------------------


def archives() -> dict[str, bytes]:
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3), b=np.ones((2, 2)))
    several = [Member(b"m/a", b"abc"), Member(b"m/b", b""), Member(b"m/c", bytes(40_000))]
    return {
        **{name: torch_saved(VALUES[name]) for name in ("two", "long", "an optimiser")},
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


def test_opcodes_are_those_of_pickletools() -> None:
    rows = re.findall(
        r"^OPCODE\((\w+), ('.'|0x\w\w), (\d), ([01])\)$",
        (PROJECT / "csrc/parse/torch_opcodes.def").read_text("utf-8"),
        re.M,
    )
    usual = set()
    for name, code, operand_bytes, runs in rows:
        opcode = chr(ast.literal_eval(code)) if code.startswith("0x") else code[1]
        known = pickletools.code2op[  # type: ignore[attr-defined]
            opcode
        ]
        assert known.name == name
        n = 0 if known.arg is None else known.arg.n
        fixed = {pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.UP_TO_NEWLINE: 0}.get(n, n)
        assert fixed == int(operand_bytes)
        if int(runs):
            usual.add(ord(opcode))
    assert usual == set(_parse.USUAL_OPCODES)
    assert len(rows) == len({code for _, code, _, _ in rows}) == len(usual) + 1
