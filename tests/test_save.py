"""Arrays and tensors of memory in every container, beside the libraries that write the same."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import anamnesis as an

RNG = np.random.default_rng(5)
ARRAYS: dict[str, Any] = {
    "matrix": RNG.standard_normal((3, 5), np.float32),
    "half": RNG.standard_normal((4, 4)).astype(np.float16),
    "double": RNG.standard_normal(7),
    "scalar": np.array(2.5, np.float32),
    "empty": np.empty((0, 3), np.float32),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j, -0.0], np.complex64),
    "i64": np.arange(5),
    "u16": np.arange(6, dtype=np.uint16).reshape(2, 3),
    "one": np.float32(7),
}
ODD: dict[str, Any] = {
    "turned": RNG.standard_normal((300, 401), np.float32).T,
    "backwards": np.arange(1000, dtype=np.int32)[::-3],
    "repeated": np.broadcast_to(np.arange(4.0), (3, 4)),
    "big": np.arange(1000, dtype=">i4"),
    "big_turned": np.arange(12, dtype=">f8").reshape(3, 4).T,
    "big_complex": np.array([[1 + 2j], [3 - 4j]], ">c8").T,
    "bf16_turned": RNG.standard_normal((3, 4)).astype(ml_dtypes.bfloat16).T,
    "sliced": np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, 1:, ::2],
}


def plain(array: Any) -> Any:
    """Return it as it lies after it was written: row-major and little-endian."""
    array = np.array(array, order="C")
    return array.astype(array.dtype.newbyteorder("="))


def test_as_safetensors_writes(tmp_path: Path) -> None:
    arrays = {**ARRAYS, **{f"f8.{name}": np.ones(3, name) for name in F8_NAMES}}
    for metadata in (None, {"format": "pt"}):
        report = an.save(arrays, tmp_path / "ours.safetensors", metadata=metadata, force=True)
        whole = {name: np.asarray(array) for name, array in arrays.items()}
        save_file(whole, tmp_path / "theirs.safetensors", metadata)
        ours, theirs = ((tmp_path / f"{n}.safetensors").read_bytes() for n in ("ours", "theirs"))
        assert ours == theirs
        assert (report.n_in, report.n_out) == (len(arrays), len(arrays))


F8_NAMES = [getattr(ml_dtypes, name) for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")]


def test_as_numpy_writes(tmp_path: Path) -> None:
    an.save(ARRAYS, tmp_path / "ours.npz")
    np.savez(tmp_path / "theirs.npz", **ARRAYS)
    assert (tmp_path / "ours.npz").read_bytes() == (tmp_path / "theirs.npz").read_bytes()
    an.save({"a": ARRAYS["half"]}, tmp_path / "ours.npy")
    np.save(tmp_path / "theirs.npy", ARRAYS["half"])
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


def test_strides_and_byte_orders(tmp_path: Path) -> None:
    an.save(ODD, tmp_path / "ours.safetensors")
    save_file({name: plain(a) for name, a in ODD.items()}, tmp_path / "theirs.safetensors")
    assert (tmp_path / "ours.safetensors").read_bytes() == (
        tmp_path / "theirs.safetensors"
    ).read_bytes()


def test_bands_of_large_arrays(tmp_path: Path) -> None:
    arrays = {
        "turned.weight": RNG.standard_normal((1024, 1536), np.float32).T,
        "big.weight": RNG.standard_normal((1024, 1536)).astype(">f4"),
        "same.weight": RNG.standard_normal((1024, 1536), np.float32),
    }
    an.save(arrays, tmp_path / "x.npz", threads=3)
    with np.load(tmp_path / "x.npz") as found:
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
    an.save(arrays, tmp_path / "x.safetensors", "fp8-channel")
    an.save({n: plain(a) for n, a in arrays.items()}, tmp_path / "y.safetensors", "fp8-channel")
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_arrays_are_not_copied_nor_changed(tmp_path: Path) -> None:
    array = RNG.standard_normal((128, 128), np.float32)
    array.flags.writeable = False
    before = array.tobytes()
    an.save({"a.weight": array}, tmp_path / "a.safetensors", "fp8-block")
    assert array.tobytes() == before


@pytest.mark.parametrize(
    ("to", "name"),
    [("bnb-nf4", "a.safetensors"), ("fp8-block", "a.safetensors"), ("int8", "a.safetensors")],
)
def test_encoded_as_a_file_is(tmp_path: Path, to: str, name: str) -> None:
    arrays = {
        "layers.0.up.weight": RNG.standard_normal((128, 256)).astype(ml_dtypes.bfloat16),
        "norm.weight": np.ones(256, np.float32),
    }
    save_file(arrays, tmp_path / "in.safetensors")
    an.save(arrays, tmp_path / name, to)
    with an.parse(tmp_path / "in.safetensors") as model:
        model.convert(tmp_path / f"of-file-{name}", to)
    assert (tmp_path / name).read_bytes() == (tmp_path / f"of-file-{name}").read_bytes()


def test_layers_that_may_be_conv1d(tmp_path: Path) -> None:
    """Only the caller can know which way round they are; silence would encode some wrong."""
    name = "transformer.h.0.mlp.c_fc.weight"
    arrays = {
        name: RNG.standard_normal((128, 256), np.float32),
        "x.weight": np.ones((64, 64), "f4"),
    }
    report = an.save(arrays, tmp_path / "a.safetensors", "bnb-nf4")
    assert "Conv1D or nn.Linear" in report.plain[name]
    report = an.save(arrays, tmp_path / "b.safetensors", "bnb-nf4", conv1d=False)
    assert report.n_encoded == 2


def test_a_file_object() -> None:
    stream = io.BytesIO()
    an.save({"a": np.ones(3)}, stream, "safetensors")
    with an.parse(stream.getvalue()) as model:
        assert model["a"].numpy().tolist() == [1, 1, 1]


# --- tensors of models ------------------------------------------------------------------------


def test_tensors_of_models(tmp_path: Path) -> None:
    """They are read as they are written, and keep what they are."""
    weights = {
        "a.weight": RNG.standard_normal((128, 128)).astype(ml_dtypes.bfloat16),
        "b": np.arange(3),
    }
    an.save(weights, tmp_path / "q.safetensors", "fp8-block")
    with an.parse(tmp_path / "q.safetensors") as model:
        an.save({**model, "new": np.ones(2)}, tmp_path / "out.safetensors")
        model.remember(tmp_path / "same.safetensors")
        an.save({"x.weight": model["a.weight"], "y": model["a.weight"]}, tmp_path / "twice.npz")
        wanted = model["a.weight"].numpy("bf16")
        with pytest.raises(an.OutputError, match="input"):
            an.save({**model}, tmp_path / "q.safetensors", force=True)
        assert model["a.weight"].numpy("bf16").tobytes() == wanted.tobytes()  # it is still open
    with (
        an.parse(tmp_path / "out.safetensors") as out,
        an.parse(tmp_path / "same.safetensors") as same,
    ):
        assert set(out) == {*same, "new"}
        assert all(out[n].parts[0].read() == same[n].parts[0].read() for n in same)
    with an.parse(tmp_path / "twice.npz") as twice:
        assert [*twice] == ["x.weight", "y"]
        assert all(t.numpy("bf16").tobytes() == wanted.tobytes() for t in twice.values())


def test_kept_under_another_name(tmp_path: Path) -> None:
    """What it is stored as is called by the new name."""
    an.save({"a.weight": np.ones((128, 128), "f4")}, tmp_path / "q.safetensors", "fp8-block")
    with an.parse(tmp_path / "q.safetensors") as model:
        an.save(
            {"b.weight": model["a.weight"]}, tmp_path / "k.safetensors", overrides={"*": "keep"}
        )
    with an.parse(tmp_path / "k.safetensors") as kept:
        assert set(kept.stored) == {"b.weight", "b.weight_scale_inv"}


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "kind", "told"),
    [
        ({1: np.ones(2)}, TypeError, "a name must be a str, not 1"),
        ({"a": [1, 2]}, TypeError, "'a' is a list, not an array"),
        ({"a": None}, TypeError, "'a' is a NoneType"),
        ([np.ones(2)], TypeError, "a mapping of names to arrays, not \\[array"),
        ({"a": np.array(["x"])}, TypeError, "'a' has the dtype <U1, which no format has"),
        ({"a": np.array([object()])}, TypeError, "'a' has the dtype object"),
        ({"a": np.ones(2, np.longdouble)}, TypeError, "'a' has the dtype (longdouble|float128)"),
        ({"a": np.ones(2, ml_dtypes.int4)}, TypeError, "'a' has the dtype int4"),
        ({"a": np.ma.masked_array([1.0], [True])}, TypeError, "'a' is a masked array"),
        ({"a": np.ones(2), "a\0": np.ones(2)}, an.UnsupportedError, "NUL"),
    ],
)
def test_no_array(tmp_path: Path, tensors: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        an.save(tensors, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


def test_no_container(tmp_path: Path) -> None:
    for path in (tmp_path / "a", tmp_path / "a.tmp", io.BytesIO()):
        with pytest.raises(ValueError, match=r"no container: give it an ending \(\.safetensors"):
            an.save({"a": np.ones(2)}, path)
    with pytest.raises(an.OutputError, match="jit files cannot be written"):
        an.save({"a": np.ones(2)}, tmp_path / "a.jit")
    with pytest.raises(ValueError, match="cannot be resumed"):
        an.save({"a": np.ones(2)}, tmp_path / "a.npz", resume=True)
    with pytest.raises(an.UnsupportedError, match="'a' has dtype BOOL, which gguf cannot"):
        an.save({"a": np.ones(2, bool)}, tmp_path / "a.gguf")
    an.save({"a": np.ones(2)}, tmp_path / "a.npz")
    with pytest.raises(an.OutputError, match="exists"):
        an.save({"a": np.ones(2)}, tmp_path / "a.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


# --- metadata -----------------------------------------------------------------------------------


def test_metadata_of_numpy(tmp_path: Path) -> None:
    """A dtype says the type of a value."""
    gguf = pytest.importorskip("gguf")
    kinds = gguf.GGUFValueType
    path = tmp_path / "a.gguf"
    metadata = {
        "general.architecture": "llama",
        "i32": np.int32(-3),
        "u8": np.uint8(7),
        "f64": np.float64(0.1),
        "b": np.bool_(True),
        "s": np.str_("text"),
        "many": np.arange(3, dtype=np.int16),
        "words": np.array(["a", "bc"]),
    }
    an.save({"a": np.ones((2, 32), np.float32)}, path, metadata=metadata)
    fields = gguf.GGUFReader(path).fields
    assert {name: fields[name].types[-1] for name in metadata} == {
        **dict.fromkeys(("general.architecture", "s", "words"), kinds.STRING),
        "i32": kinds.INT32,
        "u8": kinds.UINT8,
        "f64": kinds.FLOAT64,
        "b": kinds.BOOL,
        "many": kinds.INT16,
    }
    assert [fields[n].contents() for n in ("i32", "f64", "many", "words")] == [
        *(-3, 0.1, [0, 1, 2], ["a", "bc"])
    ]
    for value in (np.float16(1), np.complex64(1), np.ones((2, 2))):
        with pytest.raises(an.UnsupportedError, match="metadata 'k'"):
            an.save({"a": np.ones(32, "f4")}, path, metadata={"k": value}, force=True)


def test_as_gguf_py_writes(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    arrays = {n: ARRAYS[n] for n in ("matrix", "half", "double", "i64")}
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = {"general.architecture": "llama"}
    an.save(arrays, tmp_path / "ours.gguf", metadata=metadata)
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


# --- shards -------------------------------------------------------------------------------------


def sharded(folder: Path) -> dict[str, Any]:
    """Return what the index of a folder leads to."""
    told = json.loads((folder / "model.safetensors.index.json").read_text())
    names = {file.name for file in folder.iterdir()} - {"model.safetensors.index.json"}
    assert names == set(told["weight_map"].values())
    found: dict[str, Any] = {}
    for name in names:
        arrays = load_file(folder / name)
        assert {n for n, shard in told["weight_map"].items() if shard == name} == set(arrays)
        found |= arrays
    assert told["metadata"]["total_size"] == sum(array.nbytes for array in found.values())
    return found


@pytest.mark.parametrize("to", [None, "safetensors", "bf16"])
def test_shards(tmp_path: Path, to: str | None) -> None:
    arrays = {f"layers.{i}.weight": RNG.standard_normal((64, 64), np.float32) for i in range(12)}
    arrays["norm"] = np.ones(3, np.float32)
    report = an.save(arrays, tmp_path / "out", to, max_shard_size=50_000)
    dtype = ml_dtypes.bfloat16 if to == "bf16" else np.float32
    wanted = {name: array.astype(dtype) for name, array in arrays.items()}
    found = sharded(tmp_path / "out")
    assert {n: (a.dtype, a.tobytes()) for n, a in found.items()} == {
        n: (a.dtype, a.tobytes()) for n, a in wanted.items()
    }
    sizes = [p.stat().st_size for p in (tmp_path / "out").glob("*.safetensors")]
    assert len(sizes) == report.n_files == (2 if to == "bf16" else 4)
    assert max(sizes) < 52_000
    with an.parse(tmp_path / "out") as model:
        assert set(model) == set(arrays)
        assert an.plan(tmp_path / "out", max_shard_size=50_000).n_bytes == sum(sizes)


def test_one_shard_needs_no_index(tmp_path: Path) -> None:
    an.save(ARRAYS, tmp_path / "out", max_shard_size=1 << 20)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]
    assert load_file(tmp_path / "out/model.safetensors").keys() == ARRAYS.keys()


def test_shards_of_one_file(tmp_path: Path) -> None:
    """Any model that is one file can be cut so."""
    an.save(ARRAYS, tmp_path / "in.npz")
    for verb in (an.remember, an.convert):
        out = tmp_path / verb.__name__
        verb(tmp_path / "in.npz", out, max_shard_size=100)
        assert {n: a.tobytes() for n, a in sharded(out).items()} == {
            n: plain(a).tobytes() for n, a in ARRAYS.items()
        }


@pytest.mark.parametrize("to", ["int4", "fp8-block", "bnb-nf4", "mlx-4bit"])
def test_codes_in_shards_are_read_again(tmp_path: Path, to: str) -> None:
    """What a config would say stands in the shards, as in a lone file."""
    arrays = {f"{i}.weight": RNG.standard_normal((128, 256), np.float32) for i in range(4)}
    an.save(arrays, tmp_path / "one.safetensors", to)
    report = an.save(arrays, tmp_path / "out", to, max_shard_size=40_000, verify=True)
    assert report.n_files > 1
    with an.parse(tmp_path / "out") as cut, an.parse(tmp_path / "one.safetensors") as one:
        assert {n: t.scheme for n, t in cut.items()} == {n: t.scheme for n, t in one.items()}
        for name in one:
            assert cut[name].numpy().tobytes() == one[name].numpy().tobytes()


def test_shards_that_cannot_be(tmp_path: Path) -> None:
    arrays = {"a": np.ones(100, np.float32)}
    with pytest.raises(an.OutputError, match="one file is not cut into shards; name a folder"):
        an.save(arrays, tmp_path / "a.safetensors", max_shard_size=100)
    with pytest.raises(an.OutputError, match="one file is not cut into shards"):
        an.save(arrays, tmp_path / "a.npz", max_shard_size=100)
    with pytest.raises(an.OutputError, match="a stream takes one file"):
        an.save(arrays, io.BytesIO(), max_shard_size=100)
    assert not list(tmp_path.iterdir())
    an.save(arrays, tmp_path / "out", max_shard_size=100)
    with pytest.raises(an.OutputError, match="exists and is not empty"):
        an.save(arrays, tmp_path / "out", max_shard_size=100)
    an.save(arrays, tmp_path / "out", max_shard_size=100, force=True)
