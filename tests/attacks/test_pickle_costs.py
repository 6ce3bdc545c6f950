"""What a pickle's values take is never more than what they are counted as, whoever makes them."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from contextlib import suppress
from functools import partial

import pytest

import anamnesis as an
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.machine import PickleMachine
from anamnesis.formats.scan.scan import scan
from anamnesis.formats.torch import globals as torch_globals
from anamnesis.formats.torch.globals import find_torch_global
from anamnesis.formats.torch.read import TorchMachine, _find_script_global
from helpers.pickle_handmade import zipped

N = 500  # items of an argument
CALLS = 100
SLACK = 64 << 10  # of the machine itself


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def numbers(n: int) -> list[bytes]:
    return [b"J" + struct.pack("<i", 1000 + i) for i in range(n)]


def storage(key: str) -> bytes:
    return b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + b"K\x04t"


TENSOR = b"ctorch._utils\n_rebuild_tensor\n(" + storage("0") + b"QK\0))tR"
REBUILT = storage("0") + b"QK\0K\x01\x85K\x01\x85"
FEW = b"(" + b"K\x01" * 60 + b"t"
MANY = b"(" + b"".join(numbers(N)) + b"t"

# A value that is made once; the arguments of each call are made of it, as `h\\0`.
VALUES = {
    "a list": b"](" + b"".join(numbers(N)) + b"e",
    "a tuple": MANY,
    "pairs": b"](" + b"".join(n + b"N\x86" for n in numbers(N)) + b"e",
    "a dictionary": b"}(" + b"".join(n + b"N" for n in numbers(N)) + b"u",
    "a set": b"(" + b"".join(numbers(N)) + b"\x91",
    "text": text("a" * 8 * N),
    "other text": text("é" * 4 * N),
    "bytes": b"B" + struct.pack("<I", 8 * N) + b"a" * 8 * N,
    "a tensor": TENSOR,
    "sizes": FEW,
    "a tensor with attributes": b"ctorch._utils\n_rebuild_parameter_with_state\n("
    + TENSOR
    + b"\x89}}"
    + text("a")
    + b"NstR",
}
ARGUMENTS = {
    "none": b")",
    "it": b"h\0\x85",
    "it, encoded": b"(h\0" + text("latin1") + b"t",
    "it, and once more": b"h\0h\0\x86",
    "it, of a dtype": b"(h\0ctorch\nfloat32\n" + text("cpu") + b"\x89t",
    "behind a tensor's": b"(" + REBUILT + b"\x89}h\0t",
    "a tensor's, and a dtype": b"(" + REBUILT + b"\x89}ctorch\nfloat32\nh\0t",
    "a tensor's sizes": b"(" + storage("0") + b"QK\0h\0h\0t",
    "a state": b"(" + TENSOR + b"\x89}h\0t",
    "a type's": b"(ctorch._utils\n_rebuild_tensor\nctorch\nTensor\n(" + REBUILT + b"th\0t",
    "numbers": b"K\x01K\x02\x86",
    "a layout and it": b"(Nh\0h\0h\0h\0t",
}
SCRIPT = ("build_intlist", "build_tensorlist", "restore_type_tag")
find = partial(_find_script_global, find_torch_global, "x")
BUILDERS = [
    *torch_globals._BUILDERS,
    *(f"torch.jit._pickle.{name}" for name in SCRIPT),
]


def run(data: bytes) -> tuple[bool, int, int]:
    """Run a pickle; return whether it ran to its end, what it was counted as, what it took."""
    machine = TorchMachine(data, find, Budget(), "x", "data/")
    tracemalloc.start()
    try:
        machine.load()
        is_right = True
    except an.ParseError:
        is_right = False
    except an.LimitExceeded:
        is_right = True
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return is_right, machine.working_set, peak


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", BUILDERS)
def test_builders(path: str) -> None:
    """With any arguments that they take, called many times."""
    module, _, name = path.rpartition(".")
    function = f"c{module}\n{name}\nq\x010](".encode()
    n_right = 0
    for value in VALUES.values():
        for args in ARGUMENTS.values():
            head = b"\x80\x02" + value + b"q\x000" + function
            if not run(head + b"h\x01" + args + b"Rl.")[0]:
                continue
            is_right, counted, taken = run(head + CALLS * (b"h\x01" + args + b"R") + b"e.")
            assert is_right
            assert taken <= counted + SLACK, (value[:20], args)
            n_right += 1
    assert n_right


@pytest.mark.parametrize(
    "item",
    [
        storage("0" * 256) + b"q\x01Q" + CALLS * b"h\x01Q",
        b"".join(storage(f"{i}") + b"Q" for i in range(CALLS)),
        CALLS * b"}}b",
        CALLS * b"cx\ny\n)R}b",
    ],
)
def test_other_values(item: bytes) -> None:
    machine_finds = b"\x80\x02](" + item.replace(b"cx\ny\n", b"ctorch\nTensor\n") + b"e."
    is_right, counted, taken = run(machine_finds)
    assert is_right
    assert taken <= counted + SLACK


def kept(function: bytes, value: bytes, args: bytes = b"h\0h\x01\x85R", n: int = 5000) -> bytes:
    return b"\x80\x02c" + function + b"\nq\0" + value + b"q\x010](" + n * args + b"e."


BOMBS = {
    "sizes": kept(b"torch\nSize", b"](" + 15000 * b"K\x01" + b"e"),
    "sets": kept(b"builtins\nset", b"](" + 30000 * b"N" + b"e"),
    "dictionaries": kept(
        b"collections\nOrderedDict", b"}(" + b"".join(n + b"N" for n in numbers(5000)) + b"u"
    ),
    "of pairs": kept(
        b"collections\nOrderedDict", b"](" + b"".join(n + b"N\x86" for n in numbers(4000)) + b"e"
    ),
    "bytes": kept(b"_codecs\nencode", text("a" * 29952), b"h\0h\x01X\6\0\0\0latin1\x86R", 1800),
    "other bytes": kept(
        b"_codecs\nencode", text("é" * 14976), b"h\0h\x01X\6\0\0\0latin1\x86R", 1800
    ),
    "bytearrays": kept(
        b"builtins\nbytearray", text("a" * 29952), b"h\0h\x01X\6\0\0\0latin1\x86R", 1800
    ),
    "shapes": kept(
        b"torch._utils\n_rebuild_tensor",
        b"(" + 12000 * b"K\x01" + b"t",
        b"h\0(" + storage("0") + b"QK\0h\x01h\x01tR",
        400,
    ),
    "metadata": kept(
        b"torch._utils\n_rebuild_tensor_v2",
        b"(" + REBUILT + 20000 * b"N" + b"t",
        b"h\0h\x01R",
        8000,
    ),
    "keys": b"\x80\x02](" + storage("0" * 256) + b"q\0Q" + 15000 * b"h\0Q" + b"e.",
    "long keys": b"\x80\x02](" + storage("0" * 50_000) + b"q\0Q" + 3000 * b"h\0Q" + b"e.",
}


MB = 1 << 20
FLOODS = {
    "a tuple of nothing": b"(" + 4 * MB * b"N" + b"t",
    "a list of nothing": b"](" + 4 * MB * b"N" + b"e",
    "a list of empty tuples": b"](" + 4 * MB * b")" + b"e",
    "a tuple of empty tuples": b"(" + 4 * MB * b")" + b"t",
    "small numbers": b"(" + 2 * MB * b"K\x01" + b"t",
    "a replayed list": b"](](K\x01eq\0" + 2 * MB * b"h\0" + b"e",
    "a replayed tuple": b"](K\x01\x85q\0" + 2 * MB * b"h\0" + b"e",
    "replayed bytes": b"](C\x01aq\0" + 2 * MB * b"h\0" + b"e",
    "a key of nothing": b"}(" + 2 * MB * b"N" + b"tNs",
    "an object's arguments": b"cx\ny\n(](K\x01eq\0" + 2 * MB * b"h\0" + b"tR",
}


@pytest.mark.weekly
@pytest.mark.parametrize("kind", FLOODS)
def test_floods(kind: str) -> None:
    """What a file's small values take once they are listed is held against the limits, too."""
    data = zipped({"m/data.pkl": b"\x80\x02" + FLOODS[kind] + b".", "m/version": b"3\n"})
    most = 60_000_000
    for limits in (an.ParseLimits(max_total_bytes=most), an.ParseLimits(max_item_count=1_000_000)):
        tracemalloc.start()
        try:
            with pytest.raises(an.LimitExceeded):
                an.parse(data, limits=limits, allow_foreign=True)
            assert tracemalloc.get_traced_memory()[1] < 2 * most
        finally:
            tracemalloc.stop()


