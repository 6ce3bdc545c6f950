"""Importance matrices: both kinds read as they were made, and what is none refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.formats.imatrix import is_dat
from anamnesis.schemes import ggml
from helpers import gguf_handmade as handmade
from helpers import whole_gguf

KEYS = {
    "imatrix.datasets": handmade.Array(handmade.STRING, ["a.txt"]),
    "imatrix.chunk_count": (handmade.U32, 3),
    "imatrix.chunk_size": (handmade.U32, 512),
}


def numbers(*values: float, shape: tuple[int, ...] = ()) -> Any:
    raw = np.array(values, "<f4").tobytes()
    return handmade.Tensor(shape or (len(values),), 0, raw)


def gguf(entries: dict[str, Any], keys: dict[str, Any] | None = None) -> bytes:
    return handmade.gguf_bytes(KEYS if keys is None else keys, entries)


def entry(name: str, sums: tuple[float, ...], counts: tuple[float, ...] = (1.0,)) -> dict[str, Any]:
    return {f"{name}.in_sum2": numbers(*sums), f"{name}.counts": numbers(*counts)}


def dat(*entries: tuple[bytes, int, tuple[float, ...]], tail: bytes = b"") -> bytes:
    out = struct.pack("<i", len(entries))
    for name, calls, sums in entries:
        out += struct.pack("<i", len(name)) + name + struct.pack("<ii", calls, len(sums))
        out += np.array(sums, "<f4").tobytes()
    return out + tail


@pytest.mark.parametrize("model", ["llama", "moe"])
def test_gguf(model: str) -> None:
    wanted = whole_gguf.importance(model)
    found = an.read_imatrix(whole_gguf.imatrix_gguf(model))
    assert (found.kind, found.n_chunks, found.chunk_size) == ("gguf", 12, 512)
    assert found.datasets == ("wiki.train.raw", "more.txt")
    assert found.entries.keys() == wanted.keys()
    for name, (sums, counts) in wanted.items():
        one = found.entries[name]
        assert one.counts == tuple(counts[:, 0].astype(int))
        used = np.where(counts > 0, counts, 1)
        mean = np.where(counts > 0, sums / used, np.float32(1))
        assert one.values.tobytes() == mean.astype(np.float32).tobytes()


def test_dat() -> None:
    wanted = whole_gguf.importance("llama")
    found = an.read_imatrix(whole_gguf.imatrix_dat("llama"))
    assert (found.kind, found.n_chunks, found.chunk_size) == ("dat", 12, 0)
    assert found.datasets == ("wiki.train.raw",)
    assert list(found.entries) == list(wanted)
    for name, (sums, counts) in wanted.items():
        calls = 0 if name.endswith("0.attn_q.weight") else int(counts.max())
        one = found.entries[name]
        assert one.counts == (calls,)
        assert one.values.tobytes() == (sums / np.float32(calls or 1)).tobytes()


def test_dat_without_a_tail() -> None:
    """As they were before 2024."""
    found = an.read_imatrix(dat((b"a", 2, (4.0, 6.0))))
    assert (found.n_chunks, found.datasets) == (0, ())
    assert found.entries["a"].values.tolist() == [2.0, 3.0]
    found = an.read_imatrix(dat((b"a", 2, (4.0,)), tail=struct.pack("<i", 7)))
    assert (found.n_chunks, found.datasets) == (7, ())


def test_counts_are_rounded_as_the_tool_rounds() -> None:
    found = an.read_imatrix(gguf(entry("a", (10.0, 10.0, 10.0, 10.0), (2.5, 0.4, -3.0, 2.0))))
    assert found.entries["a"].counts == (3, 0, -3, 2)
    third = float(np.float32(10) / np.float32(3))
    assert found.entries["a"].values.tolist() == [third, 1.0, 1.0, 5.0]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "takes 4 bytes, and 0 are left"),
        (dat(), "the number of entries is 0"),
        (struct.pack("<i", -1), "the number of entries is -1"),
        (struct.pack("<ii", 1, 0), "the length of a name is 0"),
        (struct.pack("<ii", 1, -5), "the length of a name is -5"),
        (dat((b"a", 1, ())), "the number of values is 0"),
        (dat((b"a", 1, (1.0, 2.0)))[:-1], "takes 8 bytes, and 7 are left"),
        (dat((b"a", 1, (1.0,)), tail=b"abc"), "the number of chunks takes 4 bytes"),
        (dat((b"a", 1, (1.0,)), tail=struct.pack("<ii", 1, -1)), "the dataset is -1"),
        (dat((b"a", 1, (float("nan"),))), "a: its importance holds"),
        (dat((b"a", 1, (-1.0,))), "a: its importance holds"),
        (gguf({}), "it has no entries"),
        (gguf(entry("a", (1.0,)), {}), "it has not all of"),
        (gguf({"a.counts": numbers(1.0)}), "a: has sums or counts alone"),
        (gguf({"a.in_sum2": numbers(1.0)}), "a: has sums or counts alone"),
        (gguf(entry("a", (1.0, 2.0, 3.0), (1.0, 1.0))), "as many sums for each of the counts"),
        (gguf(entry("a", (), (1.0,))), "as many sums for each of the counts"),
        (gguf(entry("a", (1.0,), ())), "as many sums for each of the counts"),
        (gguf(entry("a", (1.0,), (float("inf"),))), "its counts are no counts"),
        (gguf(entry("a", (1.0,), (3e9,))), "its counts are no counts"),
        (gguf(entry("a", (float("inf"),))), "a: its importance holds"),
    ],
)
def test_what_is_none_is_refused(raw: bytes, told: str) -> None:
    with pytest.raises(an.ParseError, match=told):
        an.read_imatrix(raw)


def test_caps() -> None:
    with pytest.raises(an.LimitExceeded, match="IMATRIX_MAX_ENTRIES"):
        an.read_imatrix(struct.pack("<i", 2**31 - 1))
    with pytest.raises(an.LimitExceeded, match="IMATRIX_MAX_NAME"):
        an.read_imatrix(struct.pack("<ii", 1, 2**31 - 1))


def test_limits() -> None:
    raw = dat((b"a", 1, (1.0,) * 64), (b"b", 1, (1.0,) * 64))
    for limits, told in (
        (an.ParseLimits(max_single_alloc=255), "max_single_alloc"),
        (an.ParseLimits(max_total_bytes=400), "max_total_bytes"),
        (an.ParseLimits(max_item_count=1), "max_item_count"),
    ):
        with pytest.raises(an.LimitExceeded, match=told):
            an.read_imatrix(raw, limits)
    with pytest.raises(an.LimitExceeded, match="max_single_alloc"):
        an.read_imatrix(gguf(entry("a", (1.0,) * 64)), an.ParseLimits(max_single_alloc=255))


def test_each_cut_is_refused() -> None:
    for raw in (dat((b"a", 1, (1.0, 2.0)), (b"b", 1, (3.0,))), gguf(entry("a", (1.0, 2.0)))):
        for n in range(len(raw)):
            with pytest.raises(an.AnamnesisError):
                an.read_imatrix(raw[:n])


@pytest.mark.parametrize("kind", ["dat", "gguf", "unused"])
def test_what_calibration_never_reached_is_not_erased(kind: str, tmp_path: Path) -> None:
    """All columns of an expert: they count alike, and that is said; some columns: said as well."""
    rng = np.random.default_rng(0)
    name = "blk.0.ffn_up_exps.weight"
    importance = rng.uniform(1, 2, (2, 256)).astype(np.float32)
    importance[0] = 0
    importance[1, :3] = 0
    tensors = {name: rng.standard_normal((2, 4, 256), np.float32)}
    metadata = {"general.architecture": "llama", "llama.block_count": 1}
    an.save(tensors, tmp_path / "in.gguf", metadata=metadata)
    (tmp_path / "imatrix").write_bytes(
        dat((name.encode(), 1, tuple(importance.reshape(-1))))
        if kind == "dat"
        else gguf(
            {
                f"{name}.in_sum2": numbers(*importance.reshape(-1), shape=(2, 256)),
                f"{name}.counts": numbers(float(kind != "unused"), 1, shape=(2, 1)),
            }
        )
    )
    out = tmp_path / "out.gguf"
    report = an.convert(
        tmp_path / "in.gguf", out, "gguf-q4_k", imatrix=tmp_path / "imatrix", verify=True
    )
    importance[0] = 1
    with an.parse(out) as model:
        found = model.stored[name].read()
    assert found == ggml.quantize(tensors[name], "Q4_K", imatrix=importance).tobytes()
    assert [w.partition(":")[0] for w in report.warnings if "importance" in w] == [
        f"the importance matrix says nothing of 1 of the matrices, such as in {name!r}",
        f"3 of the columns, such as in {name!r}, have importance 0",
    ]


def test_what_begins_as_a_dat(tmp_path: Path) -> None:
    assert is_dat(dat((b"blk.0.attn_q.weight", 1, (1.0,))))
    an.save({"a": np.ones(4, np.float32)}, tmp_path / "a.safetensors")
    others = (b"", b"GGUF" + bytes(20), b"PK\x03\x04" + bytes(30), b"\x80\x02}q\0\0\0\0\0\0\0\0")
    assert not any(map(is_dat, (*others, (tmp_path / "a.safetensors").read_bytes())))


def test_one_that_is_read_is_taken(tmp_path: Path) -> None:
    """So are those that are changed first."""
    from dataclasses import replace

    model, imatrix = tmp_path / "model.gguf", tmp_path / "imatrix.gguf"
    model.write_bytes(whole_gguf.gguf_bytes("qwen2"))
    imatrix.write_bytes(whole_gguf.imatrix_gguf("qwen2"))
    read = an.read_imatrix(imatrix)
    an.convert(model, tmp_path / "a.gguf", "gguf-q4_k_m", imatrix=imatrix)
    an.convert(model, tmp_path / "b.gguf", "gguf-q4_k_m", imatrix=read)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    none = replace(read, entries={"another": read.entries["blk.0.attn_q.weight"]})
    an.convert(model, tmp_path / "c.gguf", "gguf-q4_k_m", imatrix=none)
    an.convert(model, tmp_path / "d.gguf", "gguf-q4_k_m")
    c, d = (an.parse(tmp_path / name) for name in ("c.gguf", "d.gguf"))
    assert c.metadata["quantize.imatrix.entries_count"] == 1
    assert all(c.stored[name].read() == d.stored[name].read() for name in d.stored)


def test_limits_of_a_model_hold_for_its_importance(tmp_path: Path) -> None:
    (tmp_path / "imatrix.dat").write_bytes(dat((b"a", 1, (1.0,) * 4096)))
    raw = whole_gguf.gguf_bytes("qwen2")
    limits = an.ParseLimits(max_single_alloc=16_000)
    told = pytest.raises(an.LimitExceeded, match="the importance of a")
    with an.parse(raw, limits=limits) as model, told:
        model.plan("gguf-q4_k_m", imatrix=tmp_path / "imatrix.dat")


@pytest.mark.parametrize(
    ("importance", "count", "words"),
    [
        (1e38, 1.0, "'a.weight': what comes back is no nearer than zeros"),
        (1.0, -3.0, "the importance matrix says nothing of 1 of the matrices"),
        (1.0, 1.0, ""),
    ],
)
def test_what_an_importance_spoils_is_said(
    importance: float, count: float, words: str, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32)
    an.save({"a.weight": values}, tmp_path / "in.safetensors")
    sums = entry("a.weight", (importance,) * 256, (count,))
    (tmp_path / "m.gguf").write_bytes(gguf(sums))
    report = an.convert(
        tmp_path / "in.safetensors",
        tmp_path / "out.gguf",
        "gguf-iq4_xs",
        imatrix=tmp_path / "m.gguf",
        names="keep",
        overrides={"a.weight": "iq4_xs"},
    )
    said = "; ".join(report.warnings)
    assert words in said
    assert bool(words) == ("importance" in said or "zeros" in said)
