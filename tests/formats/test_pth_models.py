"""Torch files as models: subtrees, foreign globals, directories, what is refused, what is read."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import anamnesis as an
from helpers.torch_cases import assert_same, raw, saved
from helpers.torch_models import Net

WEIGHTS = {f"layers.{i}.weight": torch.randn(4, 3) for i in range(4)}


def test_state_dict_in_short(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    torch.save(WEIGHTS, path)
    with an.parse(path) as model:
        assert model.format == "PyTorch state_dict"
        assert dict(model.metadata) == {}
        assert model.inspect().facts == {"byte_order": "little"}
        assert "Byte order:  little-endian" in str(model.inspect())


@pytest.mark.parametrize("prefix", ["ema.model", "ema.model."])
def test_a_subtree(prefix: str) -> None:
    data = saved({"ema": {"model": WEIGHTS, "step": 3}, "model": {"x": torch.ones(1)}, "epoch": 9})
    with an.parse(data, select=prefix) as model:
        assert list(model) == list(WEIGHTS)
        assert dict(model.metadata) == {}
        for name, tensor in WEIGHTS.items():
            assert model[name].numpy().tobytes() == raw(tensor)
        report = model.remember(lambda *_: None)
    assert [(d.name, d.reason) for d in report.dropped] == [("model.x", "outside the selection")]


def test_one_tensor_and_none() -> None:
    data = saved({"a": {"b": torch.ones(2), "c": torch.ones(3)}})
    assert list(an.parse(data, select="a.b")) == ["b"]
    with pytest.raises(an.ParseError, match=r"no name starts with 'x.'; top level: 'a'"):
        an.parse(data, select="x")


def test_a_subtree_keeps_its_own_ties_and_values() -> None:
    shared = torch.ones(3)
    data = saved({"m": {"a": shared, "b": shared, "n": 1}, "c": shared, "epoch": 2})
    with an.parse(data, select="m") as model:
        assert model.inspect().tied == (("a", "b"),)
        assert dict(model.metadata) == {"n": 1}


def test_a_subtree_of_safetensors(write_model: Any) -> None:
    path = write_model({"a.x": ("F32", (1,), bytes(4)), "b.x": ("F32", (2,), bytes(8))})
    with an.parse(path, select="b") as model:
        assert [t.shape for t in model.values()] == [(2,)]


def test_a_foreign_global() -> None:
    value = {"args": argparse.Namespace(lr=0.5, layers=[1, 2]), "model": WEIGHTS}
    data = saved(value)
    with pytest.raises(an.DisallowedGlobal) as raised:
        an.parse(data)
    assert (raised.value.module, raised.value.name) == ("argparse", "Namespace")
    with an.parse(data, allow_foreign=True) as model:
        assert_same(model, value)
        assert dict(model.metadata) == {"args.lr": 0.5, "args.layers": [1, 2]}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code:UserWarning")
def test_a_whole_module_has_the_names_of_its_state(zipped: bool) -> None:
    net = Net()
    data = saved(net, _use_new_zipfile_serialization=zipped)
    with an.parse(data, allow_foreign=True) as model:
        assert {n: t.read() for n, t in model.stored.items()} == {
            n: raw(t) for n, t in net.state_dict().items()
        }


def test_two_of_one_name() -> None:
    data = saved({"a.b": torch.ones(1), "a": {"b": torch.ones(2)}})
    with pytest.raises(an.ParseError, match=r"two values would both be called 'a\.b'"):
        an.parse(data)


REFUSED = {
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(4).to_sparse_csr(),
    "conj": lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
    "neg": lambda: torch.ones(2, 3, dtype=torch.complex64).conj().imag,
    "meta": lambda: torch.ones(2, 3, device="meta"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refused_by_name(kind: str) -> None:
    data = saved({"good": torch.ones(2), "bad": REFUSED[kind]()})
    with an.parse(data) as model:
        assert list(model.stored) == ["good", "bad"]
        assert list(model.problems) == ["bad"]
        assert "Problem" in str(model.inspect())
        with pytest.raises(an.UnsupportedError, match="tensor 'bad' "):
            model["bad"]
        with pytest.raises(an.UnsupportedError, match="tensor 'bad' "):
            model.remember_to_bytes()
        assert model["good"].numpy().tolist() == [1, 1]


def big_endian(data: bytes, value: dict[str, torch.Tensor]) -> bytes:
    """Return an archive as a big-endian system writes it."""
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        storages = iter(value.values())
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("byteorder"):
                content = b"big"
            elif "/data/" in name:
                tensor = next(storages)
                width = tensor.element_size() // (2 if tensor.is_complex() else 1)
                rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, width)
                content = rows.flip(1).numpy().tobytes()
            new.writestr(name, content)
    return out.getvalue()


def test_big_endian() -> None:
    value = {
        "f": torch.randn(5),
        "half": torch.randn(3).half(),
        "i": torch.arange(7),
        "bytes": torch.arange(9, dtype=torch.uint8),
        "complex": torch.randn(4, dtype=torch.complex64),
        "complex of doubles": torch.randn(4, dtype=torch.complex128),
        "u16": torch.arange(5, dtype=torch.int16).view(torch.uint16),
        "transposed": torch.randn(3, 4).T,
    }
    with an.parse(big_endian(saved(value), value)) as model:
        assert_same(model, value)
        assert model.inspect().facts["byte_order"] == "big"


def test_two_values_in_a_byte() -> None:
    """Torch counts bytes, safetensors values; a byte without dimensions becomes a row of two."""
    raw_bytes = torch.arange(6, dtype=torch.uint8)
    packed = raw_bytes.view(torch.float4_e2m1fn_x2)
    with an.parse(saved({"a": packed.reshape(2, 3), "scalar": packed[5]})) as model:
        assert [t.describe() for t in model.stored.values()] == ["F4 [2, 6]", "F4 [2]"]
        with an.parse(model.remember_to_bytes()) as out:
            assert [t.read() for t in out.stored.values()] == [bytes(range(6)), b"\x05"]


def test_a_deflated_archive() -> None:
    import io
    import zipfile

    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(WEIGHTS))) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with an.parse(out.getvalue()) as model:
        assert_same(model, WEIGHTS)
        assert {n: raw(t) for n, t in WEIGHTS.items()} == {
            n: t.read() for n, t in an.parse(model.remember_to_bytes()).stored.items()
        }


@pytest.mark.parametrize("copy", [False, True])
def test_a_directory_of_shards(tmp_path: Path, copy: bool) -> None:
    root = tmp_path / "model"
    root.mkdir()
    names = list(WEIGHTS)
    index: dict[str, str] = {}
    for i in (1, 2):
        shard = f"pytorch_model-{i:05d}-of-00002.bin"
        part = names[:2] if i == 1 else names[2:]
        torch.save({n: WEIGHTS[n] for n in part}, root / shard)
        index |= dict.fromkeys(part, shard)
    text = json.dumps({"metadata": {}, "weight_map": index})
    (root / "pytorch_model.bin.index.json").write_text(text)
    (root / "config.json").write_text('{"architectures": ["X"]}')
    (root / "tokenizer.json").write_text("{}")
    if copy:
        with an.parse(saved(WEIGHTS)) as model:
            model.remember(root / "model.safetensors")
    out = tmp_path / "out"
    with an.parse(root) as model:
        report = model.remember(out)
    written = {p.name for p in out.iterdir()}
    others = {"config.json", "tokenizer.json"}
    if copy:
        assert written == {"model.safetensors", *others}
        assert {d.reason for d in report.dropped} == {
            "a second copy of the model in PyTorch's format",
            "an index of files that are left out or missing",
        }
    else:
        shards = {f"model-{i:05d}-of-00002.safetensors" for i in (1, 2)}
        assert written == {*shards, "model.safetensors.index.json", *others}
        new = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
        assert new == {
            n: f"model-{1 + i // 2:05d}-of-00002.safetensors" for i, n in enumerate(names)
        }
    with an.parse(out) as model:
        assert {n: t.read() for n, t in model.stored.items()} == {
            n: raw(t) for n, t in WEIGHTS.items()
        }


def test_a_missing_shard(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "pytorch_model-00001-of-00002.bin")
    with pytest.raises(an.ParseError, match=r"pytorch_model-00002-of-00002\.bin is missing"):
        an.parse(tmp_path)


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="no positioned reads")
@pytest.mark.parametrize("zipped", [True, False])
def test_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    """Of 300 MB, parsing and inspecting read less than 100 KiB."""
    path = tmp_path / "model.pth"
    value = {f"layers.{i}.weight": torch.zeros(1000, 1000) for i in range(75)}
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    assert path.stat().st_size > 300_000_000
    read = []
    pread, preadv = os.pread, os.preadv

    def counted(fd: int, n_bytes: int, offset: int) -> bytes:
        data = pread(fd, n_bytes, offset)
        read.append(len(data))
        return data

    def counted_into(fd: int, buffers: list[memoryview], offset: int) -> int:
        read.append(preadv(fd, buffers, offset))
        return read[-1]

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.setattr(os, "preadv", counted_into)
    with an.parse(path) as model:
        model.inspect()
        assert len(model) == 75
    assert 5_000 < sum(read) < 100 << 10


def test_values_that_are_listed_too_often() -> None:
    """A list of lists of lists, each shared ten times, is small as a pickle and huge as names."""
    value: object = [1]
    for _ in range(8):
        value = [value] * 10
    with pytest.raises(an.LimitExceeded, match="listed too many times") as raised:
        an.parse(saved(value))
    assert raised.value.limit == "PTH_MAX_VISITS"
