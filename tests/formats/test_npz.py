"""NPZ and NPY: what `numpy.load` gives, to the byte."""

from __future__ import annotations

import glob
import io
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from safetensors import deserialize
from safetensors.numpy import load

import anamnesis as an
from helpers.npy_cases import (
    DTYPES,
    SHAPES,
    Array,
    archive,
    array,
    every_array,
    header,
    ml_array,
    npy,
    npz,
    with_header,
)

SHIPPED = sorted(
    glob.glob(os.path.join(os.path.dirname(np.__file__), "lib", "tests", "data", "*.np[yz]"))
)


def stored_bytes(model: an.Model, name: str) -> bytes:
    """Return a stored tensor's bytes, read at once and in odd pieces."""
    stored = model.stored[name]
    whole = stored.read()
    pieces = [
        stored.source.read(stored.offset + at, min(7, stored.n_bytes - at))
        for at in range(0, min(stored.n_bytes, 700), 7)
    ]
    assert b"".join(pieces) == whole[:700]
    return whole


def assert_same(model: an.Model, name: str, want: Array) -> None:
    """Compare shape, dtype and bytes with an array."""
    stored = model.stored[name]
    little = want.astype(want.dtype.newbyteorder("<"))
    assert stored.shape == want.shape
    assert stored.dtype.numpy() == little.dtype
    assert stored_bytes(model, name) == little.tobytes()


@pytest.mark.parametrize("compressed", [False, True])
def test_every_dtype_shape_and_order(compressed: bool) -> None:
    arrays = every_array()
    raw = npz(arrays, compressed=compressed)
    with an.parse(raw) as model:
        assert model.format == "NPZ"
        assert list(model) == list(arrays)
        with np.load(io.BytesIO(raw)) as theirs:
            for name in arrays:
                assert_same(model, name, theirs[name])


@pytest.mark.parametrize("compressed", [False, True])
def test_remember_writes_what_numpy_loads(compressed: bool) -> None:
    arrays = {k: v for k, v in every_array().items() if v.dtype.char != "D"}
    with an.parse(npz(arrays, compressed=compressed)) as model:
        out = load(model.remember_to_bytes())
    assert out.keys() == arrays.keys()
    for name, want in arrays.items():
        assert out[name].tobytes() == want.astype(want.dtype.newbyteorder("<")).tobytes(), name
        assert out[name].shape == want.shape


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("fortran", [False, True])
def test_header_versions(version: tuple[int, int], fortran: bool) -> None:
    want = np.asarray(array((4, 3), "f4"), order="F" if fortran else "C")
    raw = npy(want, version)
    with an.parse(raw) as model:
        assert model.format == "NPY"
        assert list(model) == ["array"]
        assert_same(model, "array", np.load(io.BytesIO(raw)))


def test_the_name_of_a_single_array_is_its_files(tmp_path: Path) -> None:
    path = tmp_path / "embed.tokens.npy"
    np.save(path, array((2, 2), "f4"))
    with an.parse(path) as model:
        assert list(model) == ["embed.tokens"]


@pytest.mark.parametrize("path", SHIPPED, ids=os.path.basename)
def test_numpys_own_files(path: str) -> None:
    """What numpy loads without unpickling is the same; the rest is listed, and refused."""
    with an.parse(path) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers by Python 2
        for name in model.stored:
            try:
                loaded: Any = np.load(path)
                want = loaded[name] if path.endswith(".npz") else loaded
            except ValueError as error:
                assert "allow_pickle" in str(error)  # noqa: PT017
                assert "never unpickled" in str(model.problems[name])
            else:
                assert_same(model, name, want)


def test_numpy_ships_files() -> None:
    assert len(SHIPPED) >= 5


def test_bfloat16_is_told_by_its_width() -> None:
    want = ml_array("bfloat16")
    for raw in (npy(want), npy(np.load(io.BytesIO(npy(want))))):  # `<V2`, and `|V2` if saved again
        with an.parse(raw) as model:
            assert model.stored["array"].dtype.name == "BF16"
            assert model["array"].numpy("bf16").tobytes() == want.tobytes()
            ((_, out),) = deserialize(model.remember_to_bytes())
            assert out["dtype"] == "BF16"
            assert bytes(out["data"]) == want.tobytes()