@pytest.mark.weekly
@pytest.mark.parametrize("kind", FLOODS)
def test_floods_without_limits(kind: str) -> None:
    """They open, or are refused, for forty times their size at most."""
    pickled = b"\x80\x02" + FLOODS[kind] + b"."
    data = zipped({"m/data.pkl": pickled, "m/version": b"3\n"})
    tracemalloc.start()
    try:
        with suppress(an.LimitExceeded):
            an.parse(data, allow_foreign=True)
        assert tracemalloc.get_traced_memory()[1] < 40 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("item", [b"N", b")"])
def test_sixteen_million_of_nothing(item: bytes) -> None:
    data = zipped({"m/data.pkl": b"\x80\x02(" + 16 * MB * item + b"t.", "m/version": b"3\n"})
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(data)
    assert raised.value.limit == "PICKLE_MAX_ITEMS"


def test_plain_values_are_one_leaf() -> None:
    pickled = b"\x80\x02}X\1\0\0\0a(K\x01N)\x88C\2abts."
    with an.parse(zipped({"m/data.pkl": pickled, "m/version": b"3\n"})) as model:
        assert dict(model.metadata) == {"a": [1, "None", "()", True, "(2 bytes)"]}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("kind", BOMBS)
def test_bombs(kind: str) -> None:
    data = zipped({"m/data.pkl": BOMBS[kind], "m/data/0": bytes(16), "m/version": b"3\n"})
    assert len(data) < 66_000
    for limits in (None, an.ParseLimits(max_total_bytes=50_000_000, max_single_alloc=2_000_000)):
        with pytest.raises(an.AnamnesisError):
            an.parse(data, limits=limits).inspect()
        scan(data, limits=limits)


def test_what_a_pickle_made_goes_with_it() -> None:
    """Nothing waits for the collector, which sees few objects and not how large they are."""
    shared = b"\x80\x02c_codecs\nencode\nq\x00X\x00\x10\x00\x00" + b"a" * 4096 + b"q\x01"
    pickled = shared + b"h\x00h\x01\x85R" * 40_000 + b"."
    data = zipped({"a/data.pkl": pickled})
    gc.collect()
    gc.disable()
    try:
        with suppress(an.LimitExceeded):
            an.parse(data)
        assert not any(issubclass(type(kept), PickleMachine) for kept in gc.get_objects())
    finally:
        gc.enable()


def test_calls_in_calls_in_calls() -> None:
    """As deep as any caller's stack allows, and no deeper."""
    pickled = b"\x80\x02cx\ny\n" + b")R" * 20_000 + b"."
    with pytest.raises(an.LimitExceeded, match="PICKLE_MAX_DEPTH"):
        an.parse(zipped({"a/data.pkl": pickled}), allow_foreign=True)
