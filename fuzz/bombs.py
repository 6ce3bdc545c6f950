"""Files of up to 64 KB that are made to cost time or memory: a bomb is files by name, of any size.

Each was a bomb once, or is what would be one if a loop or a check were another. `make(size)` gives
one of about that many bytes; what names the files is part of it.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gguf_handmade import ARRAY, BOOL, F32, STRING, U8, Array, Raw, Tensor, Writer, gguf_bytes
from handmade import file_bytes, safetensors_bytes
from zip_handmade import Member, zip_bytes

Files = dict[str, bytes]

MOST = 64 << 10  # bytes of all files of a bomb
BOMBS: dict[str, Callable[[int], Files]] = {}


def bomb(name: str, make: Callable[[int], bytes], *files: str) -> None:
    """Add a bomb that is one file, under all these names."""
    for file in files:
        key = f"{name}.{file.rpartition('.')[2]}"
        assert key not in BOMBS
        BOMBS[key] = lambda size, file=file: {file: make(size)}


def filled(unit: Callable[[int], bytes] | bytes, size: int) -> bytes:
    """Return as many units as there is room for: bytes, or a function of their number."""
    if isinstance(unit, bytes):
        return unit * (max(0, size) // len(unit)) if unit else b""
    out = bytearray()
    i = 0
    while True:
        piece = unit(i)
        if len(out) + len(piece) > size:
            return bytes(out)
        out += piece
        i += 1


# --- pickles ------------------------------------------------------------------------------------


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


# --- torch's tensors ----------------------------------------------------------------------------

ITEMS = {"Byte": 1, "Half": 2, "Float": 4, "Double": 8, "ComplexDouble": 16}


def ints(values: Iterable[int]) -> bytes:
    def one(value: int) -> bytes:
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        return b"\x8a\x0a" + value.to_bytes(10, "little", signed=True)

    return b"(" + b"".join(map(one, values)) + b"t"


def tensor(
    shape: tuple[int, ...], strides: tuple[int, ...], n: int, kind: str = "Byte", key: str = "0"
) -> bytes:
    storage = text("storage") + b"ctorch\n%bStorage\n" % kind.encode() + text(key) + text("cpu")
    args = b"(" + storage + ints([n])[1:-1] + b"tQK\0" + ints(shape) + ints(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + args + b"\x89}tR"


def state(*tensors: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(text(str(i)) + t for i, t in enumerate(tensors)) + b"u."


def torch_bomb(name: str, tensors: list[bytes], n: int, method: int = 8) -> None:
    made = lambda _: archive(state(*tensors), [Member(b"a/data/0", bytes(n), method)])  # noqa: E731
    bomb(name, made, "x.pth")


N25 = tuple(2**i for i in range(25))
SHUFFLED = tuple(random.Random(1).sample(N25, 25))
torch_bomb("bit-reversed", [tensor((2,) * 25, N25, 2**25)], 2**25)
torch_bomb("shuffled", [tensor((2,) * 25, SHUFFLED, 2**25)], 2**25)
torch_bomb("transposed", [tensor((5792, 5792), (1, 5792), 5792**2)], 5792**2)
torch_bomb("overlapping", [tensor((4096, 4096), (4096 * 3, 1), 4096**2 * 3)], 4096**2 * 3)
torch_bomb("sparse-rows", [tensor((16, 4096), (1, 12288), 4096 * 12288)], 4096 * 12288)
torch_bomb("sparse-views", [tensor((4096,), (12288,), 4096 * 12288)] * 40, 4096 * 12288)
torch_bomb("wide-views", [tensor((100,), (503316,), 4096 * 12288)] * 20, 4096 * 12288)
torch_bomb("expanded-halves", [tensor((2,) * 24, (0, 1) * 12, 64)], 64, 0)
torch_bomb("expanded-thirds", [tensor((3,) * 15, (1, 2) * 7 + (1,), 64)], 64, 0)
torch_bomb("expanded-6d", [tensor((13,) * 6, (1, 2, 3) * 2, 256)], 256, 0)
torch_bomb("expanded", [tensor((50_000_000,), (0,), 1)], 1, 0)
torch_bomb("expanded-rows", [tensor((25_000_000, 2), (0, 1), 2)], 2, 0)
torch_bomb("expanded-complex", [tensor((3_000_000,), (0,), 1, "ComplexDouble")], 16, 0)
torch_bomb("expanded-often", [tensor((1_000_000,), (0,), 1)] * 60, 1, 0)
torch_bomb("expanded-huge", [tensor((2**62,), (0,), 1)], 1, 0)
torch_bomb("expanded-huge-often", [tensor((2**40,), (0,), 1)] * 300, 1, 0)
torch_bomb("empty-huge", [tensor((2**62, 0) * 8, (1, 1) * 8, 1)] * 100, 1, 0)
torch_bomb("ones", [tensor((1,) * 5000, (1,) * 5000, 1)], 1, 0)
torch_bomb("zeros-deflated", [tensor((60_000_000,), (1,), 60_000_000)], 60_000_000)


def many_tensors(size: int, method: int = 0, shared: bool = True) -> bytes:
    one = tensor((1,), (1,), 1)
    if shared:
        one = b"h\0(h\1h\2h\3h\4K\0h\5h\6\x89}tR"
        one = b"h\0(h\1K\0h\2h\2\x89h\3tR"
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x000(" + text("storage")
    head += (
        b"ctorch\nByteStorage\n" + text("0") + text("cpu") + b"K\1tQq\x010K\1\x85q\x020}q\x030}("
    )
    items = filled(lambda i: text(str(i)) + one, size - 900)
    return archive(head + items + b"u.", [Member(b"a/data/0", b"\0", method)])


bomb("many-tensors", many_tensors, "x.pth")
bomb("many-tensors-in-full", partial(many_tensors, shared=False), "x.pth")


def scattered_views(rows: int, step: int, size: int) -> bytes:
    """Return columns of one deflated storage, each of many pieces."""
    n = rows * step * size // MOST
    head = b"\x80\2ctorch._utils\n_rebuild_tensor_v2\nq\0(" + text("storage")
    head += b"ctorch\nByteStorage\n" + text("0") + text("cpu") + ints([n])[1:-1] + b"tQq\x010"
    head += ints([n // step]) + b"q\x020" + ints([step]) + b"q\x030}q\x040}("
    view = b"h\0(h\1M%bh\2h\3\x89h\4tR"
    items = filled(lambda i: text(str(i)) + view % struct.pack("<H", i), size * 2 // 5)
    return archive(head + items + b"u.", [Member(b"a/data/0", bytes(n), 8)])


bomb("scattered-views", partial(scattered_views, 4096, 8300), "x.pth")
bomb("scattered-views-dense", partial(scattered_views, 4096, 8000), "x.pth")


def shared_shape(size: int) -> bytes:
    """Return tensors that share a shape of many dimensions."""
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x000(" + text("storage")
    head += b"ctorch\nByteStorage\n" + text("0") + text("cpu") + b"K\1tQq\x010("
    head += filled(b"K\1", size // 2) + b"tq\x020}q\x030}("
    items = filled(lambda i: text(str(i)) + b"h\0(h\1K\0h\2h\2\x89h\3tR", size - len(head) - 900)
    return archive(head + items + b"u.", [Member(b"a/data/0", b"\0")])


bomb("shared-shape", shared_shape, "x.pth")


def shared_tree(levels: int, width: int, leaf: bytes, size: int) -> bytes:
    """Return lists of one list, again and again: width ** levels leaves."""
    made = leaf + b"q\0"
    for level in range(1, levels):
        made += b"0](" + b"h%c" % (level - 1) * width + b"eq%c" % level
    return archive(b"\x80\x02" + made[:size] + b".")


bomb("tree-of-none", partial(shared_tree, 8, 100, b"]"), "x.pth")
bomb("tree-of-lists", partial(shared_tree, 3, 14_000, b"]K\1a"), "x.pth")
bomb("tree-of-dicts", partial(shared_tree, 4, 3_000, b"}K\1K\1s"), "x.pth")
bomb("tree-deep", partial(shared_tree, 200, 2, b"]"), "x.pth")
bomb("tree-of-text", partial(shared_tree, 2, 20_000, text("a" * 20_000)), "x.pth")


def behind_much(size: int) -> bytes:
    """Return a tree behind many values that the pickle lets go of."""
    made = b"]q\0"
    for level in range(1, 4):
        made += b"0](" + b"h%c" % (level - 1) * (size // 64) + b"eq%c" % level
    return archive(b"\x80\2(" + b"}" * (size - len(made) - 600) + b"1" + made + b".")


bomb("tree-behind-much", behind_much, "x.pth")


def long_number(size: int) -> bytes:
    n_bytes = min(1024, size // 4)
    return b"\x8b" + struct.pack("<i", n_bytes) + b"\x7f" * n_bytes


def shared_value(value: Callable[[int], bytes], before: bytes, after: bytes, size: int) -> bytes:
    """Return a dictionary in which one value stands many times."""
    made = b"\x80\2}(" + value(size) + b"q\x000" + before
    return archive(made + b"h\0" * ((size - len(made) - 600) // 2) + after + b"u.")


def half_text(size: int) -> bytes:
    return text("a" * (size // 2))


bomb("key-of-texts", partial(shared_value, half_text, b"(", b"tN"), "x.pth")
bomb("key-of-numbers", partial(shared_value, long_number, b"(", b"tN"), "x.pth")
bomb("list-of-numbers", partial(shared_value, long_number, text("k") + b"](", b"e"), "x.pth")


def numbers_by_key(size: int) -> bytes:
    """Return a dictionary whose values are all one long number."""
    made = b"\x80\2}(" + long_number(size) + b"q\x000"
    pairs = filled(lambda i: b"M" + struct.pack("<H", i) + b"h\0", size - len(made) - 600)
    return archive(made + pairs + b"u.")


bomb("numbers-by-key", numbers_by_key, "x.pth")

_DEVICE = b"ctorch\ndevice\nq\1(" + text("cpu") + b"tq\2"


def long_names_of_nothing(size: int) -> bytes:
    """Return objects without any attribute in a tree of a long name."""
    made = b"\x80\2(" + b"}" * (size // 2) + b"1}(" + text("k" * (size // 3)) + _DEVICE + b"R}bq\0"
    for level in (3, 4, 5):
        made += b"0](" + b"h%c" % (level - 1 if level > 3 else 0) * 100 + b"eq%c" % level
    return archive(made + b"u.")


bomb("long-names-of-nothing", long_names_of_nothing, "x.pth")


def shared_state(size: int) -> bytes:
    """Return objects whose attributes are one dictionary."""
    pairs = filled(lambda i: b"M" + struct.pack("<H", i) + b"N", size // 3)
    made = b"\x80\2}(" + pairs + b"uq\x000" + _DEVICE + b"]("
    return archive(made + filled(b"h\1h\2Rh\0b", size - len(made) - 600) + b"e.")


bomb("shared-state", shared_state, "x.pth")
bomb(
    "names",
    lambda size: archive(
        b"\x80\x02"
        + b"".join(b"}" + text("k" * (size // 250)) for _ in range(120))
        + b"K\1"
        + b"s" * 120
        + b"."
    ),
    "x.pth",
)
bomb(
    "names-often",
    lambda size: archive(
        b"\x80\x02}"
        + text("k" * (size // 2))
        + b"}("
        + filled(lambda i: text(str(i)) + b"N", size // 2 - 600)
        + b"us."
    ),
    "x.pth",
)

# --- safetensors --------------------------------------------------------------------------------


def header(unit: Callable[[int], str], size: int) -> bytes:
    """Return a header of many entries, whatever they are."""
    return b"{" + filled(lambda i: unit(i).encode() + b",", size - 20)[:-1] + b"}"


def entries(name: str, unit: Callable[[int], str], data: bytes = b"") -> None:
    bomb(name, lambda size: file_bytes(header(unit, size - len(data)), data), "x.safetensors")


def entry(name: str, dtype: str, shape: str, start: int = 0, end: int = 0) -> str:
    return f'"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{start},{end}]}}'


entries("empty-tensors", lambda i: entry(f"{i}", "U8", "0"))
entries("empty-fp8", lambda i: entry(f"{i}.weight", "F8_E4M3", "0,0"))
entries(
    "scaled-fp8",
    lambda i: entry(f"a{i // 2}.weight{'_scale' * (i % 2)}", ("F8_E4M3", "F32")[i % 2], "0,0"),
)
entries("scales", lambda i: entry(f"a{i}.weight_scale", "F32", "0"))
entries("one-stem", lambda i: entry(f"{'a.' * 20}{i}.weight_scale", "F32", "0"))
entries("suffixes", lambda i: entry(f"a{'.weight_scale' * (i + 1)}", "F32", "0"))
entries("prefixes", lambda i: entry(f"{'a.' * i}weight", "F8_E4M3", "0"))
entries(
    "qweights",
    lambda i: entry(
        f"a{i // 4}.{('qweight', 'qzeros', 'scales', 'g_idx')[i % 4]}",
        ("I32", "I32", "F16", "I32")[i % 4],
        "0,0"[: 3 - 2 * (i % 4 == 3)],
    ),
)
entries(
    "absmax",
    lambda i: entry(
        f"a{i // 3}.weight{('', '.absmax', '.quant_map')[i % 3]}", ("U8", "F32", "F32")[i % 3], "0"
    ),
)
entries(
    "blocks",
    lambda i: entry(f"a{i // 2}_{('blocks', 'scales')[i % 2]}", "U8", "0,0,0,0"[: 7 - 2 * (i % 2)]),
)
entries(
    "packed",
    lambda i: entry(
        f"a{i // 3}.weight_{('packed', 'scale', 'shape')[i % 3]}",
        ("I32", "F16", "I64")[i % 3],
        "0,0",
    ),
)
entries("experts", lambda i: entry(f"layers.0.experts.{i}.w1.weight", "F8_E4M3", "0,0"))
entries("huge-and-empty", lambda i: entry(f"{i}", "U8", "9223372036854775807,0"))
entries("escapes", lambda i: entry("\\u0061" * 20 + f"{i}", "U8", "0"))
entries("surrogates", lambda i: entry("\\ud83d\\ude00" * 10 + f"{i}", "U8", "0"))
entries("same-name", lambda i: entry("a", "U8", "0"))
entries("zeros", lambda i: entry(f"{i}", "U8", "0," * 50 + "0"))
entries("small", lambda i: entry(f"{i}", "U8", "1", i, i + 1), bytes(900))
for name, body in (
    ("long-name", lambda n: entry("a" * n, "U8", "0")),
    ("long-dotted", lambda n: entry("a." * (n // 2) + "weight", "F8_E4M3", "0")),
    ("long-digits", lambda n: entry("layers." + "1" * n, "F8_E4M3", "0")),
    ("long-shape", lambda n: entry("a", "U8", "1," * (n // 2) + "0")),
    ("long-dtype", lambda n: entry("a", "F" * n, "0")),
    ("long-number", lambda n: entry("a", "U8", "9" * n)),
    ("long-float", lambda n: entry("a", "U8", "1." + "9" * n)),
    ("long-exponent", lambda n: entry("a", "U8", "1e" + "9" * n)),
    ("long-minus", lambda n: entry("a", "U8", "-" * n)),
    ("spaces", lambda n: " " * n + entry("a", "U8", "0")),
    ("spaces-inside", lambda n: entry("a", "U8", " " * n + "0")),
    ("deep", lambda n: '"a":' + "[" * n),
    ("deep-closed", lambda n: '"a":' + "[" * (n // 2) + "]" * (n // 2)),
    ("deep-dicts", lambda n: '"a":' * (n // 4)),
    ("metadata", lambda n: '"__metadata__":{"a":"' + "x" * n + '"}'),
    (
        "metadata-keys",
        lambda n: (
            '"__metadata__":{' + filled(lambda i: f'"{i}":"",'.encode(), n).decode()[:-1] + "}"
        ),
    ),
    ("metadata-escapes", lambda n: '"__metadata__":{"a":"' + "\\u001b" * (n // 6) + '"}'),
    ("comfy-deep", lambda n: '"__metadata__":{"_quantization_metadata":"' + "[" * n + '"}'),
    (
        "comfy-layers",
        lambda n: (
            '"__metadata__":{"_quantization_metadata":'
            + json.dumps(
                '{"layers":{'
                + filled(lambda i: f'"{i}":{{"format":"x"}},'.encode(), n // 2).decode()[:-1]
                + "}}"
            )
            + "}"
        ),
    ),
    ("comfy-number", lambda n: '"__metadata__":{"_quantization_metadata":"' + "9" * n + '"}'),
):
    bomb(name, lambda n, body=body: file_bytes("{" + body(n - 150) + "}"), "x.safetensors")


def one_weight(size: int, shape: tuple[int, int], scale: tuple[int, int], suffix: str) -> bytes:
    dtype, data = "F8_E4M3", bytes([0x38]) * prod(shape)
    scales = struct.pack("<f", 1) * prod(scale)
    return safetensors_bytes(
        {"a.weight": (dtype, shape, data), f"a.{suffix}": ("F32", scale, scales)}
    )


bomb("row", lambda n: one_weight(n, (1, n - 500), (1, 1), "weight_scale"), "x.safetensors")
bomb("column", lambda n: one_weight(n, (n // 6, 1), (n // 6, 1), "weight_scale"), "x.safetensors")
bomb(
    "grid",
    lambda n: one_weight(n, (n // 600, 100), (n // 600, 100), "weight_scale_inv"),
    "x.safetensors",
)


def bnb_state(size: int, told: str) -> bytes:
    return safetensors_bytes(
        {
            "a.weight": ("U8", (32, 1), bytes(32)),
            "a.weight.absmax": ("F32", (1,), bytes(4)),
            "a.weight.quant_map": ("F32", (16,), bytes(64)),
            "a.weight.quant_state.bitsandbytes__nf4": ("U8", (len(told),), told.encode()),
        }
    )


for name, told in (
    ("deep", lambda n: "[" * n),
    ("number", lambda n: '{"blocksize":' + "9" * n + "}"),
    (
        "shape",
        lambda n: (
            '{"quant_type":"nf4","blocksize":64,"dtype":"float16","shape":['
            + "1," * (n // 2)
            + "64]}"
        ),
    ),
    (
        "huge",
        lambda n: (
            '{"quant_type":"nf4","blocksize":64,"dtype":"float16","shape":[9223372036854775807,9223372036854775807]}'
        ),
    ),
    ("keys", lambda n: "{" + filled(lambda i: f'"{i}":0,'.encode(), n).decode()[:-1] + "}"),
):
    bomb(f"bnb-{name}", lambda n, told=told: bnb_state(n, told(n - 900)), "x.safetensors")

# --- GGUF ---------------------------------------------------------------------------------------


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

# --- ZIP and NumPy ------------------------------------------------------------------------------


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

# --- directories --------------------------------------------------------------------------------

ONE = safetensors_bytes({"a.weight": ("F8_E4M3", (2, 2), b"8888"), "b": ("F32", (1,), bytes(4))})
INDEX = "model.safetensors.index.json"


def beside(name: str, file: str, make: Callable[[int], bytes]) -> None:
    """Add a model with a file beside it."""
    BOMBS[name] = lambda n: {"model.safetensors": ONE, file: make(n - 300)}


for file in ("config.json", INDEX, "hf_quant_config.json", "quantize_config.json"):
    for name, body in (
        ("deep", lambda n: b"[" * n),
        ("deep-closed", lambda n: b'{"a":' * (n // 6) + b"1" + b"}" * (n // 6)),
        ("lists", lambda n: b'{"a":[' + filled(b"[],", n)[:-1] + b"]}"),
        ("dicts", lambda n: b'{"a":[' + filled(b"{},", n)[:-1] + b"]}"),
        ("keys", lambda n: b"{" + filled(lambda i: b'"%d":0,' % i, n)[:-1] + b"}"),
        ("number", lambda n: b'{"a":' + b"9" * n + b"}"),
        ("string", lambda n: b'{"a":"' + b"\\u0000" * (n // 6) + b'"}'),
        ("spaces", lambda n: b" " * n + b"{}"),
        ("deep-60", lambda n: b'{"a":[' + filled(b"[" * 60 + b"]" * 60 + b",", n)[:-1] + b"]}"),
    ):
        beside(f"{file}-{name}", file, body)
CONFIG = b'{"quantization_config":{"quant_method":%s}}'
for name, body in (
    (
        "not-converted",
        lambda n: (
            b'"fp8","modules_to_not_convert":[' + filled(lambda i: b'"%d",' % i, n - 90)[:-1] + b"]"
        ),
    ),
    (
        "not-converted-long",
        lambda n: b'"fp8","modules_to_not_convert":["' + b"a." * (n // 2 - 50) + b'"]',
    ),
    (
        "not-converted-regex",
        lambda n: b'"fp8","modules_to_not_convert":["' + b"(a+)+" * 20 + b'$"]',
    ),
    (
        "dynamic",
        lambda n: (
            b'"gptq","bits":4,"dynamic":{'
            + filled(lambda i: b'"-:(a+)+%d$":{},' % i, n - 90)[:-1]
            + b"}"
        ),
    ),
    (
        "groups",
        lambda n: (
            b'"compressed-tensors","config_groups":{'
            + filled(
                lambda i: b'"%d":{"targets":["re:(a+)+$"],"weights":{"num_bits":8}},' % i, n - 90
            )[:-1]
            + b"}"
        ),
    ),
    (
        "ignore",
        lambda n: (
            b'"compressed-tensors","ignore":['
            + filled(lambda i: b'"re:.*(a|aa)+%d",' % i, n - 90)[:-1]
            + b"]"
        ),
    ),
):
    beside(f"config-{name}", "config.json", lambda n, body=body: CONFIG % body(n))


def many_weights(config: bytes) -> Callable[[int], Files]:
    """Return FP8 weights with a config that has something to say of each."""

    def make(n: int) -> Files:
        name = "a" * 24
        data = file_bytes(header(lambda i: entry(f"{name}.{i}.weight", "F8_E4M3", "0,0"), n // 2))
        return {"model.safetensors": data, "config.json": filled_in(config, n // 2)}

    return make


def filled_in(pattern: bytes, n: int) -> bytes:
    before, unit, after = pattern.split(b"~")
    return before + filled(lambda i: unit % i + b",", n - len(before) - len(after))[:-1] + after


for name, pattern in (
    (
        "not-converted",
        b'{"quantization_config":{"quant_method":"fp8","modules_to_not_convert":[~"%d"~]}}',
    ),
    (
        "ignored",
        b'{"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}},"ignore":[~"re:.*a%d"~]}}',
    ),
    (
        "dynamic",
        b'{"quantization_config":{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{~"+:.*a.*%d":{}~}}}',
    ),
    (
        "extra",
        b'{"quantization_config":{"quant_method":"auto-round","bits":4,"extra_config":{~"a%d":{"bits":8}~}}}',
    ),
):
    BOMBS[f"weights-and-{name}"] = many_weights(pattern)


def index_of(names: Callable[[int], str], shards: Callable[[int], str], n: int) -> bytes:
    def one(i: int) -> bytes:
        return f"{json.dumps(names(i))}:{json.dumps(shards(i))},".encode()

    return b'{"weight_map":{' + filled(one, n - 30)[:-1] + b"}}"


for name, names, shards in (
    ("shards", str, lambda i: f"{i}.safetensors"),
    ("shards-torch", str, lambda i: f"{i}.bin"),
    ("names", lambda i: f"{'a.' * 100}{i}", lambda i: "model.safetensors"),
    ("folders", str, lambda i: f"{'a/' * 500}{i}.safetensors"),
    ("parents", str, lambda i: f"{'../' * 300}{i}.safetensors"),
    ("dots", str, lambda i: f"{'./' * 300}{i}.safetensors"),
    ("missing", str, lambda i: f"model-{i:05}-of-99999.safetensors"),
):
    make = lambda n, names=names, shards=shards: index_of(names, shards, n)  # noqa: E731
    beside(f"index-{name}", INDEX, make)


def shards_of(n: int, name: str, extra_name: str = "{}") -> Files:
    """Return a model in as many files as there is room for."""
    count = n // 170
    one = {i: safetensors_bytes({extra_name.format(i): ("U8", (0,), b"")}) for i in range(count)}
    return {name.format(i + 1, count): data for i, data in one.items()}


BOMBS["shards"] = lambda n: shards_of(n, "model-{:05}-of-{:05}.safetensors")
BOMBS["shards-same-tensor"] = lambda n: shards_of(n, "model-{:05}-of-{:05}.safetensors", "a")
BOMBS["shards-unnumbered"] = lambda n: shards_of(n, "{}.safetensors")
BOMBS["shards-gguf"] = lambda n: {
    f"x-{i + 1:05}-of-{n // 400:05}.gguf": part(i, n // 400) for i in range(n // 400)
}
BOMBS["files-beside"] = lambda n: {
    "model.safetensors": ONE,
    **{f"tokenizer-{i}.json": b"{}" for i in range(n // 100)},
}

# --- names of files -----------------------------------------------------------------------------

for i, name in enumerate(
    (
        "m-fp8" + "-scaled" * 30 + "-x",
        "m" + "-e4m3" * 40 + "-x",
        "m-fp8" + "-marlin" * 30 + "-x",
        "m" + "-unsloth" * 25 + "x",
        "m-w8a8" + "-e5m2fn" * 28 + "-x",
        "m" + "-q4_k_m" * 28 + "_x",
        "m" + "-auto-round" * 18 + "-x",
        "m" + "-int8_8bit.8bits" * 12 + "-x",
        "m-fp8" + "-dynamic.static_sym" * 11 + "-x",
        "m" + "-" * 200,
        "m" + "-_." * 70 + "x",
        "m-1" + "1" * 200 + "bpw-x",
        "m-g" + "1" * 200 + "-x",
        "m-00001-of-00002" * 12,
    )
):
    BOMBS[f"name-{i}"] = lambda _, name=name: {f"{name}.safetensors": ONE}

# One of each kind, to import all that the others need.
WARM = (
    *("set-opcode.pth", "many-tensors.pth", "grid.safetensors", "bnb-huge.safetensors"),
    *("qweights.safetensors", "gguf-small.gguf", "gguf-key-strings.gguf", "deflated-tall.npz"),
    *("npy-spaces.npy", "shards", "config-groups", "config-dynamic", "blocks.safetensors"),
)
