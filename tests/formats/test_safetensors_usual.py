"""Entries spelt as writers spell them are read by C: to the same result, or the same error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from anamnesis import _parse
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.formats.registry import parse_container
from anamnesis.sources.memory import BufferSource
from helpers.handmade import file_bytes, safetensors_bytes
from helpers.safetensors_cases import DIFFERENCES, INVALID, VALID, every_dtype
from helpers.safetensors_drawn import mutated, tiled

EXAMPLES = [row.examples for row in DIFFERENCES.values()]
CASES = [*VALID.values(), *INVALID.values(), *(raw for raws in EXAMPLES for raw in raws)]


def outcome(raw: bytes, limits: ParseLimits) -> object:
    """All that parsing tells: the tensors and metadata in their order, or the error's words."""
    try:
        container = parse_container(BufferSource(raw), Budget(limits))
    except AnamnesisError as error:
        return type(error), str(error)
    tensors = [(t.name, t.dtype, t.shape, t.n_bytes, t.offset) for t in container.tensors.values()]
    return tensors, list(container.metadata.items()), container.header_bytes


def nothing_is_usual(header: bytes, pos: int, count: int) -> tuple[list[Any], int, bool]:
    return [], pos, True


def assert_same(raw: bytes) -> None:
    for most in (None, 0, 1, 2, 3):
        limits = ParseLimits(max_item_count=most)
        usual = outcome(raw, limits)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_parse, "tensor_entries", nothing_is_usual)
            assert outcome(raw, limits) == usual, raw


@pytest.mark.parametrize("raw", [*CASES, every_dtype()])
def test_cases(raw: bytes) -> None:
    assert_same(raw)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(tiled())
def test_tiled(header: tuple[str, bytes]) -> None:
    assert_same(file_bytes(*header))


@pytest.mark.slow
@settings(max_examples=800, deadline=None)
@given(mutated())
def test_mutants(raw: bytes) -> None:
    assert_same(raw)


ENTRY = '"é.a":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]}'


@pytest.mark.parametrize("scrap", [*'0}]{[",: -\\\0\t', "18446744073709551616", '"":0,'])
def test_each_position(scrap: str) -> None:
    """A scrap put in, and one character replaced by it, at each place of an entry in turn."""
    for at in range(len(ENTRY) + 1):
        for rest in (ENTRY[at:], ENTRY[at + 1 :]):
            assert_same(file_bytes(f"{{{ENTRY[:at]}{scrap}{rest}}}", bytes(4)))


def usual(text: str, count: int = 10) -> tuple[list[Any], int, bool]:
    entries, pos, another = _parse.tensor_entries(text.encode(), 0, count)
    return entries, pos, another


def test_what_is_usual() -> None:
    """Without this, all of the above could compare the general way with itself."""
    found = ("é.a", "F16", (2, 1), 0, 4, 0)
    size = len(ENTRY.encode())
    assert usual(ENTRY) == ([found], size, False)
    assert usual(f"{ENTRY} , \n}}") == ([found], size + 4, True)
    assert usual(ENTRY.replace(",", " , ").replace(":", " :\n").replace("]", " ]"))[0] == [found]
    assert usual(f"{ENTRY},{ENTRY},", 1) == ([found], size + 1, True)
    assert usual(f"{ENTRY},{ENTRY}") == ([found, (*found[:5], size + 1)], 2 * size + 1, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.replace("é", "\\u00e9"),
        lambda s: s.replace("é", "\x1f"),
        lambda s: s.replace("é.a", "__metadata__"),
        lambda s: s.replace("2,1", "02,1"),
        lambda s: s.replace("2,1", "2,1,"),
        lambda s: s.replace("2,1", "18446744073709551616"),
        lambda s: s.replace("2,1", ",".join("1" * 65)),
        lambda s: s.replace("0,4", "0,4,4"),
        lambda s: s.replace("0,4", "4"),
        lambda s: s.replace("]}", '],"more":0}'),
        lambda s: s.replace("dtype", "type"),
        lambda s: s.replace('"shape":[2,1],', ""),
        *(lambda s, n=n: s[:n] for n in range(len(ENTRY))),
    ],
)
def test_what_is_not(change: Callable[[str], str]) -> None:
    """It is left to the general way, from where it starts."""
    assert usual(change(ENTRY)) == ([], 0, True)
    assert usual(f"{ENTRY},{change(ENTRY)}")[1:] == (len(ENTRY.encode()) + 1, True)


@pytest.mark.parametrize("pos", [57, 58, 10**9])
def test_beyond_the_header(pos: int) -> None:
    assert _parse.tensor_entries(ENTRY.encode(), pos, 1) == ([], pos, True)
    assert _parse.tensor_entries(b"", pos, 1) == ([], pos, True)


def test_many() -> None:
    """More than are scanned at a time, with others between."""
    raw = safetensors_bytes(
        {f"{i}\\" if i % 7 == 0 else str(i): ("U8", [1], b"a") for i in range(2000)}
    )
    assert_same(raw)
    assert_same(raw.replace(b'{"dtype": "U8"', b'{"dtype": "I8"'))
