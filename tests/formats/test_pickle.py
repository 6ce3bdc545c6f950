"""The pickle machine makes of a pickle what CPython's makes, without its doing anything."""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections import OrderedDict
from typing import Any

import pytest

import anamnesis as an
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.machine import PickleMachine, TruncatedPickle
from anamnesis.formats.pickle.nodes import Call, Global, PickledSet

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def machine(data: bytes, **limits: int) -> PickleMachine:
    budget = Budget(an.ParseLimits(**limits))
    return PickleMachine(data, Global, lambda saved: ("persistent", saved), budget, "test.pkl")


def load(data: bytes, **limits: int) -> Any:
    return machine(data, **limits).load()


VALUES: dict[str, Any] = {
    "constants": [None, True, False, (), [], {}, ""],
    "integers": [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**63, -(2**700)],
    "floats": [0.0, -0.0, 1.5, 1e308, 5e-324, float("inf"), -float("inf")],
    "text": ["a", "é", "\ud800", "\0", "\n", "\\", "'", '"', "x" * 300, "𝄞", "a\\u0041"],
    "tuples": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((),), (((1,),),)],
    "lists": [[1], [1, [2, [3]]], list(range(2000))],
    "dictionaries": {"a": 1, 2: "b", None: 3, 1.5: 4, True: 5, "nested": {"x": {}}},
    "many items": {f"key {i}": i for i in range(3000)},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", VALUES)
def test_plain_values(name: str, protocol: int) -> None:
    assert load(pickle.dumps(VALUES[name], protocol)) == pickle.loads(
        pickle.dumps(VALUES[name], protocol)
    )


@pytest.mark.parametrize("protocol", range(3, 6))
def test_bytes(protocol: int) -> None:
    values = [b"", b"a", b"\xff" * 300, bytes(70_000)]
    assert load(pickle.dumps(values, protocol)) == values


def test_bytearray() -> None:
    assert load(pickle.dumps(bytearray(b"abc"), 5)) == b"abc"


@pytest.mark.parametrize("protocol", [4, 5])
def test_sets(protocol: int) -> None:
    for value in ({1}, frozenset((2,))):
        made = load(pickle.dumps(value, protocol))
        assert type(made) is PickledSet
        assert made.items == list(value)


def test_shared_values_stay_shared() -> None:
    shared = [1]
    made = load(pickle.dumps([shared, shared], 2))
    assert made[0] is made[1]


def test_a_cycle() -> None:
    value: list[Any] = []
    value.append(value)
    made = load(pickle.dumps(value, 2))
    assert made[0] is made


@pytest.mark.parametrize("raw", [b"a", b"\xff", b"\n\\'\"\0"])
def test_strings_of_python_2(raw: bytes) -> None:
    expected = raw.decode() if raw.isascii() else raw
    assert load(b"U" + bytes([len(raw)]) + raw + b".") == expected
    assert load(b"T" + struct.pack("<i", len(raw)) + raw + b".") == expected
    assert load(b"S" + repr(raw)[1:].encode() + b"\n.") == expected


def test_integers_as_text() -> None:
    for raw, expected in (
        (b"I31\n.", 31),
        (b"I0x1F\n.", 31),
        (b"L0x1FL\n.", 31),
        (b"I01\n.", True),
    ):
        assert load(raw) == expected == pickle.loads(raw)


