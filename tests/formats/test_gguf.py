"""GGUF headers: every kind of value, tensors row-major, and nothing read that need not be."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis import _core
from anamnesis.base.limits import Budget
from anamnesis.formats.gguf.metadata import GgufMetadata, ValueType
from anamnesis.formats.registry import parse_container
from anamnesis.sources.memory import BufferSource
from helpers.gguf_handmade import (
    ARRAY,
    BOOL,
    CODES,
    F32,
    F64,
    I8,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Array,
    Raw,
    Tensor,
    gguf_bytes,
)

FORMS = [(version, big) for version in (1, 2, 3) for big in (False, True)]
form = pytest.mark.parametrize(("version", "big"), FORMS)

EXTREMES = {
    U8: (0, 2**8 - 1),
    U16: (0, 2**16 - 1),
    U32: (0, 2**32 - 1),
    U64: (0, 2**64 - 1),
    I8: (-128, 127),
    I64: (-(2**63), 2**63 - 1),
    F32: (-0.0, 1.5),
    F64: (5e-324, -math.inf),
    BOOL: (False, True),
}


class Counting(BufferSource):
    """A source that notes what is read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read_into(self, offset: int, view: memoryview) -> None:
        if len(view):
            self.reads.append((offset, offset + len(view)))
        super().read_into(offset, view)

    def read_once(self) -> bool:
        return all(a[1] <= b[0] for a, b in pairwise(sorted(self.reads)))


# --- metadata -----------------------------------------------------------------------------------


@form
@pytest.mark.parametrize("kind", sorted(EXTREMES))
def test_scalars_and_arrays(kind: int, version: int, big: bool) -> None:
    low, high = EXTREMES[kind]
    raw = gguf_bytes(
        {"low": (kind, low), "high": (kind, high), "both": Array(kind, [low, high])},
        version=version,
        big=big,
    )
    found = an.parse(raw).metadata
    assert dict(found) == {"low": low, "high": high, "both": [low, high]}
    assert [type(v) for v in found["both"]] == [type(low)] * 2
    assert math.copysign(1, found["low"]) == math.copysign(1, low)


@form
def test_strings(version: int, big: bool) -> None:
    texts = ["", "a", "é" * 300, "\0", "\U0001f600", "a" * 70_000]
    raw = gguf_bytes(
        {**{f"k{i}": (STRING, t) for i, t in enumerate(texts)}, "all": Array(STRING, texts)},
        version=version,
        big=big,
    )
    found = an.parse(raw).metadata
    assert [found[f"k{i}"] for i in range(len(texts))] == texts
    assert found["all"] == texts


@form
def test_nested_arrays(version: int, big: bool) -> None:
    value = Array(
        ARRAY,
        [
            Array(ARRAY, [Array(STRING, ["a", "bc"]), Array(U16, [])]),
            Array(F32, [0.5, -2.0]),
            Array(ARRAY, [Array(ARRAY, [Array(U8, [7])])]),
        ],
    )
    raw = gguf_bytes({"n": value, "after": (U8, 3)}, version=version, big=big)
    found = an.parse(raw).metadata
    assert found["n"] == [[["a", "bc"], []], [0.5, -2.0], [[[7]]]]
    assert found["after"] == 3


def test_bytes_that_are_not_utf8_survive() -> None:
    raw = b"ok \xff\xc3 \x80"
    model = an.parse(gguf_bytes({"s": (STRING, raw), "a": Array(STRING, [raw, b"\xed\xa0\x80"])}))
    assert os.fsencode(model.metadata["s"]) == raw
    assert [s.encode("utf-8", "surrogateescape") for s in model.metadata["a"]] == [
        raw,
        b"\xed\xa0\x80",
    ]
    carried = an.parse(model.remember_to_bytes()).metadata
    assert carried["s"] == "ok \ufffd\ufffd \ufffd"


