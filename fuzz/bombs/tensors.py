"""Tensors of torch's files: strides, views, shared storages."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from functools import partial

from bombs.made import MOST, bomb, filled
from bombs.pickles import archive, text
from helpers.zip_handmade import Member

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
