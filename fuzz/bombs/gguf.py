"""GGUF's keys, tensors and parts."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from bombs.made import BOMBS, bomb
from helpers.gguf_handmade import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    U8,
    Array,
    Raw,
    Tensor,
    Writer,
    gguf_bytes,
)


def rows(make: Callable[[int], Tensor], size: int, **form: Any) -> bytes:
    """Return a file of as many tensors as there is room for."""
    tensors: dict[str | bytes, Tensor] = {}
    room = size - 64
    while room > 0:
        made = make(len(tensors))
        name = str(len(tensors))
        room -= 24 + len(name) + 8 * len(made.dims) + len(made.data) + (-len(made.data) % 32)
        if room > 0:
            tensors[name] = made
    return gguf_bytes({}, tensors, **form)


def gguf(name: str, make: Callable[[int], bytes]) -> None:
    bomb(f"gguf-{name}", make, "x.gguf")


for big in (False, True):
    end = "-be" * big
    gguf(f"empty{end}", partial(rows, lambda i: Tensor((0,), 0), big=big))
    gguf(f"small{end}", partial(rows, lambda i: Tensor((1,), 0, bytes(4)), big=big))
    gguf(f"unknown{end}", partial(rows, lambda i: Tensor((1,), 99, b"", 0), big=big))
    gguf(f"huge-and-empty{end}", partial(rows, lambda i: Tensor((10**12, 0), 0), big=big))
gguf("empty-4d", partial(rows, lambda i: Tensor((2**62, 0, 2**62, 2**62), 0)))
gguf("same-place", partial(rows, lambda i: Tensor((1,), 0, b"", 0)))
gguf("dims", lambda n: gguf_bytes({}, {"a": Tensor((1,) * (n // 8 - 20), 0, bytes(4))}))
gguf("name", lambda n: gguf_bytes({}, {b"a" * (n - 200): Tensor((1,), 0, bytes(4))}))
gguf("count", lambda n: gguf_bytes({}, {}, n_tensors=2**63))
gguf("count-million", lambda n: gguf_bytes({}, {}, n_tensors=10**6))
gguf("keys-count", lambda n: gguf_bytes({}, {}, n_keys=2**63))
WRITER = Writer()


def keyed(name: str, value: Callable[[int], Any]) -> None:
    gguf(f"key-{name}", lambda n: gguf_bytes({"k": value(n - 200)}))


def array_of(kind: int, items: bytes, n: int | None = None) -> Raw:
    return Raw(ARRAY, struct.pack("<IQ", kind, n or 0) + items)


EMPTY = struct.pack("<IQ", U8, 0)
keyed("nested", lambda n: array_of(ARRAY, EMPTY * (n // 12), n // 12))
keyed("nested-4", lambda n: array_of(ARRAY, struct.pack("<IQ", ARRAY, 1) * 2 + EMPTY, 1))
keyed("nested-deep", lambda n: array_of(ARRAY, struct.pack("<IQ", ARRAY, 1) * (n // 12), 1))
keyed(
    "nested-wide",
    lambda n: array_of(ARRAY, (struct.pack("<IQ", ARRAY, 70) + EMPTY * 70) * (n // 860), n // 860),
)
keyed("strings", lambda n: array_of(STRING, bytes(n // 8 * 8), n // 8))
keyed(
    "bytes-strings", lambda n: array_of(STRING, (struct.pack("<Q", 1) + b"\xff") * (n // 9), n // 9)
)
keyed("bools", lambda n: array_of(BOOL, b"\1" * n, n))
keyed("floats", lambda n: array_of(F32, struct.pack("<f", 0.1) * (n // 4), n // 4))
keyed("subnormals", lambda n: array_of(F32, b"\1\0\0\0" * (n // 4), n // 4))
keyed("bytes", lambda n: array_of(U8, bytes(n), n))
keyed("huge", lambda n: array_of(U8, b"", 2**60))
keyed("string", lambda n: (STRING, b"a" * n))
keyed("string-escapes", lambda n: (STRING, b"\x1b" * n))
gguf("keys", lambda n: gguf_bytes({f"{i}": (U8, 1) for i in range(n // 18)}))
gguf(
    "keys-short-arrays",
    lambda n: gguf_bytes({f"{i}": Array(F32, [0.1] * 60) for i in range(n // 280)}),
)
gguf("keys-same", lambda n: gguf_bytes([("k", (U8, 1))] * (n // 15)))
gguf("key-name", lambda n: gguf_bytes({b"k" * (n - 200): (U8, 1)}))
gguf(
    "alignment-huge",
    lambda n: gguf_bytes({"general.alignment": (4, 2**31)}, {"a": Tensor((1,), 0, bytes(4))}),
)
gguf(
    "alignment-1",
    lambda n: gguf_bytes(
        {"general.alignment": (4, 1)},
        {str(i): Tensor((1,), 0, bytes(4)) for i in range(n // 42)},
        alignment=1,
    ),
)
BLOCKS = {
    2: (32, 18),
    10: (256, 84),
    16: (256, 66),
    19: (256, 50),
    29: (256, 56),
    34: (256, 54),
    39: (32, 17),
}
for kind, (n_items, n_block) in BLOCKS.items():
    for shape, dims in (
        ("wide", lambda k, n_items=n_items: (n_items * k,)),
        ("tall", lambda k, n_items=n_items: (n_items, k)),
    ):
        gguf(
            f"blocks-{kind}-{shape}",
            lambda n, kind=kind, n_block=n_block, dims=dims: gguf_bytes(
                {},
                {
                    "a": Tensor(
                        dims((n - 200) // n_block),
                        kind,
                        b"\x55" * (n_block * ((n - 200) // n_block)),
                    )
                },
            ),
        )


def part(number: int, count: int) -> bytes:
    keys = {"split.no": (4, number), "split.count": (4, count), "split.tensors.count": (5, 1)}
    return gguf_bytes(keys, {"a": Tensor((1,), 0, bytes(4))})


for number, count in ((1, 99999), (99999, 99999), (1, 65535), (2, 99999)):
    name = f"x-{number:05}-of-{count:05}.gguf"
    BOMBS[name] = lambda _, name=name, n=number, count=count: {name: part(n - 1, count)}
    plain = f"{name}-no-keys"
    BOMBS[plain] = lambda _, name=name: {name: gguf_bytes({}, {"a": Tensor((1,), 0, bytes(4))})}
