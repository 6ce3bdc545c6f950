"""GGUF against gguf-py: files that it writes, and real headers and weights, key by key."""

from __future__ import annotations

import builtins
import os
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ggml_c
import gguf
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from gguf.scripts.gguf_convert_endian import byteswap_tensors, convert_byteorder

import anamnesis as an
from anamnesis import _core
from helpers.kernel_calls import load_by_path

Type = gguf.GGMLQuantizationType
REAL = os.environ.get("ANAMNESIS_REAL")
ROWS, COLS = 6, 512


class Reader(gguf.GGUFReader):
    """gguf-py's own, over a plain array: that takes a quarter of the time over a memmap."""

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        return self._plain

    @data.setter
    def data(self, mapped: npt.NDArray[np.uint8]) -> None:
        self._plain = mapped.view(np.ndarray)


def test_every_type_of_ggml_is_read() -> None:
    tool = load_by_path("tools/ggml_types.py")
    header = (ggml_c.llama_cpp() / "ggml/include/ggml.h").read_text(encoding="utf-8")
    assert tool.differences(header) == []
    newer = header.replace("GGML_TYPE_COUNT ", "GGML_TYPE_Q9_9 = 99,\nGGML_TYPE_COUNT ")
    assert tool.differences(newer) == ["ggml's type 99 is Q9_9, here it is not read"]


def same(ours: Any, theirs: Any) -> bool:
    """Compare by type and bits: 1 is not True, nor -0.0 0.0, and a NaN is itself."""
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float):
        return (
            isinstance(theirs, float) and np.float64(ours).tobytes() == np.float64(theirs).tobytes()
        )
    return type(ours) is type(theirs) and bool(ours == theirs)


def assert_metadata_agrees(model: an.Model, reader: gguf.GGUFReader) -> None:
    fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(model.metadata) == list(fields)
    for key, field in fields.items():
        assert same(model.metadata[key], field.contents()), key


def copy_of(path: Path, to: Path) -> gguf.GGUFReader:
    """Copy a file, and open it for change."""
    shutil.copyfile(path, to)
    to.chmod(0o644)
    return Reader(to, "r+")


def swap(reader: gguf.GGUFReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn a little-endian file into a big-endian one, by gguf-py's own tool."""
    monkeypatch.setattr(builtins, "input", lambda _: "YES")
    convert_byteorder(reader, SimpleNamespace(order="big", dry_run=False))


# --- what gguf-py writes ------------------------------------------------------------------------


def weights() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 0.02, (ROWS, COLS)).astype(np.float32)


def quantised(name: Any) -> npt.NDArray[np.uint8]:
    """Rows of blocks, by llama.cpp's own quantiser."""
    blocks: npt.NDArray[np.uint8] = ggml_c.ggml().quantize(_core.BLOCKS[name], weights())
    return blocks.reshape(ROWS, -1)


def write(path: Path, tensors: dict[str, tuple[npt.NDArray[Any], Any]], **options: Any) -> Path:
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 1e-5)
    writer.add_float64("f64", -0.0)
    writer.add_bool("yes", True)
    writer.add_string("text", "é\n")
    writer.add_token_list(["<s>", "", "é"])
    writer.add_token_scores([0.1, -1000.0, 0.0])
    writer.add_token_types([1, 2, 3])
    writer.add_array("bools", [True, False])
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


PLAIN = {
    "f32": np.float32,
    "f16": np.float16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}


def plain_tensors() -> dict[str, tuple[npt.NDArray[Any], Any]]:
    values = np.arange(-12, 12).reshape(2, 3, 4)
    return {name: (values.astype(dtype), None) for name, dtype in PLAIN.items()} | {
        "bf16": (values.astype(ml_dtypes.bfloat16).view(np.uint8), Type.BF16)
    }


@pytest.mark.parametrize("endian", list(gguf.GGUFEndian))
def test_metadata_and_plain_tensors(endian: gguf.GGUFEndian, tmp_path: Path) -> None:
    tensors = plain_tensors()
    if endian is gguf.GGUFEndian.BIG:  # it would swap bytes of one, which is nothing
        tensors.pop("bf16")
    path = write(tmp_path / "m.gguf", tensors, endianess=endian)
    with an.parse(path) as model:
        assert_metadata_agrees(model, Reader(path))
        model.remember(tmp_path / "out.safetensors")
    found = safetensors.numpy.load_file(tmp_path / "out.safetensors")
    assert set(found) == set(tensors)
    for name in set(PLAIN) & set(tensors):
        wanted = plain_tensors()[name][0]
        assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape)
        assert np.array_equal(found[name], wanted)