def test_e5m2_has_a_letter_of_its_own() -> None:
    want = ml_array("float8_e5m2")
    with an.parse(npy(want)) as model:
        assert model.stored["array"].dtype.name == "F8_E5M2"
        assert model.stored["array"].read() == want.tobytes()


@pytest.mark.parametrize(
    "name",
    [
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float8_e3m4"),
        *("int4", "uint4", "float4_e2m1fn", "float6_e2m3fn"),
    ],
)
def test_one_byte_that_says_not_what_it_is(name: str) -> None:
    values = np.zeros((2, 3), getattr(ml_dtypes, name))
    with an.parse(npy(values)) as model:
        assert model.stored["array"].shape == (2, 3)
        assert model.stored["array"].n_bytes == 6
        with pytest.raises(an.UnsupportedError, match="one-byte values of unknown meaning"):
            model.remember_to_bytes()
        out = load(model.remember_to_bytes(allow_unknown=True))
    assert out["array"].tobytes() == bytes(6)


@pytest.mark.parametrize(
    "name",
    ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16"],
)
def test_void_dtype(name: str) -> None:
    want = ml_array(name)
    with an.parse(npy(want), void_dtype=name) as model:
        assert_same(model, "array", want)
    with an.parse(npz({"a": want, "b": want.astype("f4")}), void_dtype=name) as model:
        assert_same(model, "a", want)
        assert model.stored["b"].dtype.name == "F32"


def test_void_dtype_of_another_width_or_none() -> None:
    bf16 = ml_array("bfloat16")
    with an.parse(npy(bf16), void_dtype="F8_E4M3") as model:
        assert model.stored["array"].dtype.name == "BF16"
    for unknown in ("V1", "float4_e2m1fn", ""):
        with pytest.raises(ValueError, match="dtype must be one of"):
            an.parse(npy(bf16), void_dtype=unknown)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float32"])
def test_dtypes_by_name(name: str) -> None:
    data = bytes(2 * np.dtype(getattr(ml_dtypes, name, name)).itemsize)
    with an.parse(with_header(header(name, (2,)), data)) as model:
        assert model.stored["array"].dtype.numpy_name == name


UNREADABLE = {
    "objects": (np.array([{}, None]), "never unpickled"),
    "unicode": (np.array(["a", "bc"]), "strings"),
    "bytes": (np.array([b"a", b"bc"]), "strings"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "dates"),
    "spans": (np.array([1], "m8[s]"), "spans of time"),
    "records": (np.zeros(3, [("a", "f4"), ("b", "i2", (2,))]), "records"),
    "void": (np.zeros(3, "V3"), "not supported"),
    "half complex": (np.zeros(3, ml_dtypes.complex32), "half floats"),
    "long double": (np.zeros(3, "g"), "long doubles"),
}


@pytest.mark.parametrize("case", UNREADABLE)
@pytest.mark.parametrize("compressed", [False, True])
def test_what_cannot_be_read_is_listed_and_refused_by_name(case: str, compressed: bool) -> None:
    values, why = UNREADABLE[case]
    raw = npz({"good": array((3,), "f4"), "bad": values}, compressed=compressed)
    with an.parse(raw) as model:
        assert list(model.stored) == ["good", "bad"]
        assert list(model) == ["good", "bad"]
        assert why in str(model.problems["bad"])
        assert "'bad'" in str(model.problems["bad"])
        assert model.inspect().problems
        with pytest.raises(an.UnsupportedError, match=why):
            model["bad"]
        with pytest.raises(an.UnsupportedError, match=why):
            model.remember_to_bytes()


def test_a_dtype_that_would_write_to_the_terminal() -> None:
    from anamnesis.cli.parse import listing

    with an.parse(with_header(header("\x1b[2Jx", (1,)).replace("\\x1b", "\x1b"), b"1")) as model:
        assert all(line.isprintable() for line in listing(model, "x.npy"))
        assert str(model.inspect()).replace("\n", "").isprintable()
    with pytest.raises(an.ParseError):
        an.parse(with_header("{'descr': '<f\n4', 'fortran_order': False, 'shape': (), }", bytes(4)))


