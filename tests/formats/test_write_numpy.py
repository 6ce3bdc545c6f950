"""NPZ and NPY as numpy writes them, to the byte, and as it reads them."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import anamnesis as an
from anamnesis.base.dtypes import ALL_DTYPES, DTYPES
from anamnesis.base.stored import Part
from anamnesis.formats.numpy.write import NpyWriter, NpzWriter
from helpers.written import Stored, every_part, stored, write_sparse, written

F32, BF16 = DTYPES["F32"], DTYPES["BF16"]
MODEL = every_part(NpzWriter())
BY_NAME = ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ")  # not as numpy saves them
NUMPYS = [made for made in MODEL if made.part.dtype.name not in BY_NAME]

# Python's zipfile wrote another header for members that may pass 4 GiB, as `savez` has them all.
as_savez = pytest.mark.skipif(sys.version_info < (3, 11, 4), reason="zipfile before Python 3.11.4")


def array(made: Stored) -> npt.NDArray[Any]:
    assert made.data is not None
    return np.frombuffer(made.data, made.part.dtype.numpy()).reshape(made.part.shape)


def by_numpy(model: list[Stored]) -> bytes:
    out = io.BytesIO()
    arrays: dict[str, Any] = {made.part.name: array(made) for made in model}
    np.savez(out, **arrays)
    return out.getvalue()


def npy_by_numpy(made: Stored) -> bytes:
    out = io.BytesIO()
    np.save(out, array(made))
    return out.getvalue()


def assert_same(found: bytes, wanted: bytes) -> None:
    is_same = found == wanted  # pytest takes a minute to show how megabytes differ
    assert is_same


@as_savez
def test_bytes_of_savez() -> None:
    assert {made.part.dtype.name for made in NUMPYS} == {
        name for name, dtype in ALL_DTYPES.items() if dtype.numpy_name
    } - {*BY_NAME}
    assert_same(written(NpzWriter(), NUMPYS), by_numpy(NUMPYS))


@as_savez
def test_bytes_of_savez_in_other_cases() -> None:
    names = ["é", "\U0001f600/x", "a/b", "a.b", "", " ", "a\nb", "x" * 300]
    for model in ([], [stored(name, F32, (2,)) for name in names]):
        assert_same(written(NpzWriter(), model), by_numpy(model))


@as_savez
@pytest.mark.slow
def test_bytes_of_savez_of_more_members_than_two_bytes_count() -> None:
    model = [stored(str(i), DTYPES["U8"], (1,)) for i in range(65_536)]
    assert_same(written(NpzWriter(), model), by_numpy(model))


def test_bytes_of_save() -> None:
    for made in NUMPYS:
        assert written(NpyWriter(), [made]) == npy_by_numpy(made), made.part.name
    large = Stored(Part("x", F32, (0, 2**40, *(1,) * 62)), b"")
    assert written(NpyWriter(), [large]) == npy_by_numpy(large)


def test_numpy_reads_it() -> None:
    with np.load(io.BytesIO(written(NpzWriter(), MODEL))) as loaded:
        assert loaded.files == [made.part.name for made in MODEL]
        for made in MODEL:
            found, wanted = loaded[made.part.name], array(made)
            if made.part.dtype is BF16:
                found = found.view(ml_dtypes.bfloat16)
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            assert found.tobytes() == made.data


def test_numpy_alone_reads_bf16(tmp_path: Path) -> None:
    """A program that does not know ml_dtypes gets the bytes."""
    path = tmp_path / "m.npz"
    path.write_bytes(written(NpzWriter(), [stored("a", BF16, (2, 3))]))
    code = f"import numpy; print(numpy.load({str(path)!r})['a'].dtype.str)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "|V2\n"


def test_every_crc_is_right() -> None:
    with zipfile.ZipFile(io.BytesIO(written(NpzWriter(), MODEL))) as archive:
        assert archive.testzip() is None


def test_a_wrong_sum_is_noticed() -> None:
    """The CRCs are those that `finish` is given."""
    writer = NpzWriter()
    layout = writer.lay_out([Part("a", F32, (2,))], {})
    out = bytearray(layout.n_bytes)
    for at, raw in (*layout.fixed, *writer.finish([1])):
        out[at : at + len(raw)] = raw
    with np.load(io.BytesIO(out)) as loaded, pytest.raises(zipfile.BadZipFile, match="CRC"):
        loaded["a"]


def test_offsets_over_4_gib(tmp_path: Path) -> None:
    last = stored("last", F32, (3, 5))
    path = tmp_path / "m.npz"
    write_sparse(path, NpzWriter(), [Stored(Part("long", F32, (5 << 28,)), None), last])
    with np.load(path) as loaded:
        assert loaded["last"].tobytes() == last.data
    single = Stored(Part("long", F32, (5 << 28, 1)), None)
    write_sparse(tmp_path / "m.npy", NpyWriter(), [single])
    mapped = np.load(tmp_path / "m.npy", mmap_mode="r")
    assert mapped.shape == (5 << 28, 1)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (Part("a", DTYPES["F4"], (2,)), "numpy cannot store F4"),
        (Part("a", F32, (1,) * 65), "at most 64 dimensions, not 65"),
        (Part("a", F32, (2**24, 2**25)), "at most 281,474,976,710,656 elements"),
        (Part("a\0b", F32, ()), "NUL"),
        (Part("\ud800", F32, ()), "surrogate"),
        (Part("x" * 65_532, F32, ()), "65,532 bytes"),
        *[
            (Part(name, F32, ()), "outside of the folder")
            for name in (
                *("/a", "\\a", "..", "../a", "a/..", "a/../b", "a\\..\\b", "C:a", "c:\\a"),
                *("..\\a", "/", "a\n/../b"),
            )
        ],
    ],
)
def test_refused_parts(part: Part, why: str) -> None:
    told = NpzWriter().refuses(part)
    assert told is not None
    assert why in told
    with pytest.raises(an.UnsupportedError, match="tensor "):
        NpzWriter().lay_out([part], {})


@pytest.mark.parametrize("name", ["..a", "a..", "a/...", "...", "a/b", ".", "file", "ab:c"])
def test_names_that_stay_in_the_folder(name: str, tmp_path: Path) -> None:
    raw = written(NpzWriter(), [stored(name, F32, (2,))])
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        archive.extractall(tmp_path / "in")
    (found,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert found.relative_to(tmp_path / "in").as_posix() == f"{name}.npy"
    with np.load(io.BytesIO(raw)) as loaded:
        assert loaded[name].shape == (2,)


def test_names_that_numpy_cannot_tell_apart() -> None:
    """`loaded["a.npy"]` is the array `a`."""
    parts = [Part("a.npy", F32, (1,)), Part("a", F32, (2,))]
    with pytest.raises(an.UnsupportedError, match=r"'a' and 'a\.npy'"):
        NpzWriter().lay_out(parts, {})
    assert NpzWriter().lay_out(parts[:1], {}).n_bytes


@pytest.mark.parametrize("n", [0, 2])
def test_npy_holds_one(n: int) -> None:
    with pytest.raises(an.UnsupportedError, match=f"one array, not {n}"):
        NpyWriter().lay_out([Part(str(i), F32, ()) for i in range(n)], {})


@pytest.mark.parametrize("made", MODEL[::7], ids=lambda made: made.part.name)
def test_npy_is_read_back(made: Stored, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(written(NpyWriter(), [made]))
    with an.parse(path) as model:
        found = model.stored["x"]
        assert (found.dtype, found.shape) == (made.part.dtype, made.part.shape)
        assert found.read() == made.data
