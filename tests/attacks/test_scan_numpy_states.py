"""Pickles that make numpy misuse memory, though all they refer to is harmless, are not safe."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anamnesis.formats.scan.scan import scan

RECONSTRUCT = b"cnumpy._core.multiarray\n_reconstruct\n"
SCALAR = b"cnumpy._core.multiarray\nscalar\n"
NDARRAY = b"cnumpy\nndarray\n"
USUAL = {"f8": (3, "<", None, None, None, -1, -1, 0), "O8": (3, "|", None, None, None, -1, -1, 63)}


def _told(value: Any) -> bytes:
    """Return the opcodes that push a value."""
    return pickle.dumps(value, 2)[2:-1]


def _dtype(code: str, state: Any = None, copied: bool = True) -> bytes:
    made = b"cnumpy\ndtype\n" + _told((code, False, copied)) + b"R"
    return made + _told(USUAL[code] if state is None else state) + b"b"


def _state(dtype: bytes, values: Any, shape: tuple[int, ...] = (1,)) -> bytes:
    return b"(K\x01" + _told(shape) + dtype + b"\x89" + _told(values) + b"t"


def _array(dtype: bytes, values: Any) -> bytes:
    made = RECONSTRUCT + NDARRAY + _told((0,)) + _told(b"b") + b"\x87R"
    return made + _state(dtype, values) + b"b"


_AS_BYTES = _dtype("O8", (3, "|", None, None, None, 8, 8, 0))
_HIDDEN = (
    b"cnumpy\ndtype\n" + _told(("V8", False, True)) + b"R(K\x03X\x01\x00\x00\x00|N"
    b"X\x01\x00\x00\x00a\x85}X\x01\x00\x00\x00a" + _dtype("O8") + b"K\x00\x86sK\x08K\x01K\x00tb"
)
_LARGE = (
    RECONSTRUCT + NDARRAY + _told((100_000,)) + _told("f8") + b"\x87Rq\x01"
    # A view of it, and then a state, for which it lets its memory go.
    + NDARRAY + _told((100_000,)) + _told("f8") + b"h\x01\x87\x81"
)  # fmt: skip

ATTACKS = {
    "pointers from bytes": SCALAR + _AS_BYTES + _told(b"A" * 8) + b"\x86R",
    "pointers in an array": _array(_AS_BYTES, b"A" * 8),
    "pointers in a record": _array(_HIDDEN, b"A" * 8),
    "memory that is let go": b"](" + _LARGE + b"h\x01" + _state(_dtype("f8"), b"A" * 8) + b"be",
    "flags of objects": _array(_dtype("f8", (3, "<", None, None, None, -1, -1, 1)), b"A" * 8),
    "another size": _dtype("V8", (3, "|", None, None, None, 1 << 30, 1, 0)),
    "a dtype that all share": _dtype("f8", copied=False),
    "a state that comes twice": _dtype("f8") + _told(USUAL["f8"]) + b"b",
    "a scalar that is its own": SCALAR + _dtype("O8") + b"N\x86R}b",
    "by way of torch": b"ctorch._tensor\n_rebuild_from_type_v2\n("
    + (RECONSTRUCT + NDARRAY + b"(" + NDARRAY + _told((9,)) + _told("f8") + b"t")
    + (_state(_dtype("f8"), b"A" * 8) + b"tR"),
    "by way of torch, twice": b"ctorch._tensor\n_rebuild_from_type_v2\n("
    + (b"ctorch._tensor\n_rebuild_from_type_v2\n" + NDARRAY + b")NtR"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_states_that_numpy_does_not_write_are_not_safe(name: str) -> None:
    assert scan(b"\x80\x02" + ATTACKS[name] + b".").verdict != "safe"


def test_numpy_believes_such_a_state() -> None:
    """So what is told of it is no false alarm."""
    pickled = b"\x80\x02}" + ATTACKS["pointers from bytes"] + b"K\x01s."  # a key, so it is hashed
    code = "import sys, pickle; pickle.load(sys.stdin.buffer)"
    run = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True)
    assert run.returncode not in (0, 1)


CODES = (
    *("?", "i1", "u8", "f2", "f8", ">f8", "c8", "g", "S3", "S0", "U5", ">U3", "V8", "O"),
    *("M8[s]", "m8", "m8[ns]"),
)


@pytest.mark.parametrize("protocol", range(6))
def test_what_numpy_writes_is_safe(protocol: int) -> None:
    dtypes = [*map(np.dtype, CODES), np.dtype("f4", metadata={"a": 1})]
    dtypes += map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn))
    values: list[Any] = [np.zeros(3, dtype) for dtype in dtypes]
    values += [np.float32(1), np.datetime64("2026-01-01"), np.asfortranarray(np.ones((3, 4)))]
    for value in values:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # metadata are lost
            data = pickle.dumps(value, protocol)
        assert scan(data).verdict == "safe", value.dtype
