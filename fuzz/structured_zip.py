"""ZIP archives and NumPy arrays built from a fuzzer's bytes; see structured.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from structured import Choices

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.zip_handmade import Member, extra, zip_bytes

NAMES = (
    *(b"a", b"b", b"a.npy", b"b.npy", b"w.npy", b"c/", b"", b"a\0b", b"../x.npy", b"\xff.npy"),
    *("é.npy".encode(), b"archive/data/0", b"x" * 300),
)
NUMBERS = (0, 1, 2, 5, 30, 46, 76, 255, 2**16 - 1, 2**31, 2**32 - 2, 2**32 - 1)
WIDE = (*NUMBERS, 2**32, 2**40, 2**63, 2**64 - 1)
FLAGS = (*(0,) * 12, 8, 8, 0x800, 0x808, 1, 2, 0x20, 0x40, 0x2000)
FIELDS = ("crc", "n_bytes", "n_compressed", "flags", "method", "n_extra", "n_name", "magic")
DESCRS = (
    *("<f4", "|b1", "<i8", ">f4", ">c8", "<c16", "<f2", "<V2", "|V2", "<V1", "<f1", "|u1", ">i2"),
    *("|O", "<U3", "<M8[ns]", "<f16", "bfloat16", "float32", "x", ">V2", "=f8", "|V3"),
)
WIDTHS = {"1": 1, "2": 2, "4": 4, "8": 8}
DIMS = (*range(6), *range(6), 2**31, 2**63, 10**18)
SCRAPS = (
    *("{", "}", "(", ")", "[", "]", ",", ":", "'", '"', "\\", "L", "-", "9", " ", "\n", "\0", "é"),
    *("'shape': ", "'descr': ", "True", "None", "[[[[[[", "(((((("),
)


def npy_file(choices: Choices) -> bytes:
    """Return an array that is valid but for its dtype, its length and scraps in its header."""
    descr = choices.pick(DESCRS)
    shape = tuple(choices.pick(DIMS) for _ in range(choices.below(4)))
    fields = [
        f"'descr': {descr!r}",
        f"'fortran_order': {choices.below(2) == 1}",
        f"'shape': {shape!r}",
    ]
    if choices.below(16) == 15:
        fields.reverse()
    text = "{" + ", ".join(fields) + ", }"
    for _ in range(max(0, choices.below(16) - 13)):
        at = choices.below(len(text) + 1)
        text = text[:at] + choices.pick(SCRAPS) + text[at + choices.below(3) :]
    version = choices.pick((1, 1, 1, 2, 3, 4))
    raw = text.encode("utf-8" if version == 3 else "latin-1", "replace")
    n = 1
    for dim in shape:
        n *= dim
    width = WIDTHS.get(descr[2:3], 4) * (2 if descr.endswith("16") else 1)
    data = choices.some(n * width) if n * width < 4096 else b""
    data = data[: max(0, len(data) - max(0, choices.below(16) - 14))]
    length = len(raw).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes((version, 0)) + length + raw + data


def _lie(choices: Choices, into: dict[str, Any]) -> None:
    name = choices.pick(FIELDS)
    if name == "magic":
        into[name] = choices.pick((b"PK\1\2", b"PK\3\4", b"PK\5\6", b"none"))
    else:
        most = 32 if name in FIELDS[:3] else 16
        into[name] = choices.pick(NUMBERS) % 2**most


def member(choices: Choices, *, arrays: bool) -> Member:
    data = npy_file(choices) if arrays and choices.below(8) else choices.some(choices.below(256))
    made = Member(choices.pick(NAMES), data, choices.pick((0, 0, 0, 8, 8)), choices.pick(FLAGS))
    if made.flags & 8:
        made.descriptor = bytes(choices.pick((12, 16, 20, 24, 16, 13)))
        made.local.update(crc=0, n_bytes=0, n_compressed=0)
    if choices.below(16) == 15:
        made.central["offset"] = choices.pick(NUMBERS)
    if choices.below(12) == 11:
        _lie(choices, choices.pick((made.local, made.central)))
    if choices.below(12) == 11:
        wide = b"".join(choices.pick(WIDE).to_bytes(8, "little") for _ in range(choices.below(4)))
        field = extra(choices.pick((1, 1, 0x7075, 0x9999)), wide)
        choices.pick((made.local, made.central))["extra"] = field
    if made.method == 8 and choices.below(16) == 15:
        raw = bytearray(made.packed())
        raw[choices.below(len(raw))] ^= 1 << choices.below(8)
        made.raw = bytes(raw)
    return made


def zip_file(choices: Choices, *, arrays: bool = False) -> bytes:
    """Return an archive that is valid but for lies in its headers, holes and odd bytes."""
    members = [member(choices, arrays=arrays) for _ in range(choices.below(6))]
    if choices.below(8):  # mostly nothing appears twice
        members = list({m.name: m for m in members}.values())
    form: dict[str, Any] = {"comment": b"c" * max(0, choices.below(16) - 12)}
    if choices.below(24) == 23:
        form["gaps"] = {choices.below(5): choices.some(choices.below(60))}
    if choices.below(24) == 23:
        form["prefix"] = choices.some(choices.below(60))
    if choices.below(12) == 11:
        form["zip64"] = {}
        if choices.below(3) == 2:
            field = choices.pick(("length", "n", "n_here", "n_bytes", "start", "located"))
            form["zip64"][field] = choices.pick(WIDE)
    if choices.below(24) == 23:
        field = choices.pick(("disk", "n", "n_here", "n_comment"))
        form["end"] = {field: choices.pick(NUMBERS) % 2**16}
    raw = bytearray(zip_bytes(members, **form))
    for _ in range(max(0, choices.below(16) - 13)):
        raw[(choices.below(256) * 256 + choices.below(256)) % len(raw)] = choices.below(256)
    return bytes(raw)
