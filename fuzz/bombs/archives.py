"""ZIP archives and NumPy's arrays."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial

from bombs.made import bomb, filled
from bombs.pickles import archive, npy, npy_of
from helpers.zip_handmade import Member, zip_bytes


def members(make: Callable[[int], Member], size: int) -> bytes:
    """Return an archive of as many members as there is room for."""
    made: list[Member] = []
    room = size - 22
    while room > 0:
        one = make(len(made))
        extras = len(one.local.get("extra", b"")) + len(one.central.get("extra", b""))
        room -= 76 + 2 * len(one.name) + len(one.packed()) + extras
        if room > 0:
            made.append(one)
    return zip_bytes(made)


def archives(name: str, make: Callable[[int], Member]) -> None:
    bomb(name, partial(members, make), "x.npz", "x.zip", "x.pth")


archives("entries", lambda i: Member(b"%d" % i))
archives("entries-npy", lambda i: Member(b"%d.npy" % i, npy()))
archives("entries-npy-empty", lambda i: Member(b"%d.npy" % i, npy(shape=(0,), data=b"")))
archives("entries-pickles", lambda i: Member(b"a/%d.pkl" % i, b"N."))
archives("entries-torch", lambda i: Member(b"a/data/%d" % i, b"\0"))
archives("entries-long", lambda i: Member(b"a" * 2000 + b"%d" % i))
archives("entries-dotted", lambda i: Member(b"a/" * 1000 + b"%d.npy" % i))
archives(
    "entries-extras",
    lambda i: Member(
        b"%d" % i,
        local={"extra": struct.pack("<2H", 0xCAFE, 0) * 300},
        central={"extra": struct.pack("<2H", 0xCAFE, 0) * 300},
    ),
)
archives("entries-same", lambda i: Member(b"a"))
archives(
    "entries-deflated", lambda i: Member(b"%d.npy" % i, npy(shape=(9_000,), data=bytes(36_000)), 8)
)
archives("entries-arrays", lambda i: Member(b"%d.npy" % i, npy(shape=(1,) * 100, data=bytes(4))))
bomb(
    "comment-of-ends",
    lambda n: zip_bytes([Member(b"a")], comment=b"PK\5\6" * (n // 4 - 50)),
    "x.zip",
)
bomb("ends", lambda n: filled(b"PK\5\6" + bytes(18), n), "x.zip")
bomb(
    "comment-of-zip64",
    lambda n: zip_bytes([Member(b"a")], comment=b"PK\6\7" * (n // 4 - 50)),
    "x.zip",
)

for name, head in (
    ("deep", lambda n: b"{'descr': " + b"[" * n),
    ("deep-closed", lambda n: b"{'descr': " + b"(" * (n // 2) + b")" * (n // 2) + b"}"),
    (
        "structs",
        lambda n: (
            b"{'descr': ["
            + filled(b"('a','<f4'),", n)
            + b"], 'fortran_order': False, 'shape': (), }"
        ),
    ),
    (
        "number",
        lambda n: b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"9" * n + b",), }",
    ),
    (
        "dims",
        lambda n: (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * (n // 2) + b"), }"
        ),
    ),
    (
        "zeros",
        lambda n: (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"0," * (n // 2) + b"), }"
        ),
    ),
    (
        "dims-fortran",
        lambda n: (
            b"{'descr': '<f4', 'fortran_order': True, 'shape': (" + b"1," * (n // 2) + b"), }"
        ),
    ),
    ("spaces", lambda n: b" " * n + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"),
    (
        "spaces-inside",
        lambda n: b"{'descr': '<f4', " + b" " * n + b"'fortran_order': False, 'shape': (1,), }",
    ),
    ("quotes", lambda n: b"{'descr': '" + b"\\'" * (n // 2)),
    ("keys", lambda n: b"{" + filled(lambda i: b"'%d': 1," % i, n) + b"}"),
    (
        "minus",
        lambda n: b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"-" * n + b"1,), }",
    ),
):
    bomb(f"npy-{name}", lambda n, head=head: npy_of(head(n - 200), bytes(4)), "x.npy")
    bomb(
        f"npz-{name}",
        lambda n, head=head: zip_bytes([Member(b"a.npy", npy_of(head(n - 400), bytes(4)))]),
        "x.npz",
    )

RATIO = 950  # about what deflating zeros gives


def deflated(name: str, array: Callable[[int], bytes]) -> None:
    make = lambda n: zip_bytes([Member(b"a.npy", array((n - 300) * RATIO), 8)])  # noqa: E731
    bomb(f"deflated-{name}", make, "x.npz")


deflated("row", lambda n: npy(shape=(n // 4,), data=bytes(n // 4 * 4)))
deflated(
    "columns",
    lambda n: npy(shape=(n // 20_000, 5000), data=bytes(n // 20_000 * 20_000), fortran=True),
)
deflated(
    "columns-be",
    lambda n: npy(">f4", (n // 20_000, 5000), bytes(n // 20_000 * 20_000), fortran=True),
)
deflated("tall", lambda n: npy("|u1", (n // 2, 2), bytes(n // 2 * 2), fortran=True))
deflated("wide", lambda n: npy("|u1", (2, n // 2), bytes(n // 2 * 2), fortran=True))
deflated(
    "6d",
    lambda n: npy("|u1", (int(n ** (1 / 6)),) * 6, bytes(int(n ** (1 / 6)) ** 6), fortran=True),
)
deflated(
    "halves",
    lambda n: npy(
        "|u1", (2,) * (n.bit_length() - 1), bytes(1 << (n.bit_length() - 1)), fortran=True
    ),
)
deflated("complex", lambda n: npy(">c16", (n // 16,), bytes(n // 16 * 16)))
deflated("doubles", lambda n: npy("<f8", (n // 8,), bytes(n // 8 * 8)))
deflated(
    "header",
    lambda n: npy_of(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" + b" " * n, bytes(4)
    ),
)
deflated("objects", lambda n: npy("|O", (), b"\x80\x04" + b"N0" * (n // 2) + b"N."))
bomb(
    "deflated-pickle", lambda n: archive(b"\x80\x02" + b"N0" * (n * 400) + b"N.", method=8), "x.pth"
)
bomb(
    "deflated-pickle-16",
    lambda n: archive(
        b"\x80\x02" + random.Random(1).randbytes(1) * 4 + b"N0" * 100 + b"N.", method=8
    ),
    "x.pth",
)
