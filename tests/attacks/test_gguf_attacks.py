"""Hostile GGUF files: a result or the one kind of error, soon and in little memory."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from exercise import exercise

import anamnesis as an
from helpers.gguf_handmade import (
    ARRAY,
    BOOL,
    F64,
    STRING,
    U8,
    U32,
    Array,
    Raw,
    Tensor,
    Writer,
    gguf_bytes,
)

SMALL = 2_000_000
MOST = 2**64 - 1
W = Writer()
BYTE = Tensor((1,), 24, b"a")


def row(n_dims: int, *dims: int, kind: int = 0, offset: int = 0) -> bytes:
    """Return a file of one tensor whose row says all this."""
    return (
        W.head(1, 0)
        + W.string("x")
        + W.pack(f"I{len(dims)}QIQ", n_dims, *dims, kind, offset)
        + bytes(200)
    )


def array_of(kind: int, n: int, data: bytes = b"") -> bytes:
    """Return a file of one array that claims `n` items."""
    return gguf_bytes({"a": Raw(ARRAY, W.pack("IQ", kind, n) + data)})


def nested(depth: int, n: int = 1) -> bytes:
    return array_of(ARRAY, n, W.pack("IQ", ARRAY, n) * (depth - 2) + W.pack("IQ", U8, 0))


REFUSED: dict[str, tuple[bytes, type[an.AnamnesisError], str]] = {
    "n_dims of 2^31": (row(2**31), an.LimitExceeded, "GGUF_MAX_DIMS"),
    "n_dims of 9": (row(9, *[1] * 9), an.LimitExceeded, "GGUF_MAX_DIMS"),
    "n_dims of 2^32 - 1": (row(2**32 - 1), an.LimitExceeded, "GGUF_MAX_DIMS"),
    "a product that wraps to 0": (row(2, 2**32, 2**32), an.LimitExceeded, "GGUF_MAX_ELEMENTS"),
    "a product that wraps to 1": (
        row(2, 0xAAAAAAAAAAAAAAAB, 3),
        an.LimitExceeded,
        "GGUF_MAX_ELEMENTS",
    ),
    "bytes that wrap": (row(1, 2**62 + 1), an.LimitExceeded, "GGUF_MAX_ELEMENTS"),
    "wraps of 8 dims": (row(8, *[2**8] * 8), an.LimitExceeded, "GGUF_MAX_ELEMENTS"),
    "huge and empty": (row(2, MOST, 0), an.LimitExceeded, "GGUF_MAX_ELEMENTS"),
    "one element too many": (row(1, 10**12 + 1), an.LimitExceeded, "GGUF_MAX_ELEMENTS"),
    "10^12 elements": (row(1, 10**12), an.ParseError, "truncated"),
    "10^12 elements of 1.6 bits": (row(1, 10**12, kind=34), an.ParseError, "truncated"),
    "an offset that wraps": (row(1, 8, offset=MOST - 31), an.ParseError, "truncated"),
    "an offset past the end": (row(1, 8, offset=2**40), an.ParseError, "truncated"),
    "an odd offset": (row(1, 8, offset=MOST), an.ParseError, "alignment"),
    "tensors of 2^64 - 1": (gguf_bytes(n_tensors=MOST), an.LimitExceeded, "GGUF_MAX_TENSORS"),
    "tensors of 10^6": (gguf_bytes(n_tensors=10**6), an.ParseError, "at least 24,000,000"),
    "tensors of 10^6 + 1": (gguf_bytes(n_tensors=10**6 + 1), an.LimitExceeded, "MAX_TENSORS"),
    "keys of 2^64 - 1": (gguf_bytes(n_keys=MOST), an.LimitExceeded, "GGUF_MAX_KEYS"),
    "keys of 10^6": (gguf_bytes(n_keys=10**6), an.ParseError, "at least 13,000,000"),
    "keys of 10^6 + 1": (gguf_bytes(n_keys=10**6 + 1), an.LimitExceeded, "MAX_KEYS"),
    "a tensor too many": (
        gguf_bytes({}, {"x": BYTE}, n_tensors=2),
        an.ParseError,
        "at least 48",
    ),
    "160 bytes that promise GiB": (
        array_of(STRING, 15_000_000, bytes(100)),
        an.ParseError,
        "at least 120,000,000",
    ),
    "floats of 128 MB": (array_of(F64, 16_000_000), an.ParseError, "at least 128,000,000"),
    "items of 2^64 - 1": (array_of(U8, MOST), an.LimitExceeded, "GGUF_MAX_ARRAY_ITEMS"),
    "arrays of 2^60": (array_of(ARRAY, 2**60), an.LimitExceeded, "GGUF_MAX_ARRAY_ITEMS"),
    "items of 16,000,001": (array_of(U8, 16_000_001), an.LimitExceeded, "GGUF_MAX_ARRAY_ITEMS"),
    "arrays of 10^6 + 1": (array_of(ARRAY, 10**6 + 1), an.LimitExceeded, "NESTED_ARRAYS"),
    "arrays of 10^6": (array_of(ARRAY, 10**6), an.ParseError, "at least 12,000,000"),
    "5 deep": (nested(5), an.LimitExceeded, "GGUF_MAX_ARRAY_DEPTH"),
    "100,000 deep": (nested(100_000), an.LimitExceeded, "GGUF_MAX_ARRAY_DEPTH"),
    "a string of 2^64 - 1": (
        gguf_bytes({"s": Raw(STRING, W.pack("Q", MOST))}),
        an.LimitExceeded,
        "GGUF_MAX_STRING",
    ),
    "a string of 16 MiB and 1": (
        gguf_bytes({"s": Raw(STRING, W.pack("Q", 2**24 + 1))}),
        an.LimitExceeded,
        "GGUF_MAX_STRING",
    ),
    "a string of 16 MiB": (
        gguf_bytes({"s": Raw(STRING, W.pack("Q", 2**24) + b"abc")}),
        an.ParseError,
        "16,777,216 bytes",
    ),
    "an item beyond the end": (
        array_of(STRING, 2, W.string("abc") + W.pack("Q", 1000) + b"abc"),
        an.ParseError,
        "a string ends at byte",
    ),
    "an item over the cap": (
        array_of(STRING, 2, W.string("abc") + W.pack("Q", MOST)),
        an.LimitExceeded,
        "GGUF_MAX_STRING",
    ),
    "items that end with the file, and one more": (
        array_of(STRING, 3, W.string("abcdefgh") * 2),
        an.ParseError,
        "8 more are needed",
    ),
    "a key of 65,536 bytes": (
        gguf_bytes({"k" * 65_536: (U8, 1)}),
        an.LimitExceeded,
        "GGUF_MAX_KEY",
    ),
    "a key of 2^64 - 1": (W.head(0, 1) + W.pack("Q", MOST) + bytes(99), an.LimitExceeded, "KEY"),
    "a key beyond the end": (
        W.head(0, 1) + W.pack("Q", 999) + bytes(99),
        an.ParseError,
        "more are needed",
    ),
    "a name of 65,536 bytes": (gguf_bytes({}, {"n" * 65_536: BYTE}), an.LimitExceeded, "MAX_NAME"),
    "an alignment of 2^31": (
        gguf_bytes({"general.alignment": (U32, 2**31)}, {"x": BYTE}),
        an.LimitExceeded,
        "GGUF_MAX_ALIGNMENT",
    ),
    "keys twice": (gguf_bytes([("k", (U8, 1))] * 2), an.ParseError, "appears twice"),
    "names twice": (gguf_bytes({}, [("x", BYTE)] * 2), an.ParseError, "appears twice"),
    "1,000 tensors in one place": (
        gguf_bytes({}, {f"t{i}": Tensor((4,), 24, b"abcd", 0) for i in range(1000)}),
        an.ParseError,
        "overlaps",
    ),
    "split into 2^64 - 1": (
        gguf_bytes({"split.count": (10, MOST), "split.no": (10, MOST)}),
        an.ParseError,
        "is part",
    ),
    "split by an array": (
        gguf_bytes({"split.count": Array(U8, [2])}),
        an.ParseError,
        "must be an integer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("bounded")
def test_refused(name: str) -> None:
    raw, error, match = REFUSED[name]
    assert len(raw) <= SMALL
    with pytest.raises(error, match=match) as raised:
        an.parse(raw)
    assert raised.type is error
    assert len(str(raised.value)) < 1000
    if isinstance(raised.value, an.LimitExceeded):
        assert raised.value.limit.startswith("GGUF_MAX_")


ACCEPTED = {
    "4 deep": nested(4),
    "longest key and name": gguf_bytes({"k" * 65_535: (U8, 1)}, {"n" * 65_535: BYTE}),
    "a key of NULs": gguf_bytes({"\0\0": (STRING, "\0")}, {"\0": BYTE}),
    "8 dims": gguf_bytes({}, {"x": Tensor((1,) * 8, 24, b"a")}),
    "escapes": gguf_bytes({"\x1b[2J": (STRING, "\x1b]0;x\x07\r\n\u202e")}, {"\x1b[2J": BYTE}),
    "half surrogates": gguf_bytes({"s": (STRING, b"\xed\xa0\x80"), "a": Array(STRING, [b"\xff"])}),
    "100,000 empty strings": array_of(STRING, 100_000, bytes(800_000)),
    "100,000 empty arrays": array_of(ARRAY, 100_000, W.pack("IQ", U8, 0) * 100_000),
    "50,000 keys": gguf_bytes({f"{i}": (BOOL, 1) for i in range(50_000)}),
    "infinities": gguf_bytes({"f": Array(F64, [float("inf"), float("nan"), -0.0])}),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    assert len(ACCEPTED[name]) <= SMALL
    assert exercise(ACCEPTED[name]) is not None


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
def test_many_tensors_of_one_place() -> None:
    """Empty tensors may lie anywhere, and finding overlaps must not compare each with each."""
    tensors = {f"t{i}": Tensor((0,), 24, b"", 0) for i in range(20_000)}
    assert len(an.parse(gguf_bytes({}, tensors))) == 20_000


def test_every_byte_changed() -> None:
    """Wherever a byte is wrong there is a result or an error of the one kind."""
    keys: dict[Any, Any] = {"s": (STRING, "abc"), "a": Array(STRING, ["d", "ef"]), "b": (BOOL, 1)}
    keys["n"] = Array(ARRAY, [Array(U32, [1])])
    raw = gguf_bytes(keys, {"x": Tensor((3,), 0, struct.pack("<3f", 1, 2, 3))})
    for at in range(4, len(raw)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, raw[at] ^ 1):
            exercise(raw[:at] + bytes([value]) + raw[at + 1 :])