# Q8_1 and Q8_K are for activations only, Q2_0 is newer: see tests/kernels for those.
KNOWN_TO_GGUF_PY = sorted({row.name for row in _core.block_types()} & set(Type.__members__))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [n for n in KNOWN_TO_GGUF_PY if n not in ("Q8_1", "Q8_K")])
def test_blocks_of_llama_cpp(name: Any, tmp_path: Path) -> None:
    """gguf-py's writer and reader, llama.cpp's quantiser, and safetensors' readers."""
    kind = Type[name]
    blocks = quantised(name)
    path = write(tmp_path / "m.gguf", {"w": (blocks, kind), "n": (weights()[0], None)})
    reader = Reader(path)
    (theirs,) = (t for t in reader.tensors if t.name == "w")
    assert theirs.data.tobytes() == blocks.tobytes()
    try:
        wanted = gguf.dequantize(theirs.data, kind)
    except NotImplementedError:
        wanted = ggml_c.ggml().to_float(_core.BLOCKS[name], blocks).reshape(ROWS, COLS)
    with an.parse(path) as model:
        assert model["w"].numpy().tobytes() == wanted.tobytes()
        outputs: dict[Any, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
        for short, dtype in outputs.items():
            out = tmp_path / f"{short}.safetensors"
            model.remember(out, short)
            loaded = safetensors.torch.load_file(out)
            rounded = torch.from_numpy(wanted).to(getattr(torch, dtype))
            assert torch.equal(loaded["w"], rounded)
            assert torch.equal(loaded["n"], torch.from_numpy(weights()[0]))
            assert set(safetensors.numpy.load_file(out)) == {"w", "n"}


def test_split_by_gguf_py(tmp_path: Path) -> None:
    tensors = plain_tensors()
    write(tmp_path / "m.gguf", tensors, split_max_tensors=3)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert [p.name for p in parts] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    with an.parse(parts[1]) as model:
        assert list(model) == list(tensors)
        for name in PLAIN:
            assert np.array_equal(model[name].numpy(), tensors[name][0].astype(np.float32))
        assert model.metadata["general.architecture"] == "llama"
        assert model.metadata["tokenizer.ggml.tokens"] == ["<s>", "", "é"]


# --- the other byte order -----------------------------------------------------------------------


def test_big_endian_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All block types that gguf-py's converter knows; reads may start inside a block."""
    names = sorted(kind.name for kind in byteswap_tensors)
    tensors = {name: (quantised(name), Type[name]) for name in names}
    little = write(tmp_path / "m.gguf", {**tensors, "f32": (weights(), None)})
    big = tmp_path / "big.gguf"
    swap(copy_of(little, big), monkeypatch)
    with an.parse(little) as a, an.parse(big) as b:
        assert b.inspect().facts["byte_order"] == "big"
        assert dict(a.metadata) == dict(b.metadata)
        for name in [*names, "f32"]:
            assert a.stored[name].read() == b.stored[name].read(), name
            assert np.array_equal(a[name].numpy(), b[name].numpy())
            stored, source = a.stored[name], b.stored[name].source
            for start, n in ((1, 5), (17, 40), (144, 145), (stored.n_bytes - 3, 3)):
                piece = stored.read()[start : start + n]
                assert source.read(b.stored[name].offset + start, n) == piece
        assert a.remember_to_bytes() == b.remember_to_bytes()


def test_big_endian_blocks_that_nobody_swaps_are_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.gguf",
        {"blk.0.w": (quantised("IQ2_XS"), Type.IQ2_XS), "n": (weights()[0], None)},
        endianess=gguf.GGUFEndian.BIG,
    )
    with an.parse(path) as model:
        assert "IQ2_XS" in str(model.inspect())
        with pytest.raises(an.UnsupportedError, match=r"'blk\.0\.w' is of GGML IQ2_XS.*big-endian"):
            model.remember_to_bytes()
        assert np.array_equal(model["n"].numpy(), weights()[0])


# --- real headers and weights -------------------------------------------------------------------


@cache
def vocabularies() -> tuple[Path, ...]:
    return tuple(sorted((ggml_c.llama_cpp() / "models").glob("ggml-vocab-*.gguf")))


def test_there_are_vocabularies() -> None:
    assert len(vocabularies()) >= 19


@pytest.mark.sampled(5)
@pytest.mark.parametrize("number", range(19))
def test_vocabulary(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = vocabularies()[number]
    big = tmp_path / "big.gguf"
    reader = copy_of(path, big)  # one for both: gguf-py takes seconds for it
    with an.parse(path) as model:
        assert_metadata_agrees(model, reader)
        swap(reader, monkeypatch)
        with an.parse(big) as swapped:
            assert model.inspect().facts["byte_order"] == "little"
            assert swapped.inspect().facts["byte_order"] == "big"
            assert list(swapped.metadata) == list(model.metadata)
            for key, value in model.metadata.items():
                assert same(swapped.metadata[key], value), key
            if path.stat().st_size < 1_000_000:
                assert_metadata_agrees(swapped, Reader(big))


SLICES = sorted(Path(REAL, "gguf").glob("*.gguf")) if REAL else []


@pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL names no folder of slices")
def test_there_are_slices() -> None:
    assert SLICES


@pytest.mark.parametrize("path", SLICES, ids=lambda p: p.stem)
def test_slice(path: Path, tmp_path: Path) -> None:
    wanted = safetensors.numpy.load_file(path.with_suffix(".expected.safetensors"))
    out = tmp_path / "out.safetensors"
    with an.parse(path) as model:
        model.remember(out)
        for tensor in gguf.GGUFReader(path).tensors:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            assert model[tensor.name].numpy().tobytes() == values.tobytes()
    found = safetensors.numpy.load_file(out)
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