def test_arrays_are_read_when_asked_for() -> None:
    tokens = [f"token {i}" for i in range(100_000)]
    raw = gguf_bytes({"t": Array(STRING, tokens), "f": Array(F32, [1.0] * 9999), "x": (U8, 1)})
    source = Counting(raw)
    metadata = parse_container(source, Budget()).metadata
    assert isinstance(metadata, GgufMetadata)
    assert metadata.fields["t"].span is not None
    assert metadata.fields["t"].value is None
    assert metadata.fields["t"].describe() == "array of 100,000 strings"
    assert metadata.fields["f"].type is ValueType.ARRAY
    assert metadata.summary() == {
        "t": "[array of 100,000 strings]",
        "f": "[array of 9,999 f32s]",
        "x": 1,
    }
    n_reads = len(source.reads)
    assert metadata.first("t", 3) == tokens[:3]
    assert sum(b - a for a, b in source.reads[n_reads:]) <= 4096
    assert metadata["t"] == tokens
    assert metadata["t"] is metadata["t"]


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"t": Array(STRING, ["abc"] * 10), "b": Array(BOOL, [1, 0])}))
    with an.parse(path) as model:
        path.write_bytes(path.read_bytes()[:24] + b"\xff" * 400)
        with pytest.raises(an.ParseError, match="has changed"):
            model.metadata["t"]
        with pytest.raises(an.ParseError, match="a bool is 255"):
            model.metadata["b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((F32, 1e-5), "1e-05"),
        ((F32, 1e6), "1000000.0"),
        ((F32, 0.1), "0.1"),
        ((F32, 16777217.0), "16777216.0"),
        ((F64, 0.1), "0.1"),
        ((F32, math.inf), "Infinity"),
        ((F32, 3.4028234663852886e38), "3.4028234663852886e+38"),
        ((BOOL, 1), "true"),
        ((U64, 2**64 - 1), "18446744073709551615"),
        ((STRING, 'a"b'), 'a"b'),
        (Array(F32, [0.1, 2]), "[0.1, 2.0]"),
        (Array(STRING, ["é", ""]), '["é", ""]'),
        (Array(ARRAY, [Array(U8, [1])]), "[[1]]"),
    ],
)
def test_is_carried_into_the_output(value: object, text: str) -> None:
    model = an.parse(gguf_bytes({"k": value}))
    metadata = dict(an.parse(model.remember_to_bytes()).metadata)
    assert metadata.pop("gguf.header")
    assert metadata == {"k": text, "format": "pt"}


def test_long_arrays_are_in_the_carried_header_alone(tmp_path: Path) -> None:
    keys = {"t": Array(STRING, ["a"] * 65), "s": Array(U8, [0] * 64), "split.no": (U16, 0)}
    report = an.parse(gguf_bytes(keys)).remember(tmp_path / "out.safetensors")
    assert report.dropped == ()
    assert set(an.parse(tmp_path / "out.safetensors").metadata) == {"s", "gguf.header", "format"}


ALL_TYPES: dict[str, object] = {
    **{f"n.{kind}": (kind, 1) for kind in (0, 1, 2, 3, 4, 5, 7, 10, 11)},
    "f32": (6, 1e-5),
    "f64": (12, 1e-5),
    "nan": (6, math.nan),
    "text": (STRING, "é"),
    "general.alignment": (U32, 64),
    "bytes": (STRING, b"\xff\xfe"),
    "long": Array(STRING, ["token"] * 1000),
    "nested": Array(ARRAY, [Array(U8, [1]), Array(U16, [])]),
    "split.no": (U16, 0),
}


@pytest.mark.parametrize("out", ["x.safetensors", "shards"])
@pytest.mark.parametrize("big_endian", [False, True])
def test_a_header_comes_back_by_way_of_safetensors(
    out: str, big_endian: bool, tmp_path: Path
) -> None:
    """Keys, order, types and bytes are those of a copy that stays a GGUF."""
    tensors = {f"blk.{i}.w": Tensor((64,), 0, bytes(256)) for i in (0, 1)}
    raw = gguf_bytes(ALL_TYPES, tensors, alignment=64, big=big_endian)
    size = 256 if out == "shards" else None
    with an.parse(raw) as model:
        model.convert(tmp_path / "direct.gguf", to="gguf")
        model.convert(tmp_path / out, max_shard_size=size, names="keep")
    report = an.convert(tmp_path / out, tmp_path / "back.gguf", "gguf")
    assert report.dropped == ()
    back = (tmp_path / "back.gguf").read_bytes()
    assert back == (tmp_path / "direct.gguf").read_bytes()
    with an.parse(back) as model:
        assert model.metadata["general.alignment"] == 64


