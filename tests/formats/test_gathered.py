"""Rows in another order are read as numpy takes them, wherever a read begins and ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import ParseError
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.sources.file import FileSource
from anamnesis.sources.gathered import GatheredSource, JoinedSource, RowOrder, RowRun, together
from anamnesis.sources.memory import BufferSource

BEFORE = 5  # bytes of the source before the rows


def stored(source: Source, n_bytes: int) -> StoredTensor:
    return StoredTensor("w", DTYPES["U8"], (n_bytes,), n_bytes, BEFORE, source)


@st.composite
def orders(draw: st.DrawFn) -> tuple[RowOrder, list[int], int]:
    """An order, the rows that it takes, and how many there are."""
    period, n_groups = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    some = st.lists(st.integers(0, period - 1), min_size=1, max_size=60)
    ends = st.lists(st.integers(0, period), min_size=2, max_size=2, unique=True).map(sorted)
    every = st.permutations(range(period))
    order = draw(some | every | ends.map(lambda ends: range(*ends)))
    rows = [group * period + row for group in range(n_groups) for row in order]
    return RowOrder.of(order, period, n_groups), rows, period * n_groups


@given(orders())
def test_an_order_is_the_rows_that_it_is_made_of(case: tuple[RowOrder, list[int], int]) -> None:
    order, rows, _ = case
    assert order.n_rows == len(rows)
    assert order.rows(0, len(rows)).tolist() == rows
    for i in range(len(rows)):
        row, left = order.at(i)
        assert row == rows[i]
        assert rows[i : i + left] == list(range(row, row + left))
    if order.start is not None:
        assert rows == list(range(order.start, order.start + len(rows)))


@given(st.lists(st.integers(0, 300), min_size=1, max_size=50), st.integers(0, 20))
def test_what_is_read_together_holds_what_is_wanted(rows: list[int], gap: int) -> None:
    spans, places = together(np.array(rows), gap)
    read = [row for span in spans for row in range(span.start, span.stop)]
    assert [read[place] for place in places] == rows
    assert len(read) == len(set(read)) <= len(set(rows)) * (gap + 1)


@settings(deadline=None)
@given(orders(), st.sampled_from([1, 2, 7, 300, 1024, 1500, 9000, 40000]), st.data())
def test_reads(case: tuple[RowOrder, list[int], int], row_bytes: int, data: st.DataObject) -> None:
    order, rows, n = case
    raw = np.random.default_rng(row_bytes).bytes(BEFORE + n * row_bytes)
    lines = np.frombuffer(raw, np.uint8)[BEFORE:].reshape(n, row_bytes)
    expected = lines[rows].tobytes()
    source = GatheredSource(stored(BufferSource(raw), n * row_bytes), row_bytes, order)
    assert source.size == len(expected)
    assert source.read(0, source.size) == expected
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    assert source.read(start, stop - start) == expected[start:stop]
    with pytest.raises(ParseError, match="ends after"):
        source.read(start, len(expected) - start + 1)


@pytest.mark.parametrize("row_bytes", [2, 600, 1024, 8192])
def test_files(row_bytes: int, tmp_path: Path) -> None:
    """Also of more rows than one call of the system fills, with others between them, and joined."""
    rng = np.random.default_rng(1)
    n = 3000
    raw = rng.bytes(BEFORE + n * row_bytes)
    path = tmp_path / "a"
    path.write_bytes(raw)
    lines = np.frombuffer(raw, np.uint8)[BEFORE:].reshape(n, row_bytes)
    for rows in (rng.permutation(n), np.arange(n - 1, -1, -2)):
        order = RowOrder.of(rows.tolist(), n, 1)
        with FileSource(path) as file:
            tensor = stored(file, n * row_bytes)
            for whole in (tensor, halved(tensor, 1400 * row_bytes)):
                source = GatheredSource(whole, row_bytes, order)
                assert source.read(0, source.size) == lines[rows].tobytes()


def halved(tensor: StoredTensor, at: int) -> StoredTensor:
    """Return the same bytes, joined of two pieces."""
    first = tensor._replace(n_bytes=at)
    second = tensor._replace(offset=tensor.offset + at, n_bytes=tensor.n_bytes - at)
    return tensor._replace(source=JoinedSource([first, second]), offset=0)


def test_runs_of_several_tensors() -> None:
    """Rows of two in turn, of different numbers."""
    raw = np.arange(BEFORE + 100, dtype=np.uint8)
    order = RowOrder((RowRun(0, 2, 2), RowRun(40, 3, 3)), 20)
    source = GatheredSource(stored(BufferSource(raw), 100), 1, order)
    first, second = raw[BEFORE:][:40].reshape(20, 2), raw[BEFORE:][40:].reshape(20, 3)
    assert source.read(0, 100) == np.hstack([first, second]).tobytes()


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(BEFORE + 64 * 2048))
    order = RowOrder.of(list(range(63, -1, -1)), 64, 1)
    with FileSource(path) as file:
        source = GatheredSource(stored(file, 64 * 2048), 2048, order)
        path.write_bytes(bytes(30 * 2048))
        with pytest.raises(ParseError, match="was cut while it was read"):
            source.read(0, source.size)


def test_a_file_that_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(BEFORE + 64 * 2048))
    order = RowOrder.of(list(range(63, -1, -1)), 64, 1)
    file = FileSource(path)
    source = GatheredSource(stored(file, 64 * 2048), 2048, order)
    file.close()
    with pytest.raises(ValueError, match="the file is closed"):
        source.read(0, source.size)
