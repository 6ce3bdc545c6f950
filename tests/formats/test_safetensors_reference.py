"""What the installed `safetensors` takes, and what it refuses, run for real on the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize, safe_open

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import Budget
from anamnesis.formats.registry import parse_container
from anamnesis.formats.safetensors.read import SAFETENSORS_MAX_DIMS
from anamnesis.sources.memory import BufferSource
from helpers.handmade import file_bytes, safetensors_bytes
from helpers.safetensors_cases import (
    BITS,
    DIFFERENCES,
    INVALID,
    MAX_DIMS,
    VALID,
    Difference,
    every_dtype,
    one,
)
from helpers.safetensors_drawn import mutated, tiled

Content = dict[str, tuple[str, tuple[int, ...], bytes]]  # name -> dtype, shape, bytes


def ours(raw: bytes) -> Content | None:
    """What this project reads, None if it refuses."""
    try:
        container = parse_container(BufferSource(raw), Budget())
    except AnamnesisError:
        return None
    return {t.name: (t.dtype.name, t.shape, t.read()) for t in container.tensors.values()}


def reference(raw: bytes) -> Content | None:
    """What the reference reads, None if it refuses."""
    try:
        found = deserialize(raw)
    except SafetensorError:
        return None
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found}


def assert_agreement(raw: bytes) -> None:
    """Same verdict and content, unless a row of the table of differences applies."""
    mine, theirs = ours(raw), reference(raw)
    if mine is None and theirs is not None:
        assert any(row.applies(raw) for row in DIFFERENCES.values()), raw
    else:
        assert mine == theirs, raw


def test_dtypes_are_those_of_the_reference() -> None:
    with pytest.raises(SafetensorError, match="unknown variant") as raised:
        deserialize(one(dtype="none"))
    told = re.findall(r"`([A-Z0-9_]+)`", str(raised.value))
    assert set(told) == set(DTYPES) == set(BITS)
    assert {name: dtype.bits for name, dtype in DTYPES.items()} == BITS


def test_every_dtype() -> None:
    content = ours(every_dtype())
    assert content is not None
    assert len(content) == 3 * len(BITS)
    assert content == reference(every_dtype())


@pytest.mark.parametrize("raw", VALID.values(), ids=VALID)
def test_both_accept(raw: bytes) -> None:
    content = ours(raw)
    assert content is not None
    assert content == reference(raw)


@pytest.mark.parametrize("raw", VALID.values(), ids=VALID)
def test_metadata(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw)
    container = parse_container(BufferSource(raw), Budget())
    with safe_open(path, framework="numpy") as reader:
        assert container.metadata == (reader.metadata() or {})
        assert set(container.tensors) == set(reader.keys())


@pytest.mark.parametrize("raw", INVALID.values(), ids=INVALID)
def test_both_refuse(raw: bytes) -> None:
    assert reference(raw) is None
    assert ours(raw) is None


@pytest.mark.parametrize("row", DIFFERENCES.values(), ids=DIFFERENCES)
def test_deliberate_differences(row: Difference) -> None:
    for raw in row.examples:
        assert reference(raw) is not None
        assert ours(raw) is None
        assert row.applies(raw)


def test_no_difference_applies_to_what_both_accept() -> None:
    for raw in (*VALID.values(), every_dtype()):
        assert not [name for name, row in DIFFERENCES.items() if row.applies(raw)]
    assert MAX_DIMS == SAFETENSORS_MAX_DIMS


# --- mutants --------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(tiled())
def test_tiled(header: tuple[str, bytes]) -> None:
    assert_agreement(file_bytes(*header))


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(mutated())
def test_mutants(raw: bytes) -> None:
    assert_agreement(raw)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64))
def test_random_bytes(raw: bytes) -> None:
    assert_agreement(raw)


@pytest.mark.parametrize("scrap", ["0", "}", "]", '"', ",", " ", "-", "\\", "\0"])
def test_each_position(scrap: str) -> None:
    """A scrap put in, and one character replaced by it, at each place of a header in turn."""
    raw = safetensors_bytes({"a": ("F16", [2, 1], b"abcd"), "b": ("F4", [2], b"e")}, {"k": "v"})
    size = 8 + int.from_bytes(raw[:8], "little")
    text, data = raw[8:size].decode(), raw[size:]
    for at in range(len(text)):
        assert_agreement(file_bytes(text[:at] + scrap + text[at:], data))
        assert_agreement(file_bytes(text[:at] + scrap + text[at + 1 :], data))
        assert_agreement(file_bytes(text[:at], text[at:].encode() + data))