@pytest.mark.parametrize("to", ["gguf", "gguf-f16", "gguf-bf16", "gguf-q8_0", "gguf-q4_k_m"])
def test_by_way_of_safetensors_a_model_becomes_what_it_would_at_once(
    to: str, tmp_path: Path
) -> None:
    """Mixes, too, ask for the architecture, and say in the header what they made."""
    keys = {"general.architecture": (STRING, "llama"), "llama.block_count": (U32, 1)}
    values = np.random.default_rng(1).standard_normal((2, 256), np.float32).tobytes()
    names = ("token_embd", "blk.0.attn_v", "blk.0.ffn_down", "output")
    tensors = {f"{name}.weight": Tensor((256, 2), 0, values) for name in names}
    with an.parse(gguf_bytes({**keys, "general.file_type": (U32, 0)}, tensors)) as model:
        model.convert(tmp_path / "once.gguf", to)
        model.convert(tmp_path / "x.safetensors")
    an.convert(tmp_path / "x.safetensors", tmp_path / "twice.gguf", to)
    assert (tmp_path / "twice.gguf").read_bytes() == (tmp_path / "once.gguf").read_bytes()


def test_what_is_said_of_a_key_on_the_way_comes_back(tmp_path: Path) -> None:
    raw = gguf_bytes({"general.name": (STRING, "old"), "b": (U8, 1)})
    with an.parse(raw) as model:
        model.convert(tmp_path / "x.safetensors", metadata={"general.name": "new"})
    an.convert(tmp_path / "x.safetensors", tmp_path / "x.gguf", "gguf", metadata={"c": 1})
    assert dict(an.parse(tmp_path / "x.gguf").metadata) == {"general.name": "new", "b": 1, "c": 1}


@pytest.mark.parametrize("text", ["?", "R0dVRg==", "R0dVRgMAAAA="])
def test_a_carried_header_that_is_none(text: str, tmp_path: Path) -> None:
    an.save({"w": np.ones(4)}, tmp_path / "x.safetensors", metadata={"gguf.header": text})
    with pytest.raises(an.ParseError, match=r"x\.safetensors: gguf\.header: "):
        an.convert(tmp_path / "x.safetensors", tmp_path / "x.gguf", "gguf")


# --- tensors ------------------------------------------------------------------------------------

PLAIN = {
    0: ("F32", np.float32),
    1: ("F16", np.float16),
    24: ("I8", np.int8),
    25: ("I16", np.int16),
    26: ("I32", np.int32),
    27: ("I64", np.int64),
    28: ("F64", np.float64),
    30: ("BF16", ml_dtypes.bfloat16),
}


@form
@pytest.mark.parametrize("number", PLAIN)
def test_plain_tensors_come_as_they_are(number: int, version: int, big: bool) -> None:
    name, dtype = PLAIN[number]
    wanted = np.arange(-3, 3).astype(dtype).reshape(2, 3)
    stored = np.frombuffer(wanted.tobytes(), np.uint8).reshape(-1, wanted.itemsize)
    data = (stored[:, ::-1] if big else stored).tobytes()
    raw = gguf_bytes(
        {}, {"x": Tensor((3, 2), number, data), "y": Tensor((1,), 24, b"\1")},
        version=version, big=big,
    )  # fmt: skip
    model = an.parse(raw)
    assert model.stored["x"].dtype.name == name
    assert model["x"].shape == (2, 3)
    out = model.remember_to_bytes("f16")
    kept = an.parse(out).stored["x"]
    assert (kept.dtype.name, kept.shape, kept.read()) == (name, (2, 3), wanted.tobytes())
    assert model.stored["x"].read() == wanted.tobytes()
    assert model.stored["x"].source.read(0, len(raw))[:4] == b"GGUF"