def test_complex_of_two_doubles_is_read_but_not_written() -> None:
    want = array((3, 4), "c16")
    with an.parse(npy(want)) as model:
        assert model["array"].numpy().tobytes() == want.tobytes()
        assert "C128" in model.inspect().problems["array"]
        with pytest.raises(an.UnsupportedError, match=r"'array' has dtype C128"):
            model.remember_to_bytes()
        out = load(model.remember_to_bytes(allow_unknown=True))
        assert out["array"].tobytes() == want.tobytes()


def test_members_that_are_no_arrays_are_listed_and_refused() -> None:
    raw = archive({"a.npy": npy(array((2,), "f4")), "b": npy(array((3,), "i2")), "c": b"text"})
    with an.parse(raw) as model:
        assert list(model) == ["a", "b", "c"]
        assert "not a NumPy array" in str(model.problems["c"])


def test_two_members_of_one_name_are_refused() -> None:
    one = npy(array((2,), "f4"))
    with pytest.raises(an.ParseError, match="both name one array"):
        an.parse(archive({"a": one, "a.npy": one}))


def test_an_empty_archive() -> None:
    with an.parse(npz({})) as model:
        assert len(model) == 0


def test_names_mean_nothing() -> None:
    arrays = {
        "layer_norm.scale": array((3,), "f4"),
        "a.weight": array((2, 2), "u1"),
        "a.weight_scale": array((2,), "f4"),
        "a.qweight": array((4, 4), "i4"),
        "folder/über": array((2,), "f8"),
    }
    with an.parse(npz(arrays)) as model:
        assert list(model) == list(arrays)
        assert load(model.remember_to_bytes()).keys() == arrays.keys()


def test_python_2_headers() -> None:
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }\n"
    with an.parse(with_header(text, bytes(24))) as model:
        assert model.stored["array"].shape == (2, 3)


def test_only_headers_are_read(tmp_path: Path) -> None:
    from anamnesis.sources.file import FileSource

    path = tmp_path / "large.npz"
    np.savez(path, **{f"w{i}": np.zeros((1000, 100), "f4") for i in range(20)})  # type: ignore[arg-type]

    class Counting(FileSource):
        n_read = 0

        def _read_some(self, offset: int, view: memoryview) -> int:
            Counting.n_read += len(view)
            return super()._read_some(offset, view)

    with Counting(path) as source:
        an.parse(cast(Any, source)).inspect()
    assert Counting.n_read < (32 << 10) + 20 * 300  # the file's end, where the directory is


def test_offsets_are_told_where_bytes_lie_as_they_are() -> None:
    from anamnesis.cli.parse import listing_dict

    arrays = {"c": array((3, 4), "f4"), "f": np.asfortranarray(array((3, 4), "f4"))}
    raw = npz(arrays)
    with an.parse(raw) as model:
        c, f = listing_dict(model)["tensors"]
    assert raw[c["offset"] :][: c["n_bytes"]] == arrays["c"].tobytes()
    assert f["offset"] is None


def test_gemma_scope() -> None:
    folder = os.environ.get("ANAMNESIS_REAL")
    if folder is None:
        pytest.skip("ANAMNESIS_REAL is not set")
    path = Path(folder) / "npz" / "gemma_scope_small.npz"
    with an.parse(path) as model, np.load(path) as theirs:
        assert list(model) == list(theirs)
        for name in theirs:
            assert_same(model, name, theirs[name])


def test_shapes_and_dtypes_are_many() -> None:
    assert len(every_array()) == len(DTYPES) * len(SHAPES) * 4


def test_deflated_members_are_read_by_several_threads(tmp_path: Path) -> None:
    want = np.repeat(array((1000, 100), "f4"), 40, axis=1)
    raw = archive({"w.npy": npy(want), "f.npy": npy(np.asfortranarray(want))}, zipfile.ZIP_DEFLATED)
    with an.parse(raw) as model:
        out = load(model.remember_to_bytes(threads=3))
    assert out["w"].tobytes() == out["f"].tobytes() == want.tobytes()


def test_a_negative_dimension_is_named() -> None:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)
    with pytest.raises(an.ParseError, match=r"its shape \[-1, 4\] has a negative dimension"):
        an.parse(data)
