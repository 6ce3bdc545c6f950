"""CRC-32 as zlib has it, of whole bytes and of pieces in any order; members that are damaged."""

from __future__ import annotations

import random
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis import _io
from anamnesis.base.crc import Run, RunsRead, combined, crc32, share
from anamnesis.sources.checked import CheckedSource
from anamnesis.sources.memory import BufferSource
from anamnesis.sources.open import open_source
from helpers.npy_cases import array, npy
from helpers.zip_handmade import Member, zip_bytes


def test_crc_of_every_short_length_and_alignment() -> None:
    data = memoryview(random.Random(1).randbytes(400))
    for start in range(17):
        for stop in range(start, len(data)):
            assert crc32(data[start:stop]) == zlib.crc32(data[start:stop])


def test_shares_of_parts_in_any_order() -> None:
    rng = random.Random(3)
    data = memoryview(rng.randbytes(300_000))
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(50))})
    runs = list(pairwise(cuts))
    rng.shuffle(runs)
    whole = 0
    for start, stop in runs:
        whole ^= share(crc32(data[start:stop]), len(data) - stop)
    assert whole == zlib.crc32(data)
    # of what is too long to be made: the zeros behind it, a gigabyte at a time
    behind = zlib.crc32(b"x")
    for _ in range(70):
        behind = share(behind, 1 << 30)
    assert share(zlib.crc32(b"x"), 70 << 30) == behind


@pytest.mark.parametrize("bits", _io.CRC32_BITS)
def test_crc_of_every_short_length_at_each_width(bits: int) -> None:
    data = memoryview(random.Random(5).randbytes(700))
    for stop in range(len(data)):
        assert _io.crc32(data[:stop], 0x12345678, bits) == zlib.crc32(data[:stop], 0x12345678)


def test_crc_is_refused_at_other_widths() -> None:
    with pytest.raises(ValueError, match="bits must be one of"):
        _io.crc32(b"", 0, 32)


def test_files_are_summed_up_as_they_are_read(tmp_path: Path) -> None:
    """Across the borders of slices; by file, by memory; to the end, and beyond it."""
    data = random.Random(6).randbytes(300_001)
    path = tmp_path / "file"
    path.write_bytes(data)
    for where in (path, data):
        with open_source(where) as source:
            for start, stop in (
                (0, 300_001),
                (1, 131_073),
                (7, 262_151),
                (300_000, 300_001),
                (5, 5),
            ):
                view = memoryview(bytearray(stop - start))
                assert source.read_summed(start, view) == zlib.crc32(data[start:stop])
                assert view == data[start:stop]
            with pytest.raises(an.ParseError, match="ends after 300,001 bytes, 2 more are needed"):
                source.read_summed(299_998, memoryview(bytearray(5)))


def test_crc_goes_on_from_another() -> None:
    rng = random.Random(2)
    for _ in range(1000):
        data = rng.randbytes(rng.randrange(3000))
        at = rng.randrange(len(data) + 1)
        first, second = zlib.crc32(data[:at]), zlib.crc32(data[at:])
        assert crc32(memoryview(data)[at:], first) == zlib.crc32(data)
        assert combined(first, second, len(data) - at) == zlib.crc32(data)


def test_crcs_of_long_runs() -> None:
    """Zeros by doubling, against zlib's from beginning to end."""
    zeros = bytes(1 << 20)
    crc, want = zlib.crc32(zeros), 0
    for power in range(20, 26):
        crc = combined(crc, crc, 1 << power)
    for _ in range(64):
        want = zlib.crc32(zeros, want)
    assert crc == want


def test_runs_that_meet_and_overlap_count_once() -> None:
    rng = random.Random(3)
    data = memoryview(rng.randbytes(500))
    for _ in range(300):
        read = RunsRead()
        covered = bytearray(len(data))
        while not all(covered):
            start = rng.randrange(len(data))
            stop = rng.randrange(start, min(start + 120, len(data)) + 1)
            read.add(Run(start, stop, zlib.crc32(data[start:stop])), data[start:stop])
            covered[start:stop] = b"\1" * (stop - start)
            for run in read.runs:
                assert run.start < run.stop
                assert run.crc == zlib.crc32(data[run.start : run.stop])
            assert bytes(covered).count(1) == sum(run.stop - run.start for run in read.runs)
        assert read.runs == [Run(0, len(data), zlib.crc32(data))]


def test_a_source_is_checked_by_its_last_byte_in_any_order() -> None:
    data = random.Random(4).randbytes(700_000)
    for crc, is_right in ((zlib.crc32(data), True), (1, False)):
        source = CheckedSource(BufferSource(b"before" + data + b"after"), "m", 6, 700_006, crc)
        for at in range(600_000, 0, -100_000):
            assert source.read(6 + at, 100_000) == data[at : at + 100_000]
        for _ in range(2):  # and again
            if is_right:
                assert source.read(6, 100_001) == data[:100_001]
            else:
                with pytest.raises(an.ParseError, match="'m' is damaged: its CRC is wrong"):
                    source.read(6, 100_001)
        with pytest.raises(an.ParseError, match="ends after"):
            source.read(700_000, 7)


def damaged(values: np.ndarray) -> bytes:
    """Return an archive of an array whose last byte is not what its CRC says."""
    data = npy(values)
    return zip_bytes([Member(b"w.npy", data, raw=data[:-1] + bytes([data[-1] ^ 1]))])


ARRAYS = {
    "as it lies": array((700, 1000), "f4"),
    "column-major": np.asfortranarray(array((700, 1000), "f4")),
    "column-major, in strips": np.asfortranarray(array((2200, 1000), "f4")),
    "big-endian": array((700, 1000), "f4", ">"),
    "a scalar": array((), "f8"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_damaged_member_is_refused(name: str, tmp_path: Path) -> None:
    with an.parse(damaged(ARRAYS[name])) as model:
        for _ in range(2):
            with pytest.raises(an.ParseError, match="CRC"):
                model["w"].numpy()
    source, out = tmp_path / "in.npz", tmp_path / "out.safetensors"
    source.write_bytes(damaged(ARRAYS[name]))
    for resume in (False, True, True):  # what an earlier run has written is no excuse
        with an.parse(source) as model, pytest.raises(an.ParseError, match="CRC"):
            model.remember(out, threads=2, resume=resume)
        assert not out.exists()


def test_what_an_earlier_run_has_read_is_read_again(tmp_path: Path) -> None:
    """A damaged band that was written before a run was killed is found by the run that resumes."""
    source, out = tmp_path / "in.npz", tmp_path / "out.safetensors"
    data = npy(array((3000, 1000), "f4"))
    source.write_bytes(zip_bytes([Member(b"w.npy", data, raw=data[:500] + b"\1" + data[501:])]))

    class Killed(BaseException):
        pass

    def kill(n_done: int, _: int) -> None:
        if n_done > 5_000_000:
            raise Killed

    with an.parse(source) as model, pytest.raises(Killed):
        model.remember(out, threads=1, progress=kill)
    with an.parse(source) as model, pytest.raises(an.ParseError, match="CRC"):
        model.remember(out, threads=1, resume=True)
    assert not out.exists()


def test_a_damaged_header_is_refused_as_soon_as_no_data_follows() -> None:
    with pytest.raises(an.ParseError, match="CRC"):
        an.parse(
            zip_bytes(
                [Member(b"w.npy", npy(array((0,), "f4")), local={"crc": 1}, central={"crc": 1})]
            )
        )
