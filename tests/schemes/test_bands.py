"""Bands tile a weight in order, none crosses an edge, and they are counted without being made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anamnesis.schemes.base import Bands, cut

SIZES = st.integers(0, 40)
COUNTS = st.integers(1, 50)


def check(bands: Bands, batch: int, rows: int, cols: int) -> None:
    found = list(bands)
    assert len(bands) == len(found)
    assert [band for run in bands.runs() for band in run] == found
    ends = [0, *(band.stop for band in found)]
    assert [band.start for band in found] == ends[:-1]
    assert ends[-1] == batch * rows * cols
    for band in found:
        assert band.start < band.stop
        first, col = divmod(band.start, cols)
        last = (band.stop - 1) // cols
        assert first // rows == last // rows  # of one matrix
        if first != last:
            assert col == 0
            assert band.stop % cols == 0


@given(SIZES, SIZES, COUNTS, st.integers(1, 8), st.integers(0, 4))
def test_cut(rows: int, cols: int, n_elements: int, step: int, batch: int) -> None:
    bands = cut(rows, cols, n_elements, step=step, batch=batch)
    check(bands, batch if rows * cols else 0, rows, cols)
    for band in bands:
        assert band.stop - band.start <= max(n_elements, step)
        assert band.start % cols % step == 0 or cols <= n_elements


@given(SIZES, SIZES, COUNTS, COUNTS)
def test_stripes(rows: int, cols: int, band_rows: int, stripe: int) -> None:
    bands = Bands(rows, cols, band_rows, max(cols, 1), stripe=stripe)
    check(bands, 1 if rows * cols else 0, rows, cols)
    for run in bands.runs():
        first, last = run[0].start // cols, (run[-1].stop - 1) // cols
        assert first % stripe == 0
        assert first // stripe == last // stripe
