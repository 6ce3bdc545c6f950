"""Pickles, on their own and in what holds them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from bombs.made import bomb, filled
from helpers.zip_handmade import Member, zip_bytes


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(raw)) + raw


def archive(pickled: bytes, members: Iterable[Member] = (), method: int = 0) -> bytes:
    """Return a torch file."""
    return zip_bytes([Member(b"a/data.pkl", pickled, method), *members])


LEGACY = (
    b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b".\x80\x02M\xe9\x03."
)
LEGACY += b"\x80\x02}."


def npy(
    descr: str = "<f4", shape: tuple[int, ...] = (1,), data: bytes = bytes(4), **other: Any
) -> bytes:
    header = f"{{'descr': {descr!r}, 'fortran_order': {other.get('fortran', False)}, "
    return npy_of((header + f"'shape': {shape!r}, }}").encode(), data)


def npy_of(header: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header + data


def pickles(name: str, make: Callable[[int], bytes]) -> None:
    """Add a pickle in a torch file, which all verbs read."""
    bomb(name, lambda size: archive(make(size - 400)), "x.pth")


def in_all(name: str, make: Callable[[int], bytes]) -> None:
    """Add a pickle in everything else that holds one."""
    head = npy("|O", (), b"")
    bomb(name, make, "x.pkl")
    bomb(name, lambda size: LEGACY + make(size - 400) + b"\x80\x02].", "x.pt")
    bomb(name, lambda size: head + make(size - 400), "x.npy")
    bomb(name, lambda size: zip_bytes([Member(b"a.npy", head + make(size - 400))]), "x.npz")


def replayed(head: bytes, unit: bytes, kept: bytes, size: int, share: float = 0.5) -> bytes:
    """Return a pickle of `head`, then something long, then what makes it again and again.

    `kept` is filled in for `%s` in the head, as far as it takes its share of the room.
    """
    room = size - len(head) - 20
    long = filled(kept, int(room * share))
    head = head.replace(b"%n", struct.pack("<I", len(long))).replace(b"%s", long)
    return b"\x80\x04" + head + filled(unit, room - len(long)) + b"."


def replay(name: str, head: bytes, unit: bytes, kept: bytes, share: float = 0.5) -> None:
    pickles(name, lambda size: replayed(head, unit, kept, size, share))


CALL = b"h\x00h\x01\x85R"
LIST, TUPLE = b"](%seq\x010", b"(%stq\x010"
INTS, NONES = b"K\x01", b"N"
for function in ("set", "frozenset", "list", "tuple", "dict", "bytes", "bytearray", "complex"):
    replay(f"builtins-{function}", b"cbuiltins\n%b\nq\x000" % function.encode() + LIST, CALL, INTS)
replay("set-of-none", b"cbuiltins\nset\nq\x000" + LIST, CALL, NONES)
replay("size", b"ctorch\nSize\nq\x000" + LIST, CALL, INTS)
replay("size-of-tuple", b"ctorch\nSize\nq\x000" + TUPLE, CALL, INTS)
replay("intlist", b"ctorch.jit._pickle\nbuild_intlist\nq\x000" + LIST, CALL, INTS)
replay("tensorlist", b"ctorch.jit._pickle\nbuild_tensorlist\nq\x000" + LIST, CALL, NONES)
PAIR = b"K\x01N\x86"
for path in ("OrderedDict", "Counter", "deque", "defaultdict"):
    head = b"ccollections\n%b\nq\x000" % path.encode()
    replay(f"{path}-of-pairs", head + LIST, CALL, PAIR)
    replay(f"{path}-of-list", head + LIST, CALL, INTS)


def numbered(pattern: bytes, name: str, head: bytes, unit: bytes) -> None:
    """Add a replay of something whose parts all differ: `pattern` takes a number."""

    def make(size: int) -> bytes:
        long = filled(lambda i: pattern.replace(b"#", struct.pack("<i", i)), size // 2)
        whole = head.replace(b"%s", long)
        return b"\x80\x04" + whole + filled(unit, size - len(whole) - 8) + b"."

    pickles(name, make)


for path in ("OrderedDict", "Counter"):
    head = b"ccollections\n%b\nq\x000" % path.encode()
    numbered(b"J#N", f"{path}-of-dict", head + b"}(%suq\x010", CALL)
    numbered(b"J#N\x86", f"{path}-of-many", head + LIST, CALL)
numbered(b"J#", "set-of-many", b"cbuiltins\nset\nq\x000" + LIST, CALL)
numbered(b"J#", "set-opcode", b"", b"\x8f(J\1\0\0\0\x90")
for kind, letters in (("ascii", b"a"), ("latin", "é".encode()), ("wide", "𐀀".encode())):
    for made, encoding in (("_codecs encode", "latin1"), ("builtins bytearray", "latin-1")):
        head = (
            b"c"
            + made.replace(" ", "\n").encode()
            + b"\nq\x000X%n%sq\x010"
            + text(encoding)
            + b"q\x020"
        )
        replay(f"{made[1:].split()[1]}-{kind}", head, b"h\x00h\x01h\x02\x86R", letters)
    replay(f"reencode-{kind}", b"X%n%sq\x000", b"h\x00", letters)
DOTTED = b"X%n%sq\x000" + text("b") + b"q\x010"
for kind, unit in (("dotted", b"a."), ("dots", b"."), ("long", b"a"), ("torch", b"torch.")):
    replay(f"stack-global-{kind}", DOTTED, b"h\x00h\x01\x930", unit)
    replay(f"stack-global-name-{kind}", DOTTED, b"h\x01h\x00\x930", unit)
    replay(f"global-{kind}", b"c%s\nx\n0", b"N0", unit, 0.95)
    replay(f"global-name-{kind}", b"cos\n%s\n0", b"N0", unit, 0.95)
for size in (10, 100, 1000, 4000):
    dotted = b"a." * (size // 2)
    replay(f"stack-global-{size}", DOTTED.replace(b"%n%s", text(dotted)[1:]), b"h\0h\1\x930", b"")
    replay(f"globals-{size}", b"", b"c" + dotted + b"a\nb\n0", b"")
replay("dup-tuples", b"N", b"2\x86", b"")  # doubles with each
replay("dup-lists", b"]", b"]q\x000h\x00h\x00\x86a" * 2, b"")
replay("dups", b"N", b"2", b"")
replay("marks", b"", b"(", b"")
replay("lists", b"", b"]", b"")
replay("lists-in-lists", b"", b"(l", b"")
replay("nested-tuples", b")", b"\x85", b"")
replay("nested-lists", b"N", b"]q\x000h\x00\x86", b"")
replay("dicts", b"", b"}", b"")
replay("sets", b"", b"\x8f", b"")
replay("memo", b"N", b"\x94", b"")
replay("memo-far", b"N", b"r\xff\xff\xff\xff", b"")
replay("gets", b"X%n%s\x94", b"h\x000", b"a")
replay("floats", b"(", b"G?\xf0\0\0\0\0\0\0", b"")
replay("protocols", b"", b"\x80\x04", b"")
replay("ints", b"(", b"I1\n", b"")
replay("long-text", b"L%sL\n", b"N0", b"9", 0.95)
replay("long4", b"\x8b%n%s", b"N0", b"\x7f", 0.95)
replay("longs", b"(", b"\x8a\xff" + b"\x7f" * 255, b"")
replay("long-sum", b"\x8a\xff" + b"\x7f" * 255 + b"\x94", b"h\x00", b"")
replay("build", b"cx\ny\n)R}(%su\x94", b"h\x00b", b"X\1\0\0\0aN")
replay("appends", b"](%se\x94", b"h\x00a", b"N")
replay("appends-of-self", b"]\x94", b"h\x00a", b"")
replay("setitems", b"}\x94", b"h\x00N\x86Ns", b"")
replay("calls", b"cx\ny\n\x94)\x94", b"h\x00h\x01R", b"")
replay("calls-of-calls", b"cx\ny\n", b")R", b"")
replay("reduce-self", b"cbuiltins\nset\n\x94", b"h\x00)R\x85", b"")
replay("persids", b"", b"K\x01Q", b"")
replay("persid-lines", b"", b"Pa\n", b"")
replay("inst", b"", b"(ia\nb\n", b"")
replay("extensions", b"", b"\x82\x01", b"")
replay("pickles-in-strings", b"", b"C\x04\x80\x04N.", b"")
replay("stops", b"", b"N.\x80\x04", b"")
replay("frames", b"", b"\x95\x01\0\0\0\0\0\0\0N", b"")
replay("keys", b"}(", b"N\x85N", b"")
replay("quotes", b"", b"S'\\x41\\\\'\n", b"")
replay("quoted", b"S'%s'\n", b"N0", b"\\x41", 0.95)
replay("unicode-escapes", b"V%s\n", b"N0", b"\\u0041", 0.95)
for depth in (200, 255, 257):
    replay(f"deep-{depth}", b"]" * depth + b"a" * (depth - 1), b"N0", b"")


def nested_strings(size: int) -> bytes:
    """Return pickles in strings of pickles."""
    inner = b"\x80\x04cos\nsystem\n."
    for _ in range(40):
        wrapped = b"\x80\x04" + b"B" + struct.pack("<I", len(inner)) + inner + b"."
        if len(wrapped) * 2 > size:
            break
        inner = wrapped
    return b"\x80\x04(" + filled(b"B" + struct.pack("<I", len(inner)) + inner, size - 8) + b"l."


pickles("strings-in-strings", nested_strings)
