"""Every writer: what it takes comes back from the parser, and what it refuses it names."""

from __future__ import annotations

import random
import re
from importlib import import_module
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.base.dtypes import ALL_DTYPES, BLOCK_DTYPES, DTYPES
from anamnesis.base.stored import Part
from anamnesis.formats.written import WRITERS, make_writer, written_as
from helpers.written import (
    EVERY_DTYPE,
    Stored,
    assert_read_back,
    every_part,
    stored,
    write_sparse,
    written,
)

F32, BF16, U8 = DTYPES["F32"], DTYPES["BF16"], DTYPES["U8"]
MANY = [id for id in WRITERS if id != "npy"]  # those that hold more than one tensor
NUMPYS = {name for name, dtype in ALL_DTYPES.items() if dtype.numpy_name}
HELD = {
    "safetensors": set(DTYPES),
    "gguf": {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", *BLOCK_DTYPES},
    "npz": NUMPYS,
    "npy": NUMPYS,
    "torch": {*ALL_DTYPES} - {"F6_E2M3", "F6_E3M2"},
}


@pytest.mark.parametrize("id", WRITERS)
def test_holds(id: str) -> None:
    writer = make_writer(id)
    assert {name for name, dtype in EVERY_DTYPE.items() if writer.holds(dtype)} == HELD[id]
    for name in EVERY_DTYPE.keys() - HELD[id]:
        why = writer.refuses(Part("x", EVERY_DTYPE[name], (256,)))
        assert why is not None
        assert name in why


@pytest.mark.sampled(2)
@pytest.mark.parametrize("id", MANY)
def test_every_dtype_and_shape(id: str) -> None:
    parts = every_part(make_writer(id))
    assert len(parts) > 100
    raw = written(make_writer(id), parts)
    assert written(make_writer(id), parts) == raw
    with an.parse(raw) as model:
        assert model.inspect().format_id == id
        assert_read_back(model, parts)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("id", MANY)
@pytest.mark.parametrize("n", [0, 1, 2, 999, 1000, 1001, 3000])
def test_many(id: str, n: int) -> None:
    parts = [stored(f"layers.{i}.w", BF16 if i % 3 else F32, (i % 5, 3)) for i in range(n)]
    with an.parse(written(make_writer(id), parts)) as model:
        assert_read_back(model, parts)


NAMES = (
    *("a", "b", "a.b", "a/b", "a.npy", ".npy", "", " ", "é", "\U0001f600", "a\nb", 'a"b', "\\"),
    *("..", "a/..", "../a", "/a", "C:a", "..a", "a..", "a/...", "cpu", "storage", "0", "file"),
    *("a\0b", "\ud800", "x" * 63, "x" * 64, "é" * 32, "x" * 300, "data.pkl", "__metadata__"),
)


@pytest.mark.parametrize("id", MANY)
def test_random_models(id: str) -> None:
    """Whatever is not refused comes back; a refusal is an `UnsupportedError` that says the name."""
    rng = random.Random(id)
    n_written = 0
    for seed in range(150):
        names = rng.sample(NAMES, rng.randrange(6))
        dtypes = [EVERY_DTYPE[rng.choice(sorted(HELD[id]))] for _ in names]
        shapes = [[rng.randrange(4) for _ in range(rng.randrange(6))] for _ in names]
        parts = [stored(*made, seed) for made in zip(names, dtypes, shapes, strict=True)]
        try:
            raw = written(make_writer(id), parts)
        except an.UnsupportedError as error:
            told = str(error)
            assert any(repr(name) in told for name in names)
            continue
        n_written += 1
        with an.parse(raw) as model:
            assert_read_back(model, parts)
    assert n_written > 30


@pytest.mark.parametrize("id", MANY)
def test_two_of_one_name(id: str) -> None:
    with pytest.raises(an.UnsupportedError, match="'a'"):
        make_writer(id).lay_out([Part("a", F32, (1,)), Part("a", F32, (2,))], {})


@pytest.mark.parametrize("id", WRITERS)
def test_metadata_without_a_place_are_refused(id: str) -> None:
    writer = make_writer(id)
    parts = [Part("a", F32, (1,))]
    assert writer.takes_metadata == (id in ("safetensors", "gguf"))
    if writer.takes_metadata:
        assert writer.lay_out(parts, {"k": "v"}).n_bytes > writer.lay_out(parts, {}).n_bytes
    else:
        with pytest.raises(an.UnsupportedError, match="no place for metadata such as 'k'"):
            writer.lay_out(parts, {"k": "v"})


@pytest.mark.parametrize("id", MANY)
def test_offsets_over_4_gib(id: str, tmp_path: Path) -> None:
    """Two tensors that are each longer than 4 GiB, before, between and behind short ones."""
    long = (3 << 30, 1)
    parts = [
        stored("first", BF16, (3,)),
        Stored(Part("long", BF16, long), None),
        stored("middle", BF16, (5,)),
        Stored(Part("longer", BF16, long), None),
        stored("last", BF16, (7, 2)),
        stored("empty", BF16, (0,)),
    ]
    path = tmp_path / f"m{make_writer(id).extension}"
    write_sparse(path, make_writer(id), parts)
    assert path.stat().st_size > 12 << 30
    with an.parse(path) as model:
        assert_read_back(model, parts)


def test_the_table_of_writers() -> None:
    for id, row in WRITERS.items():
        writer = make_writer(id)
        assert (writer.id, writer.extension) == (id, row.endings[0])
        assert type(writer).__name__ == row.name
        assert import_module(type(writer).__module__) is not None
        assert written_as(f"m{writer.extension.upper()}") == id
    assert written_as("m.PT") == "torch"
    assert written_as("m.txt") is None
    with pytest.raises(ValueError, match="must be one of safetensors, gguf, npz, npy, torch"):
        make_writer("onnx")


@pytest.mark.parametrize("id", MANY)
def test_a_writer_can_lay_out_again(id: str) -> None:
    """A plan may be made twice, of other parts."""
    writer = make_writer(id)
    written(writer, [stored("other", F32, (9, 9)), stored("x", F32, (1,))])
    parts = [stored("a", U8 if id != "gguf" else F32, (5,))]
    assert written(writer, parts) == written(make_writer(id), parts)


CAPS = {
    "ZIP_MAX_ENTRIES": ("npz", "torch"),
    "ZIP_MAX_DIRECTORY": ("npz", "torch"),
    "PICKLE_MAX_BYTES": ("torch",),
    "GGUF_MAX_TENSORS": ("gguf",),
    "GGUF_MAX_KEYS": ("gguf",),
    "SAFETENSORS_MAX_HEADER": ("safetensors",),
}
HOMES = {"ZIP": "zip.write", "PICKLE": "torch.write", "GGUF": "gguf.limits"}
HOMES["SAFETENSORS"] = "safetensors.write"


@pytest.mark.parametrize(("limit", "id"), [(k, id) for k, ids in CAPS.items() for id in ids])
def test_what_no_reader_would_take(limit: str, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parsers' permanent caps hold for the writers."""
    home = HOMES[limit.partition("_")[0]]
    parts = [Part(str(i), F32, (1,)) for i in range(9)]
    metadata = {str(i): "" for i in range(9)} if make_writer(id).takes_metadata else {}
    assert make_writer(id).lay_out(parts, metadata)
    monkeypatch.setattr(f"anamnesis.formats.{home}.{limit}", 8)
    with pytest.raises(an.LimitExceeded, match=limit) as caught:
        make_writer(id).lay_out(parts, metadata)
    assert caught.value.limit == limit


@pytest.mark.parametrize("id", MANY)
def test_elements_that_fill_no_bytes(id: str) -> None:
    writer = make_writer(id)
    part = Part("a", DTYPES["F4"], (3,))
    if writer.holds(part.dtype):
        assert "a byte" in str(writer.refuses(part)) or "whole bytes" in str(writer.refuses(part))
    with pytest.raises(an.UnsupportedError, match="tensor 'a': "):
        writer.lay_out([part], {})


def test_the_page_on_writing_says_what_is_held() -> None:
    page = (Path(__file__).parents[2] / "docs" / "writing.md").read_text(encoding="utf-8")
    columns = ("safetensors", "gguf", "npz", "torch")
    said: dict[str, set[str]] = {id: set() for id in columns}
    for row in re.findall(r"^\| (.*) \|$", page, re.MULTILINE):
        first, *cells = row.split(" | ")
        names = set(re.findall(r"`(\w+)`", first)) & set(EVERY_DTYPE)
        names |= set(BLOCK_DTYPES) if first.startswith("ggml") else set()
        for id, cell in zip(columns, cells, strict=False):
            said[id] |= names if cell.startswith("yes") else set()
    assert said == {id: HELD[id] for id in columns}