class Thing:
    def __reduce__(self) -> Any:
        return (OrderedDict, ((),), {"state": 1}, iter([2]), iter([("key", 3)]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_is_told_not_made(protocol: int) -> None:
    made = load(pickle.dumps(Thing(), protocol))
    assert type(made) is Call
    assert str(made.function) == "collections.OrderedDict"
    assert (made.args, made.states) == (((),), [{"state": 1}])
    assert (made.items, made.pairs) == ([2], {"key": 3})


@pytest.mark.parametrize(
    "raw",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"(cos\nsystem\nS'true'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85\x81.",
        b"\x80\x04cos\nsystem\nX\x04\x00\x00\x00true\x85}\x92.",
    ],
)
def test_every_way_to_call(raw: bytes) -> None:
    made = load(raw)
    assert str(made.function) == "os.system"
    assert made.args == ("true",)


def test_persistent_ids() -> None:
    assert load(b"Pabc\n.") == ("persistent", "abc")
    assert load(b"K\x07Q.") == ("persistent", 7)


def test_extension_codes_are_globals() -> None:
    made = load(b"\x82\x07.")
    assert (made.module, made.name) == ("copyreg", "extension 7")


@pytest.mark.parametrize("name", VALUES)
def test_cut_anywhere(name: str) -> None:
    for protocol in PROTOCOLS:
        raw = pickle.dumps(VALUES[name], protocol)
        for end in {*range(min(len(raw), 400)), len(raw) - 1}:
            with pytest.raises(TruncatedPickle):
                load(raw[:end])


def test_stops_at_the_end() -> None:
    run = machine(pickle.dumps(1, 2) + b"rest")
    assert run.load() == 1
    assert run.data[run.pos :] == b"rest"


MALFORMED: dict[str, tuple[bytes, str]] = {
    "nothing to return": (b".", "STOP: there is nothing"),
    "no such opcode": (b"N\xff.", r"opcode 0xff: there is no such opcode \(at byte 1\)"),
    "protocol 6": (b"\x80\x06N.", "PROTO: protocol 6"),
    "an empty stack": (b"0.", "POP: the stack is empty"),
    "an empty memo": (b"h\x05.", "BINGET: nothing is memoised under 5"),
    "no mark": (b"t.", "TUPLE: the stack is empty"),
    "a tuple of too few": (b"N\x86.", "TUPLE2: the stack is empty"),
    "arguments that are none": (b"cos\nsystem\nNR.", "REDUCE: the arguments"),
    "a name that is none": (b"NN\x93.", "STACK_GLOBAL: the name"),
    "an odd number of items": (b"}(Nu.", "SETITEMS: a key has no value"),
    "items of a number": (b"K\x01(NNu.", "SETITEMS: sets items"),
    "appended to a tuple": (b")Na.", "APPEND: appends"),
    "the state of a class": (b"cos\nsystem\n}b.", "BUILD: sets the state of a function or class"),
    "not UTF-8": (b"\x8c\x01\xff.", "SHORT_BINUNICODE: .*utf-8"),
    "not a number": (b"Ix\n.", "INT: invalid literal"),
    "not a float": (b"Fx\n.", "FLOAT: could not convert"),
    "not quoted": (b"Sx\n.", "STRING: a string without quotes"),
    "a negative length": (b"T\xff\xff\xff\xff.", "BINSTRING: a string of -1 bytes"),
    "a buffer outside": (b"\x97.", "NEXT_BUFFER: refers to a buffer outside"),
    "a negative place": (b"Np-1\n.", "PUT: cannot memoise"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    raw, match = MALFORMED[name]
    with pytest.raises(an.ParseError, match=match) as raised:
        load(raw)
    assert raised.type is an.ParseError
    assert raised.value.source == "test.pkl"


def test_every_byte_changed() -> None:
    raw = pickle.dumps({"a": [1, 2.5, ("b", None)], "c": OrderedDict(x=1)}, 2)
    for at in range(len(raw)):
        for value in range(256):
            with contextlib.suppress(an.AnamnesisError):
                load(raw[:at] + bytes([value]) + raw[at + 1 :])


CAPPED = {
    "PICKLE_MAX_DEPTH": b"(" * 300 + b".",
    "PICKLE_MAX_PAYLOAD": b"B" + struct.pack("<I", (64 << 20) + 1) + b"x.",
    "PICKLE_MAX_INT": b"\x8b" + struct.pack("<i", 1025) + bytes(1025) + b".",
    "PICKLE_MAX_WORKING_SET": b"\x8f" * ((512 << 20) // 320 + 1) + b".",
    "PICKLE_MAX_OPCODES": b"N0" * (8 << 20) + b"N.",
    "PICKLE_MAX_ITEMS": b"(" + b"N" * ((8 << 20) + 1) + b"t.",
    "max_single_alloc": b"C\x7f" + bytes(0x7F) + b".",
    "max_total_bytes": b"]" * 4 + b".",
}


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(k, marks=pytest.mark.slow if len(v) > 1 << 20 else ())
        for k, v in CAPPED.items()
    ],
)
def test_caps(limit: str) -> None:
    limits = {limit: 100 if limit == "max_single_alloc" else 1000} if limit[:3] == "max" else {}
    with pytest.raises(an.LimitExceeded) as raised:
        load(CAPPED[limit], **limits)
    assert raised.value.limit == limit


@pytest.mark.slow
def test_as_many_opcodes_as_are_allowed() -> None:
    assert load(b"N0" * ((8 << 20) - 1) + b"N.") is None


def test_work_is_counted() -> None:
    budget = Budget(an.ParseLimits())
    PickleMachine(pickle.dumps(list(range(1000)), 2), Global, id, budget, "x").load()
    assert 8_000 < budget.bytes_used < 300_000