def test_every_block_type_has_its_size() -> None:
    for row in _core.block_types():
        tensor = Tensor((2 * row.elements, 3), row.id, bytes(6 * row.bytes))
        model = an.parse(gguf_bytes({}, {"w": tensor, "end": Tensor((4,), 24, b"abcd")}))
        assert model["w"].shape == (3, 2 * row.elements)
        assert model["w"].scheme == row.name
        assert model["w"].is_quantized
        assert model.stored["end"].read() == b"abcd"
        with pytest.raises(an.ParseError, match=f"whole blocks of {row.elements}"):
            an.parse(gguf_bytes({}, {"w": Tensor((row.elements // 2, 2), row.id, bytes(999))}))


@pytest.mark.parametrize("dims", [(), (7,), (3, 1, 2), (1,) * 8, (0,), (5, 0, 2)])
def test_shapes_are_row_major(dims: tuple[int, ...]) -> None:
    data = np.arange(math.prod(dims), dtype=np.float32)
    model = an.parse(gguf_bytes({}, {"x": Tensor(dims, 0, data.tobytes())}))
    assert model["x"].shape == dims[::-1]
    assert np.array_equal(model["x"].numpy(), data.reshape(dims[::-1]))


@pytest.mark.parametrize("alignment", [1, 8, 32, 4096])
def test_alignment(alignment: int) -> None:
    tensors = {f"t{i}": Tensor((3,), 24, bytes([i] * 3)) for i in range(4)}
    raw = gguf_bytes({"general.alignment": (U32, alignment)}, tensors, alignment=alignment)
    model = an.parse(raw)
    assert [t.read() for t in model.stored.values()] == [bytes([i] * 3) for i in range(4)]
    assert str(model.inspect()).splitlines()[-1] == f"Alignment:   {alignment} bytes"


@pytest.mark.parametrize(
    "value", [(U32, 0), (U32, 24), (U64, 32), (STRING, "32"), Array(U32, [32]), (F32, 32.0)]
)
def test_bad_alignment(value: object) -> None:
    with pytest.raises(an.ParseError, match=r"general\.alignment must be a u32"):
        an.parse(gguf_bytes({"general.alignment": value}))


def test_an_alignment_of_another_type_is_named_with_it() -> None:
    with pytest.raises(an.ParseError, match="not the u64 32"):
        an.parse(gguf_bytes({"general.alignment": (U64, 32)}))


def test_holes_and_any_order_are_let_pass() -> None:
    raw = gguf_bytes(
        {}, {"b": Tensor((32,), 24, b"b" * 32, 64), "a": Tensor((4,), 24, b"a" * 96, 0)}
    )
    stored = an.parse(raw).stored
    assert [t.offset % 64 for t in stored.values()] == [stored["a"].offset % 64] * 2
    assert stored["b"].offset - stored["a"].offset == 64


REMOVED = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8"} | {
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


@pytest.mark.parametrize("number", [*REMOVED, 43, 2**32 - 1])
def test_unknown_types_are_listed_and_refused(number: int, tmp_path: Path) -> None:
    tensors = {
        "good": Tensor((4,), 0, bytes(16)),
        "blk.0.odd": Tensor((64, 2), number, b"x" * 72),
        "last": Tensor((4,), 24, b"abcd"),
    }
    model = an.parse(gguf_bytes({"general.architecture": (STRING, "llama")}, tensors))
    assert list(model.stored) == list(tensors)
    assert model.stored["blk.0.odd"].shape == (2, 64)
    inspection = model.inspect()
    assert inspection.n_tensors == 3
    told = f"{REMOVED[number]} (type {number})" if number in REMOVED else f"type {number}"
    assert told in str(inspection)
    with pytest.raises(an.UnsupportedError) as raised:
        model.remember(tmp_path / "out.safetensors")
    assert "'blk.0.odd'" in str(raised.value)
    assert told in str(raised.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(an.UnsupportedError):
        model["blk.0.odd"]
    assert np.array_equal(model["good"].numpy(), np.zeros(4))
    passed = an.parse(model.remember_to_bytes(allow_unknown=True)).stored["blk.0.odd"]
    assert passed.dtype.name == "U8"
    assert passed.read().rstrip(b"\0") == b"x" * 72


def test_names_mean_nothing() -> None:
    names = ("attn_k.input_scale", "a.weight_scale", "a.scales", "q.qweight", "a.weight")
    tensors = {name: Tensor((32,), 8 if name == "a.weight" else 24, bytes(34)) for name in names}
    model = an.parse(gguf_bytes({"_quantization_metadata": (U8, 1)}, tensors))
    assert list(an.parse(model.remember_to_bytes()).stored) != []
    assert set(model) == set(names)
    assert not model.problems
    assert not model.inspect().dropped


def test_broken_config_beside_it_is_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "m.gguf").write_bytes(gguf_bytes({}, {"x": Tensor((1,), 24, b"a")}))
    with an.parse(tmp_path / "m.gguf") as model:
        assert list(model) == ["x"]


# --- what is said -------------------------------------------------------------------------------


def test_inspection() -> None:
    tensors = {
        "token_embd.weight": Tensor((64, 500), 8, bytes(34 * 1000)),
        "output_norm.weight": Tensor((64,), 0, bytes(256)),
    }
    inspection = an.parse(
        gguf_bytes({"general.architecture": (STRING, "llama")}, tensors)
    ).inspect()
    assert str(inspection).splitlines() == [
        "Format:      GGUF v3",
        "Arch:        llama",
        "Tensors:     2",
        "Types:       Q8_0 (1), F32 (1)",
        "Size:        34.3 KB (Q8_0) -> 64.3 KB (BF16)",
        "Lethe took:  ~30.0 KB, when the model was quantised",
        "Parameters:  32,064, 8.547 bits each",
        "Alignment:   32 bytes",
    ]
    told = inspection.to_dict()
    assert told["format"] == "GGUF v3"
    assert told["arch"] == "llama"
    assert told["alignment"] == 32
    assert told["byte_order"] == "little"
    assert told["dtypes"] == {"Q8_0": 1, "F32": 1}
    assert told["n_bytes_out"] == 64 * 500 * 2 + 256


# --- what is read -------------------------------------------------------------------------------


def headers() -> Iterator[bytes]:
    """Headers of many kinds, each with tensor data behind it."""
    tensors = {f"blk.{i}.weight": Tensor((32, 4), 0, bytes(512)) for i in range(300)}
    yield gguf_bytes({}, tensors)
    yield gguf_bytes({f"k{i}": (kind, 0) for i, kind in enumerate(CODES)}, tensors)
    yield gguf_bytes({"t": Array(STRING, [f"t{i}" * (i % 7) for i in range(90_000)])}, tensors)
    yield gguf_bytes({"t": Array(STRING, ["x" * 300_000, "", "y" * 300_000])}, tensors)
    yield gguf_bytes({"s": (STRING, "x" * 600_000), "f": Array(F64, [0.0] * 90_000)}, tensors)
    yield gguf_bytes({"n": Array(ARRAY, [Array(STRING, ["ab"] * 9)] * 3000)}, tensors)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(6))
def test_no_byte_is_read_twice_and_none_behind_the_header(number: int) -> None:
    raw = list(headers())[number]
    source = Counting(raw)
    container = parse_container(source, Budget())
    assert source.read_once()
    assert max(end for _, end in source.reads) == container.header_bytes
    assert container.header_bytes <= len(raw) - 300 * 512
    assert len(source.reads) < 150


def test_skipped_values_are_not_read() -> None:
    raw = gguf_bytes({"s": (STRING, "x" * 5_000_000), "f": Array(F64, [0.0] * 900_000)})
    source = Counting(raw)
    parse_container(source, Budget())
    assert sum(end - start for start, end in source.reads) < 1000


@pytest.mark.parametrize("kind", ["path", "bytes", "stream", "slow", "mmap"])
def test_any_source(kind: str, tmp_path: Path) -> None:
    raw = list(headers())[2]
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 1000))

    where: dict[str, Any] = {
        "path": path,
        "bytes": raw,
        "stream": io.BytesIO(raw),
        "slow": Slow(raw),
        "mmap": path,
    }
    with an.parse(where[kind], mmap=kind == "mmap") as model:
        assert len(model) == 300
        assert model.metadata["t"][8] == "t8"


# --- what is malformed --------------------------------------------------------------------------


@form
def test_every_cut_is_noticed(version: int, big: bool) -> None:
    keys = {"k": (U32, 1), "s": (STRING, "abc"), "a": Array(STRING, ["de", "f"])}
    raw = gguf_bytes(keys, {"x": Tensor((3,), 0, bytes(12))}, version=version, big=big)
    for n in range(4, len(raw)):
        with pytest.raises(an.ParseError) as raised:
            an.parse(raw[:n])
        assert raised.value.offset is not None
        assert 0 <= raised.value.offset <= n
    an.parse(raw)


@pytest.mark.parametrize("version", [4, 1000])
@pytest.mark.parametrize("big", [False, True])
def test_later_versions(version: int, big: bool) -> None:
    with pytest.raises(an.UnsupportedError, match=f"version {version}"):
        an.parse(gguf_bytes(version=version, big=big))


def test_version_zero() -> None:
    with pytest.raises(an.ParseError, match="version 0"):
        an.parse(gguf_bytes(version=0))


MALFORMED = {
    "key twice": (gguf_bytes([("k", (U8, 1)), ("k", (U8, 2))]), "'k' appears twice"),
    "tensor twice": (
        gguf_bytes({}, [("x", Tensor((1,), 24, b"a")), ("x", Tensor((1,), 24, b"b"))]),
        "'x' appears twice",
    ),
    "empty key": (gguf_bytes({"": (U8, 1)}), "empty"),
    "key not UTF-8": (gguf_bytes({b"\xff": (U8, 1)}), "not UTF-8"),
    "name not UTF-8": (gguf_bytes({}, {b"\xff": Tensor((1,), 24, b"a")}), "not UTF-8"),
    "bool": (gguf_bytes({"b": Raw(BOOL, b"\2")}), "a bool must be 0 or 1, not 2"),
    "value type": (gguf_bytes({"b": Raw(13, b"\2")}), "unknown type 13"),
    "item type": (gguf_bytes({"b": Raw(ARRAY, b"\x0d" + bytes(11))}), "unknown type 13"),
    "unaligned": (gguf_bytes({}, {"x": Tensor((1,), 24, b"a" * 9, 8)}), "multiple of the align"),
    "overlap": (
        gguf_bytes({}, {"x": Tensor((40,), 24, b"a" * 40), "y": Tensor((40,), 24, b"a" * 99, 32)}),
        "'x' overlaps",
    ),
    "same place": (
        gguf_bytes({}, {"x": Tensor((4,), 24, b"a" * 4), "y": Tensor((4,), 24, b"a" * 99, 0)}),
        "overlaps",
    ),
    "past the end": (gguf_bytes({}, {"x": Tensor((99,), 0, b"a" * 395)}), "truncated"),
    "offset past the end": (gguf_bytes({}, {"x": Tensor((9,), 24, b"a" * 9, 2**63)}), "truncated"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    raw, match = MALFORMED[name]
    with pytest.raises(an.ParseError, match=match):
        an.parse(raw)


def test_error_offsets() -> None:
    raw = gguf_bytes([("first", (U8, 1)), ("k", (U8, 2)), ("k", (U8, 2))])
    with pytest.raises(an.ParseError) as raised:
        an.parse(raw)
    assert raised.value.offset == raw.rindex(b"k") - 8
