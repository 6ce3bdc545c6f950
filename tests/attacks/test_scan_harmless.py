"""Pickles that hold nothing but values are called safe, and do nothing when they are loaded."""

from __future__ import annotations

import array
import builtins
import collections
import datetime
import decimal
import io
import pathlib
import pickle
import sys
import types
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.formats.pickle.limits import PICKLE_MAX_ITEMS
from anamnesis.formats.scan.roles import HARMLESS
from anamnesis.formats.scan.scan import scan
from helpers.pickle_handmade import zipped

VALUES: dict[str, Any] = {
    "frozenset": frozenset((1, 2)),
    "set": {1, 2},
    "bytes": [b"", b"a", bytearray(), bytearray(b"a")],
    "complex": 1 + 2j,
    "counters": [collections.Counter("aab"), collections.OrderedDict(a=1)],
    "range": range(3),
    "slice": slice(1, 2),
    "Ellipsis": ...,
    "types": [bool, dict, float, frozenset, int, list, tuple],
    "array": array.array("f", [1.0]),
    "deque": collections.deque([1], maxlen=3),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "dates": [
        datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        datetime.date(2026, 1, 2),
        datetime.time(1),
        datetime.timedelta(1),
    ],
    "Decimal": decimal.Decimal("1.5"),
    "namespace": types.SimpleNamespace(lr=0.1),
    "uuid": [uuid.UUID(int=7), uuid.SafeUUID.safe],
    "paths": [pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("a\\b"), Path("c")],
}
_NOT_MADE = {  # elsewhere than here
    *((module, name) for module in ("__builtin__", "pathlib._local") for name in HARMLESS[module]),
    *(("pathlib", name) for name in HARMLESS["pathlib"]),
    ("builtins", "bytes"),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", VALUES)
def test_plain_values_are_safe_and_do_nothing(name: str, protocol: int) -> None:
    try:
        data = pickle.dumps(VALUES[name], protocol)
    except (TypeError, pickle.PicklingError):
        pytest.skip("not a case: this protocol cannot hold it")
    found = scan(data)
    named = {f"{g.module}.{g.name}" for p in found.pickles for g in p.globals}
    if "copy_reg._reconstructor" not in named:  # by which protocols 0 and 1 make anything
        assert found.verdict == "safe", str(found)
    pickle.loads(data)  # modules are imported now, if they have to be
    events: list[str] = []
    _HOOKED.append(events)
    try:
        assert pickle.loads(data) == VALUES[name]
    finally:
        _HOOKED.remove(events)
    assert set(events) <= {"pickle.find_class", "import", "array.__new__"}, events


_HOOKED: list[list[str]] = []


def _hear(event: str, _: Any) -> None:
    for events in _HOOKED:
        events.append(event)


sys.addaudithook(_hear)


def test_each_name_in_the_table_was_met() -> None:
    met = set()
    for protocol in range(2, 6):
        for value in VALUES.values():
            found = scan(pickle.dumps(value, protocol))
            met |= {(g.module, g.name) for p in found.pickles for g in p.globals}
    table = {(module, name) for module, names in HARMLESS.items() for name in names}
    assert table - met <= _NOT_MADE


@pytest.mark.parametrize("name", ["types.FunctionType", "uuid.os", "collections.namedtuple"])
def test_what_stands_beside_a_harmless_name_is_not(name: str) -> None:
    module, _, attribute = name.partition(".")
    assert scan(f"c{module}\n{attribute}\n.".encode()).verdict == "dangerous"


def test_torchs_named_tuples_are_safe(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.eye(3).max(1), tmp_path / "max.pt")
    assert scan(tmp_path / "max.pt").verdict == "safe"
    assert scan(b"ctorch.return_types\n__loader__\n.").verdict == "dangerous"


def _npy(values: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, values, allow_pickle=True)
    return out.getvalue()


PLAIN = [("a", "<f4"), ("b", "S3", (2,)), (("title", "c"), [("d", "<i2"), ("e", "<M8[s]")])]


def test_records_without_objects_are_safe() -> None:
    assert scan(_npy(np.zeros(2, PLAIN))).verdict == "safe"
    assert scan(_npy(np.zeros(2, PLAIN))[:-1]).verdict != "safe"


def test_records_with_an_object_are_looked_into() -> None:
    values = np.zeros(2, [*PLAIN, ("o", "O")])
    values["o"][0] = builtins.eval
    assert scan(_npy(values)).verdict == "dangerous"


@pytest.mark.parametrize(
    "descr",
    [
        *("[('a', '<f4', (-1,))]", "[('a',)]", "[('a', '<f4'), ('a', '<f4')]", "[]", "['<f4']"),
        *("[('a', '<f4', (9999999999999, 9999999999))]", "[('a', 'S99999999999')]"),
        "[('a', '<f9')]",
    ],
)
def test_records_of_no_known_size_are_not_safe(descr: str) -> None:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (2,), }}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)
    assert scan(data).verdict != "safe"


def test_joblibs_arrays_are_named_and_not_called_dangerous() -> None:
    # What joblib.dump writes, up to the bytes of the array.
    data = (
        b"\x80\x04\x8c\x13joblib.numpy_pickle\x8c\x11NumpyArrayWrapper\x93)\x81}"
        b"\x8c\x05shapeK\x03\x85sb\x06" + bytes(range(24)) + b"."
    )
    found = scan(data)
    assert found.verdict == "unknown"
    assert "joblib's arrays lie between the opcodes" in str(found)


def test_a_flood_of_values_is_refused_early() -> None:
    data = zipped({"a/data.pkl": b"\x80\x02(" + b"N" * (PICKLE_MAX_ITEMS + (1 << 19)) + b"t."})
    found = scan(data)
    assert found.verdict == "unknown"
    assert "PICKLE_MAX_ITEMS" in str(found)
