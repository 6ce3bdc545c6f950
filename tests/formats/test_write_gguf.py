"""GGUF files as gguf-py writes them, to the byte, and their metadata, to the type."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.stored import Part
from anamnesis.formats.gguf.metadata import ValueType
from anamnesis.formats.gguf.settings import read_setting
from anamnesis.formats.gguf.split import split
from anamnesis.formats.gguf.values import Value, merged, typed
from anamnesis.formats.gguf.write import GgufWriter
from helpers import gguf_handmade as handmade
from helpers.written import Stored, assert_read_back, every_part, stored, write_sparse, written

Type = gguf.GGUFValueType
F32 = DTYPES["F32"]
# Q2_0 is newer than gguf-py, which has the Q8_1 of long ago; it does not read all its scalars.
KNOWN = [
    made
    for made in every_part(GgufWriter())
    if made.part.dtype.name not in ("Q2_0", "Q8_1") and made.part.shape
]

# Keys as gguf-py adds them, with their types, and as they are said here.
TYPED: dict[str, tuple[Any, Any, Any]] = {
    "general.name": ("é\n", Type.STRING, "é\n"),
    "n": (7, Type.UINT32, 7),
    "most": (2**32 - 1, Type.UINT32, 2**32 - 1),
    "below": (-1, Type.INT32, -1),
    "large": (2**32, Type.UINT64, 2**32),
    "low": (-(2**63), Type.INT64, -(2**63)),
    "eps": (1e-5, Type.FLOAT32, 1e-5),
    "inf": (float("-inf"), Type.FLOAT32, float("-inf")),
    "least": (2.0**-149, Type.FLOAT32, 2.0**-149),
    "tiny": (1e-300, Type.FLOAT64, 1e-300),
    "few digits": (1e-40, Type.FLOAT64, 1e-40),
    "huge": (-1e300, Type.FLOAT64, -1e300),
    "most f32": (3.4028235e38, Type.FLOAT32, 3.4028235e38),
    "yes": (True, Type.BOOL, True),
    "tokens": (["a", "", "é"], Type.ARRAY, ["a", "", "é"]),
    "types": ([1, -2, 3], Type.ARRAY, [1, -2, 3]),
    "scores": ([0.5, -1.0], Type.ARRAY, [0.5, -1.0]),
    "flags": ([True, False], Type.ARRAY, (True, False)),
    "u8": (255, Type.UINT8, {"type": "uint8", "value": 255}),
    "i8": (-128, Type.INT8, {"type": "int8", "value": -128}),
    "u16": (65535, Type.UINT16, {"type": "u16", "value": 65535}),
    "i16": (-1, Type.INT16, {"type": "int16", "value": -1}),
    "i32": (1, Type.INT32, {"type": "int32", "value": 1}),
    "u64": (1, Type.UINT64, {"type": "uint64", "value": 1}),
    "i64": (1, Type.INT64, {"type": "int64", "value": 1}),
    "f64": (0.1, Type.FLOAT64, {"type": "float64", "value": 0.1}),
    "f32": (1, Type.FLOAT32, {"type": "float32", "value": 1}),
    "text": ("7", Type.STRING, {"type": "string", "value": "7"}),
}


def by_gguf_py(
    path: Path,
    model: list[Stored],
    keys: Mapping[str, tuple[Any, Any, Any]],
    alignment: int = 32,
    **options: Any,
) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "llama", **options)
    for key, (value, kind, _) in keys.items():
        writer.add_key_value(key, value, kind)
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for part, data in model:
        assert data is not None
        row = part.dtype.n_bytes(part.shape[-1]) if part.shape else 0
        shape = (*part.shape[:-1], row) if part.dtype.kind == "block" else part.shape
        kind = gguf.GGMLQuantizationType[part.dtype.name]
        flat = np.frombuffer(data, np.int8)
        is_block = part.dtype.kind == "block"
        array = flat.view(np.uint8).reshape(shape) if is_block else flat
        writer.add_tensor(
            part.name, array, raw_shape=part.shape if not is_block else None, raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return writer


def said(keys: Mapping[str, tuple[Any, Any, Any]]) -> dict[str, Any]:
    return {"general.architecture": "llama", **{key: value for key, (_, _, value) in keys.items()}}


@pytest.mark.parametrize("alignment", [32, 1, 8, 256])
def test_bytes_of_gguf_py(alignment: int, tmp_path: Path) -> None:
    """All dtypes, shapes and types of values."""
    path = tmp_path / "m.gguf"
    by_gguf_py(path, KNOWN, TYPED, alignment)
    metadata = said(TYPED) | ({"general.alignment": alignment} if alignment != 32 else {})
    assert written(GgufWriter(), KNOWN, metadata) == path.read_bytes()


def test_all_dtypes_are_compared() -> None:
    plain = {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"}
    assert {m.part.dtype.name for m in KNOWN} == (plain | {*BLOCK_DTYPES}) - {"Q2_0", "Q8_1"}


@pytest.mark.parametrize("model", [[], [stored("a", F32, (0,))]])
def test_bytes_of_gguf_py_without_data(model: list[Stored], tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    by_gguf_py(path, model, {})
    assert written(GgufWriter(), model, {"general.architecture": "llama"}) == path.read_bytes()


def test_gguf_py_reads_it(tmp_path: Path) -> None:
    model = [made for made in KNOWN if made.part.n_bytes]
    path = tmp_path / "m.gguf"
    path.write_bytes(written(GgufWriter(), model, said(TYPED)))
    reader = gguf.GGUFReader(path)
    assert len(reader.tensors) == len(model)
    for tensor, (part, data) in zip(reader.tensors, model, strict=True):
        assert (tensor.name, tensor.tensor_type.name) == (part.name, part.dtype.name)
        assert tuple(int(dim) for dim in reversed(tensor.shape)) == part.shape
        assert tensor.data.tobytes() == data
    for key, (value, kind, _) in TYPED.items():
        field = reader.fields[key]
        assert field.types[0] == kind
        assert field.contents() == (np.float32(value) if kind is Type.FLOAT32 else value)


@pytest.mark.parametrize("values", [[1, 0.5, 1e-300], [1e300], [-1e-40, 2.0]])
def test_arrays_that_float32_is_too_narrow_for(values: list[float], tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(written(GgufWriter(), [], {"wide": values}))
    field = gguf.GGUFReader(path).fields["wide"]
    assert field.types == [Type.ARRAY, Type.FLOAT64]
    assert field.contents() == values


def test_scalars_have_a_dimension(tmp_path: Path) -> None:
    model = [stored(name, DTYPES[name], ()) for name in ("F32", "BF16", "I64")]
    path = tmp_path / "m.gguf"
    path.write_bytes(written(GgufWriter(), model))
    for tensor, (_, data) in zip(gguf.GGUFReader(path).tensors, model, strict=True):
        assert list(tensor.shape) == [1]
        assert tensor.data.tobytes() == data


def test_offsets_over_4_gib(tmp_path: Path) -> None:
    model = [Stored(Part("long", F32, (5 << 28,)), None), stored("last", F32, (3, 5))]
    path = tmp_path / "m.gguf"
    write_sparse(path, GgufWriter(), model)
    last = gguf.GGUFReader(path).tensors[1]
    assert last.data.tobytes() == model[1].data


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (Part("a", DTYPES["F8_E4M3"], (2,)), "gguf cannot store F8_E4M3"),
        (Part("a", F32, (1,) * 5), "at most 4 dimensions, not 5"),
        (Part("a", BLOCK_DTYPES["Q4_K"], (2, 255)), "whole blocks of 256 elements, not 255"),
        (Part("a", BLOCK_DTYPES["Q8_0"], ()), "whole blocks of 32 elements, not 1"),
        (Part("x" * 64, F32, ()), "64 bytes, and ggml reads at most 63"),
        (Part("é" * 32, F32, ()), "64 bytes"),
        (Part("a\0b", F32, ()), "NUL"),
        (Part("\ud800", F32, ()), "surrogate"),
        (Part("a", F32, (10**6, 10**6, 2)), "at most 1,000,000,000,000 elements"),
    ],
)
def test_refused_parts(part: Part, why: str) -> None:
    told = GgufWriter().refuses(part)
    assert told is not None
    assert why in told
    with pytest.raises(an.UnsupportedError, match="tensor "):
        GgufWriter().lay_out([part], {})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "empty array"),
        ([[1], [2]], "arrays of arrays"),
        ([1, "a"], "of one type"),
        ([1, True], "of one type"),
        ({"a": 1}, "a typed value is written"),
        ({"type": "uint3", "value": 1}, "type must be one of"),
        ({"type": ["u8"], "value": 1}, "type must be one of"),
        ({"type": "uint8", "value": 256}, "256 does not fit u8"),
        ({"type": "uint8", "value": -1}, "-1 does not fit u8"),
        ({"type": "uint8", "value": 1.0}, "1.0 is no u8"),
        ({"type": "uint8", "value": True}, "True is no u8"),
        ({"type": "bool", "value": 1}, "1 is no bool"),
        ({"type": "string", "value": 1}, "1 is no string"),
        ({"type": "float32", "value": "1"}, "'1' is no f32"),
        ({"type": "int32", "value": [1, "2"]}, "'2' is no i32"),
        (2**64, f"no integer type of GGUF holds {2**64}"),
        (-(2**63) - 1, "no integer type"),
        ([-1, 2**63], "no integer type"),
        ({"type": "float32", "value": 1e300}, "1e\\+300 does not fit f32"),
        ({"type": "float32", "value": [1.0, -1e-300]}, "-1e-300 does not fit f32"),
        ("\ud800", "surrogate"),
        (b"a", "no type for bytes"),
        ("x" * (1 << 24 | 1), "16,777,217 bytes"),
    ],
)
def test_refused_values(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        typed(value)
    with pytest.raises(an.UnsupportedError, match=f"metadata 'k': .*{why}"):
        GgufWriter().lay_out([], {"k": value})


@pytest.mark.parametrize("key", ["", "\ud800", "x" * 65_536])
def test_refused_keys(key: str) -> None:
    with pytest.raises(an.UnsupportedError, match="a key"):
        GgufWriter().lay_out([], {key: 1})


@pytest.mark.parametrize("value", [0, 3, -32, "32", {"type": "uint64", "value": 32}])
def test_refused_alignment(value: Any) -> None:
    with pytest.raises(an.UnsupportedError, match=r"general\.alignment must be"):
        GgufWriter().lay_out([], {"general.alignment": value})


# --- metadata of a file -------------------------------------------------------------------------

VOCABULARY = [f"tøken {i}" for i in range(500)]
KEYS: dict[str | bytes, handmade.Value] = {
    "general.architecture": (handmade.STRING, "llama"),
    "u8": (handmade.U8, 255),
    "i64": (handmade.I64, -(2**63)),
    "f32": (handmade.F32, 0.1),
    "nan": (handmade.F64, float("nan")),
    "yes": (handmade.BOOL, 1),
    "not utf-8": (handmade.STRING, b"\xff\xc3"),
    "long": (handmade.STRING, "é" * 40_000),
    "vocabulary": handmade.Array(handmade.STRING, VOCABULARY),
    "odd": handmade.Array(handmade.STRING, [b"\xff", b"", "x" * 300]),
    "none": handmade.Array(handmade.I16, []),
    "nothing": handmade.Array(handmade.STRING, []),
    "u64s": handmade.Array(handmade.U64, [0, 2**64 - 1, 1]),
    "i8s": handmade.Array(handmade.I8, [-1, 1]),
    "bools": handmade.Array(handmade.BOOL, [1, 0, 1]),
    "f32s": handmade.Array(handmade.F32, [0.1, float("inf")]),
    "nested": handmade.Array(
        handmade.ARRAY,
        [
            handmade.Array(handmade.U16, [1, 2]),
            handmade.Array(handmade.ARRAY, [handmade.Array(handmade.STRING, ["a", "é"])]),
        ],
    ),
}


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_metadata_go_over_type_true(version: int, big: bool) -> None:
    """From any version and byte order to the bytes that version 3 has them as."""
    source = handmade.gguf_bytes(KEYS, version=version, big=big)
    wanted = handmade.gguf_bytes(KEYS)
    with an.parse(source) as model:
        for metadata in (model.metadata, merged(model.metadata), merged(model.metadata, {})):
            raw = written(GgufWriter(), [], metadata)
            assert raw == wanted + bytes(-len(wanted) % 32)


def test_parts_keys_stay_behind() -> None:
    keys = {"a": (handmade.U32, 1), "split.count": (handmade.U16, 1), "split.no": (handmade.U16, 0)}
    with an.parse(handmade.gguf_bytes(keys)) as model:
        assert list(merged(model.metadata)) == ["a"]


@pytest.mark.parametrize("value", [b"\xff", b"\4"])
@pytest.mark.parametrize("behind", [0, 4])
@pytest.mark.parametrize(
    "array",
    [
        handmade.Array(handmade.STRING, ["abc", "", "abcd"]),
        handmade.Array(handmade.ARRAY, [handmade.Array(handmade.U16, [1, 2])] * 2),
    ],
)
def test_a_file_that_has_changed(
    array: handmade.Array, behind: int, value: bytes, tmp_path: Path
) -> None:
    """Lengths, types and counts that lead elsewhere are noticed."""
    path = tmp_path / "m.gguf"
    raw = handmade.gguf_bytes({"k": array})
    path.write_bytes(raw)
    with an.parse(path) as model:
        span = model.metadata.fields["k"].span  # type: ignore[attr-defined]
        at = span.offset + behind
        path.write_bytes(raw[:at] + value + raw[at + 1 :])
        with pytest.raises(an.ParseError, match="the file has changed"):
            merged(model.metadata)


def test_limits_hold_for_what_goes_over() -> None:
    limits = an.ParseLimits(max_single_alloc=1000)
    source = handmade.gguf_bytes({"a": KEYS["vocabulary"]})
    with (
        an.parse(source, limits=limits) as model,
        pytest.raises(an.LimitExceeded, match="max_single_alloc"),
    ):
        merged(model.metadata)


def test_what_comes_later_wins() -> None:
    source = handmade.gguf_bytes(
        {"a": (handmade.U8, 1), "b": (handmade.U8, 2), "c": (handmade.U8, 3)}
    )
    file = json.loads('{"d": [1, 2], "b": "x", "a": null}')
    with an.parse(source) as model:
        values = merged(model.metadata, file, dict([read_setting("d=uint8:7")]))
    assert list(values) == ["b", "c", "d"]
    assert values == {
        "b": typed("x"),
        "c": Value(ValueType.U8, b"\3"),
        "d": Value(ValueType.U8, b"\7"),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=7", 7),
        ("k=-7", -7),
        ("k=+7", 7),
        ("k=1.5", 1.5),
        ("k=1e-5", 1e-5),
        ("k=.5", 0.5),
        ("k=true", True),
        ("k=True", "True"),
        ("k=", ""),
        ("k=a=b", "a=b"),
        ("k=http://x", "http://x"),
        ("k=nan", "nan"),
        ("k=1_000", "1_000"),
        ("k=[1, 2]", [1, 2]),
        ('k=["a"]', ["a"]),
        ("k=[INST] x [/INST]", "[INST] x [/INST]"),
        ("k=" + "[" * 100_000 + "]", "[" * 100_000 + "]"),
        ("k=" + "9" * 5000, "9" * 5000),
        ("k=str:7", "7"),
        ("k=string:[1]", "[1]"),
        ("k=int:7", 7),
        ("k=float:7", {"type": "float32", "value": 7}),
        ("k=float64:nan", {"type": "float64", "value": float("nan")}),
        ("k=bool:true", True),
        ("k=u8:7", {"type": "uint8", "value": 7}),
        ("k=uint8:7", {"type": "uint8", "value": 7}),
        ("k=uint16:[1, 2]", {"type": "uint16", "value": [1, 2]}),
        ('k={"type": "uint8", "value": 7}', {"type": "uint8", "value": 7}),
        ('k={"value": [], "type": "float32"}', {"type": "float32", "value": []}),
        ('k={"type": "uint8"}', '{"type": "uint8"}'),
        ("k={% if x %}{{ x }}", "{% if x %}{{ x }}"),
    ],
)
def test_settings(text: str, value: Any) -> None:
    assert read_setting(text) == ("k", typed(value))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "k",
            "=1",
            "k=int:1.5",
            "k=uint8:x",
            "k=uint8:-1",
            "k=bool:1",
            "k=float:x",
            "k=int:",
            "k=[]",
        ),
        'k={"type": "uint8", "value": 256}',
    ],
)
def test_settings_that_are_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"write KEY=VALUE|is no |does not fit|empty array"):
        read_setting(text)


# --- several files ------------------------------------------------------------------------------


def test_parts_as_gguf_py_writes_them(tmp_path: Path) -> None:
    model = [stored(f"t{i}", F32, (8 * (1 + i % 5), 4)) for i in range(20)]
    by_gguf_py(tmp_path / "m.gguf", model, TYPED, split_max_size=1500)
    files = split("m.gguf", [[made.part.n_bytes] for made in model], said(TYPED), 1500)
    assert len(files) > 3
    assert [file.name for file in files] == sorted(path.name for path in tmp_path.iterdir())
    for file in files:
        # gguf-split, which is followed, has one of the keys in another place.
        n_tensors = {"split.tensors.count": file.metadata.pop("split.tensors.count")}
        told = {**file.metadata, **n_tensors}
        ours = written(GgufWriter(), model[file.start : file.stop], told)
        assert ours == (tmp_path / file.name).read_bytes()
        (tmp_path / file.name).write_bytes(ours)
    with an.parse(tmp_path / files[1].name) as whole:
        assert_read_back(whole, model)


def test_plans_of_parts() -> None:
    def runs(sizes: list[int], most: int) -> list[tuple[int, int]]:
        return [(file.start, file.stop) for file in split("m.gguf", [[n] for n in sizes], {}, most)]

    assert runs([32, 32, 32], 64) == [(0, 2), (2, 3)]
    assert runs([1, 1, 1], 64) == [(0, 2), (2, 3)]  # padded
    assert runs([100, 1, 100], 64) == [(0, 1), (1, 2), (2, 3)]
    assert runs([32, 32], 64) == [(0, 2)]
    assert runs([], 64) == [(0, 0)]
    assert runs([128, 32], 64) == [(0, 1), (1, 2)]
    two = split("M.GGUF", [[1, 1], [1]], {}, 64)  # what makes one weight stays together
    assert [(f.name, f.start, f.stop) for f in two] == [
        ("M-00001-of-00002.gguf", 0, 1),
        ("M-00002-of-00002.gguf", 1, 2),
    ]
    assert all(file.metadata["split.tensors.count"]["value"] == 3 for file in two)
    (whole,) = split("M.GGUF", [[32]], {"a": 1}, 64)
    assert (whole.name, whole.metadata) == ("M.GGUF", {"a": 1})
    with pytest.raises(an.UnsupportedError, match="70,000 parts"):
        split("m.gguf", [[32]] * 70_000, {}, 1)


@pytest.mark.parametrize("alignment", [1, 8, 256, 1 << 20])
def test_a_copy_keeps_the_alignment(alignment: int) -> None:
    raw = handmade.gguf_bytes(
        {"general.alignment": (4, alignment), "a": (4, 7)},
        {"x": handmade.Tensor((3,), 0, bytes(12)), "y": handmade.Tensor((3,), 0, bytes(12))},
        alignment=alignment,
    )
    with an.parse(raw) as model:
        copy = io.BytesIO()
        model.convert(copy, to="gguf")
        asked = io.BytesIO()
        model.convert(asked, to="gguf", metadata={"general.alignment": 64})
    with an.parse(copy.getvalue()) as model:
        assert model.metadata["general.alignment"] == alignment
        assert {tensor.offset % alignment for tensor in model.stored.values()} == {0}
    with an.parse(asked.getvalue()) as model:
        assert model.metadata["general.alignment"] == 64


def test_most_alignment() -> None:
    told = {"general.alignment": 1 << 20}
    layout = GgufWriter().lay_out([], told)
    assert layout.n_bytes < 200  # nothing is there to be aligned
    raw = layout.fixed[0][1].ljust(layout.n_bytes, b"\0")
    with an.parse(raw) as model:
        assert not list(model)
    with pytest.raises(an.LimitExceeded, match="GGUF_MAX_ALIGNMENT"):
        GgufWriter().lay_out([], {"general.alignment": 1 << 21})
    with pytest.raises(an.LimitExceeded, match="GGUF_MAX_ALIGNMENT"):
        an.parse(handmade.gguf_bytes({"general.alignment": (4, 1 << 21)}))
