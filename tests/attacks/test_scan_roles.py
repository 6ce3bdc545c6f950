"""An allowed global is safe in the roles that plain values need, and in no other."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from anamnesis.formats.scan.roles import _OTHERS, HARMLESS
from anamnesis.formats.scan.scan import scan


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def value(made: object) -> bytes:
    return pickle.dumps(made, 2)[2:-1]


def call(function: bytes, *args: bytes) -> bytes:
    return function + b"(" + b"".join(args) + b"tR"


NDARRAY, DTYPE = name("numpy", "ndarray"), name("numpy", "dtype")
ADDRESS = b"C\x08" + b"A" * 8
ONE, OBJECT = value((1,)), value("O")
RECORD = b"](" + value("a") + OBJECT + b"ta"
POINTERS = call(NDARRAY, ONE, OBJECT, ADDRESS)
LIST = name("builtins", "list")

UNSAFE = {
    "an array of pointers, iterated": call(name("builtins", "frozenset"), POINTERS),
    "in a list": call(LIST, POINTERS),
    "in a counter": call(name("collections", "Counter"), POINTERS),
    "in a deque": call(name("collections", "deque"), POINTERS),
    "of a record": call(LIST, call(NDARRAY, ONE, RECORD, ADDRESS)),
    "by NEWOBJ": NDARRAY + b"(" + ONE + OBJECT + ADDRESS + b"t\x81",
    "by keywords": NDARRAY + b"(" + ONE + b"t}" + value("dtype") + OBJECT + b"s\x92",
    "by OBJ": b"(" + NDARRAY + ONE + OBJECT + ADDRESS + b"o",
    "of a dtype": call(NDARRAY, ONE, call(DTYPE, OBJECT), ADDRESS),
    "of strings elsewhere": call(NDARRAY, ONE, value("T"), b"C\x10" + b"A" * 16),
    "bytes before a buffer": call(NDARRAY, ONE, value("u1"), ADDRESS, value(-4096)),
    "bytes far away": call(NDARRAY, value((2,)), value("u1"), ADDRESS, value(0), value((1 << 30,))),
    "a scalar of a record": call(
        name("numpy._core.multiarray", "scalar"), call(DTYPE, RECORD), ADDRESS
    ),
    "a dtype of several": call(
        name("numpy._core.multiarray", "scalar"), call(DTYPE, value("i8,O")), b"C\x10" + b"A" * 16
    ),
    "a buffer of a record": call(
        name("numpy._core.numeric", "_frombuffer"), ADDRESS, RECORD, ONE, value("C")
    ),
    "an enumeration's member changed": call(name("uuid", "SafeUUID"), value(0))
    + value({"_value_": 7})
    + b"b",
    "a class changed": name("collections", "deque") + value((None, {"x": 1})) + b"b",
    "attributes of a class": name("uuid", "UUID") + value({"int": 1}) + b"b",
    "slots of an instance": call(name("types", "SimpleNamespace"))
    + value((None, {"__class__": 1}))
    + b"b",
    "a complex dtype of no size": call(
        name("numpy._core.multiarray", "scalar"),
        call(DTYPE, value("c"), value(False), value(True))
        + value((3, "<", None, None, None, -1, -1, 0))
        + b"b",
        ADDRESS,
    ),
    "fewer objects than an array has": call(
        name("numpy._core.multiarray", "_reconstruct"), NDARRAY, value((0,)), value("b")
    )
    + b"("
    + value(1)
    + value((9,))
    + call(DTYPE, OBJECT, value(False), value(True))
    + value((3, "|", None, None, None, -1, -1, 63))
    + b"b"
    + value(False)
    + value([1, 2])
    + b"tb",
    "a method of its own": call(name("collections", "OrderedDict"))
    + b"}"
    + value("append")
    + LIST
    + b"sb"
    + value(1)
    + b"a",
    "bytes without end": call(name("builtins", "bytes"), value(1 << 40)),
    "a range in a list": call(LIST, call(name("builtins", "range"), value(1 << 40))),
    "another encoding": call(name("_codecs", "encode"), value("a"), value("rot13")),
    "a storage that is called": b"Pid\n)R",
    "a dtype that is called": name("torch", "float32") + b")R",
    "a tensor that is called": call(name("torch", "FloatTensor"), value(1 << 40)),
}


@pytest.mark.parametrize("what", UNSAFE)
def test_other_roles_are_not_safe(what: str) -> None:
    assert scan(b"\x80\x02" + UNSAFE[what] + b".").verdict != "safe"


CANDIDATES = [
    *((), (1,), (-1,), (0, 3), ("a",), ("1",), (None,), ([1],), ([("a", 1)],), ({"a": 1},)),
    *(("f", [1.0]), ("O",), ("i8",), ((1,),), ("a", "latin-1"), (b"a",), (1, 2, 3), (1.5, 2.5)),
]
LOADS = """
import pickle, sys
from pathlib import Path
count = 0
for line in Path(sys.argv[1]).read_text().splitlines():
    raw = bytes.fromhex(line)
    try:
        pickle.loads(raw)  # whose modules are imported now
    except Exception:
        continue
    heard = []
    sys.addaudithook(lambda event, args, heard=heard: heard.append(event))
    value = pickle.loads(raw)
    extra = set(heard) - {"pickle.find_class", "import", "array.__new__", "sys.addaudithook",
                          "object.__getattr__"}
    assert not extra, (raw, extra)
    repr(value)
    count += 1
print(count)
"""


@pytest.mark.slow
def test_what_is_safe_does_nothing(tmp_path: Path) -> None:
    """Each name with each list of arguments, and each state, as CPython and numpy load it."""
    lines = []
    for table in (HARMLESS, _OTHERS):
        for module, names in table.items():
            if module in ("__builtin__", "pathlib._local") or module.startswith("torch"):
                continue
            for attribute, args in product(names, CANDIDATES):
                made = call(name(module, attribute), *map(value, args))
                for state in (b"", value({"a": 1}) + b"b", value((None, {"a": 1})) + b"b"):
                    raw = b"\x80\x02" + made + state + b"."
                    if scan(raw).verdict == "safe":
                        lines.append(raw.hex())
    assert len(lines) > 100
    path = tmp_path / "pickles"
    path.write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(path)], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 100
