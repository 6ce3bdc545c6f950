"""Models to be written, built from a fuzzer's bytes, and what must hold of the files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structured import Choices

import anamnesis as an
from anamnesis.formats.written import make_writer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.written import EVERY_DTYPE, Stored, assert_read_back, stored, written

NAMES = (
    *(
        "a",
        "b",
        "c",
        "d",
        "a.b",
        "a/b",
        "a.npy",
        "a.npy.npy",
        ".npy",
        " ",
        "é",
        "\U0001f600",
        "a\nb",
    ),
    *("..a", ".", "file", "cpu", "storage", "0", "'\"", "x" * 63, "C", "data.pkl", "__class__"),
)
ODD_NAMES = (
    *("", "..", "a/..", "../a", "/a", "\\a", "C:a", "a\0b", "\ud800", "\udcff", "x" * 64, "é" * 40),
    *("x" * 300, "__metadata__"),
)
DIMS = (*range(6), 1, 1, 2, 31, 32, 33)
MOST_BYTES = 6_000  # of one tensor
MOST_IN_ALL = 1 << 20


def model(choices: Choices, id: str) -> list[Stored]:
    """Return tensors that a writer mostly takes, and mostly none of the name of another."""
    writer = make_writer(id)
    held = [dtype for dtype in EVERY_DTYPE.values() if writer.holds(dtype)]
    parts = []
    for _ in range(choices.below(8)):
        is_odd = choices.below(64)
        name = choices.pick(ODD_NAMES if is_odd == 1 else NAMES)
        dtype = choices.pick(tuple(EVERY_DTYPE.values()) if is_odd == 2 else held)
        shape = [choices.pick(DIMS) for _ in range(choices.below(10 if is_odd == 3 else 5))]
        while dtype.block_bytes * 2 ** sum(dim.bit_length() for dim in shape) > MOST_BYTES:
            shape.pop()
        parts.append(stored(name, dtype, shape, choices.below(256)))
    if choices.below(8):
        parts = list({made.part.name: made for made in parts}.values())
    return parts


def check_written(id: str, parts: list[Stored], metadata: Mapping[str, Any]) -> bytes | None:
    """Write, and read back by our parser; return the file, None if the writer refuses."""
    try:
        n_bytes = make_writer(id).lay_out([made.part for made in parts], metadata).n_bytes
    except an.UnsupportedError:
        return None
    if n_bytes > MOST_IN_ALL:  # an alignment of gigabytes
        return None
    raw = written(make_writer(id), parts, metadata)
    assert written(make_writer(id), parts, metadata) == raw
    with an.parse(raw) as read:
        assert_read_back(read, parts)
    return raw
