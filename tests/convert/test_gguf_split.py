"""GGUF in parts: the files are those that llama.cpp's own gguf-split writes, and gguf-py reads."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import anamnesis as an
from helpers import gguf_handmade as handmade
from helpers.scripts import HELPERS, environment

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ggml_c

F32, F16, Q8_0 = 0, 1, 8


def model_bytes(*n_rows: int) -> bytes:
    """Tensors of 400 bytes a row, one of blocks, and metadata of several types."""
    rng = np.random.default_rng(4)
    tensors = {
        f"blk.{i}.weight": handmade.Tensor([100, n], F32, rng.bytes(n * 400))
        for i, n in enumerate(n_rows)
    }
    tensors["blk.blocks"] = handmade.Tensor([32, 100], Q8_0, rng.bytes(3400))
    tensors["blk.odd"] = handmade.Tensor([7], F16, rng.bytes(14))
    keys = {
        "general.architecture": (handmade.STRING, "toy"),
        "toy.list": handmade.Array(handmade.I32, list(range(500))),
    }
    raw = handmade.gguf_bytes(keys, tensors)
    return raw + bytes(-len(raw) % 32)


def files(folder: Path, stem: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"{stem}*"))}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.gguf"
    path.write_bytes(model_bytes(1000, 1000, 500, 1000, 3000, 3, 2440))
    return path


@pytest.mark.parametrize("mega", [1, 2])
def test_the_files_are_those_of_gguf_split(mega: int, source: Path, tmp_path: Path) -> None:
    """Of a tensor that fills a part to the byte, too, and of one that is larger than a part."""
    command = [str(ggml_c.gguf_split()), "--split-max-size", f"{mega}M", str(source)]
    (tmp_path / "theirs").mkdir()
    subprocess.run([*command, str(tmp_path / "theirs" / "out")], check=True, capture_output=True)
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out.gguf", "gguf", split_max_size=mega * 10**6)
    theirs = files(tmp_path / "theirs", "out")
    assert len(theirs) == report.n_files == {1: 4, 2: 3}[mega]
    assert files(tmp_path, "out") == theirs
    assert report.n_bytes == sum(map(len, theirs.values()))
    assert report.path == str(tmp_path / f"out-00001-of-0000{len(theirs)}.gguf")


def test_gguf_split_joins_them(source: Path, tmp_path: Path) -> None:
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out.gguf", "gguf", split_max_size=10**6)
    command = [str(ggml_c.gguf_split()), "--merge", str(report.path), str(tmp_path / "joined.gguf")]
    subprocess.run(command, check=True, capture_output=True)
    # It leaves the keys behind that say which part a file is; the tensors are as they were.
    want, found = gguf.GGUFReader(source), gguf.GGUFReader(tmp_path / "joined.gguf")
    assert [t.name for t in found.tensors] == [t.name for t in want.tensors]
    for one, other in zip(want.tensors, found.tensors, strict=True):
        assert one.data.tobytes() == other.data.tobytes()


def test_read_back(source: Path, tmp_path: Path) -> None:
    with an.parse(source) as model:
        plan = model.plan("gguf", split_max_size=500_000)
        report = model.convert(tmp_path / "out.gguf", "gguf", split_max_size=500_000, verify=True)
        model.convert(tmp_path / "again.gguf", "gguf", split_max_size=500_000, threads=3)
        want = {name: model[name].numpy("f32").tobytes() for name in model}
    assert not (tmp_path / "out.gguf").exists()
    names = [Path(file.name).name for file in plan.files]
    assert names == [name.replace("out", "model") for name in sorted(files(tmp_path, "out"))]
    assert list(files(tmp_path, "out").values()) == list(files(tmp_path, "again").values())
    for path in (report.path, tmp_path / f"out-00003-of-0000{report.n_files}.gguf"):
        with an.parse(str(path)) as written:
            assert {name: written[name].numpy("f32").tobytes() for name in written} == want
            assert written.metadata["general.architecture"] == "toy"
    types = gguf.GGUFValueType
    tensors: dict[str, bytes] = {}
    for i, name in enumerate(sorted(files(tmp_path, "out"))):
        reader = gguf.GGUFReader(tmp_path / name)
        fields = {key: reader.fields[key] for key in reader.fields if key.startswith("split.")}
        assert {key: field.contents() for key, field in fields.items()} == {
            "split.no": i,
            "split.count": report.n_files,
            "split.tensors.count": report.n_out,
        }
        kinds = [types.UINT16, types.INT32, types.UINT16]
        assert [field.types[0] for field in fields.values()] == kinds
        assert ("general.architecture" in reader.fields) == (i == 0)
        tensors |= {tensor.name: tensor.data.tobytes() for tensor in reader.tensors}
    whole = {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(source).tensors}
    assert tensors == whole


def test_parts_into_other_parts_and_one_file(source: Path, tmp_path: Path) -> None:
    """The keys of the source's parts stay behind."""
    with an.parse(source) as model:
        parts = model.convert(tmp_path / "parts.gguf", "gguf", split_max_size=500_000)
        model.convert(tmp_path / "want.gguf", "gguf", split_max_size=10**6)
    with an.parse(str(parts.path)) as model:
        model.convert(tmp_path / "out.gguf", "gguf", split_max_size=10**6)
        report = model.convert(tmp_path / "whole.gguf", "gguf", split_max_size=10**9)
        assert report.n_files == 1
        with pytest.raises(an.OutputError, match="is the input"):
            model.convert(tmp_path / "parts.gguf", "gguf", split_max_size=500_000, force=True)
    out, want = files(tmp_path, "out"), files(tmp_path, "want")
    assert list(out.values()) == list(want.values())
    assert (tmp_path / "whole.gguf").read_bytes() == source.read_bytes()


def test_metadata_of_ones_own(source: Path, tmp_path: Path) -> None:
    told = {"general.alignment": 128, "split.no": None}
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out.gguf", "gguf", metadata=told, split_max_size=10**6)
        want = {name: model[name].numpy("f32").tobytes() for name in model}
    with an.parse(str(report.path)) as written:
        assert written.metadata["general.alignment"] == 128
        assert {name: written[name].numpy("f32").tobytes() for name in written} == want


@pytest.mark.parametrize("key", ["split.no", "split.count", "split.tensors.count"])
@pytest.mark.parametrize("size", [None, 10**6])
def test_metadata_that_say_which_part_a_file_is_are_refused(
    key: str, size: int | None, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.gguf"
    with an.parse(source) as model:
        with pytest.raises(an.UnsupportedError, match=f"metadata '{key}': says which part"):
            model.convert(out, "gguf", metadata={key: 3}, split_max_size=size)
        assert not out.exists()
        model.convert(out, "gguf", metadata=model.metadata)  # those of a file leave it out


def test_what_is_there_already(source: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"split_max_size": 10**6}
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out.gguf", "gguf", **how)
        last = tmp_path / f"out-{report.n_files:05d}-of-{report.n_files:05d}.gguf"
        want = files(tmp_path, "out")
        for path in (Path(str(report.path)), last):
            (began := tmp_path / "kept").write_bytes(b"old")
            for other in tmp_path.glob("out-*"):
                other.unlink()
            began.rename(path)
            with pytest.raises(an.OutputError, match=f"{path.name}: exists"):
                model.convert(tmp_path / "out.gguf", "gguf", **how)
            assert list(files(tmp_path, "out")) == [path.name]
            model.convert(tmp_path / "out.gguf", "gguf", **how, force=True)
            assert files(tmp_path, "out") == want
        last.unlink()
        last.mkdir()
        with pytest.raises(an.OutputError, match="is not a regular file"):
            model.convert(tmp_path / "out.gguf", "gguf", **how, force=True)


def test_a_part_that_is_the_input(tmp_path: Path) -> None:
    source = tmp_path / "out-00001-of-00004.gguf"
    source.write_bytes(model_bytes(1000, 1000, 1000))
    with an.parse(source) as model, pytest.raises(an.OutputError, match="is the input"):
        model.convert(
            tmp_path / "out.gguf", "gguf", split_max_size=400_000, allow_unknown=True, force=True
        )


def test_what_is_refused(source: Path, tmp_path: Path) -> None:
    with an.parse(source) as model:
        with pytest.raises(ValueError, match="split_max_size is for GGUF files, not safetensors"):
            model.convert(tmp_path / "out", "bf16", split_max_size=10**6)
        with pytest.raises(ValueError, match="split_max_size is for GGUF files, not npz"):
            model.plan("npz", split_max_size=10**6)
        with pytest.raises(ValueError, match="split_max_size must be at least 1"):
            model.plan("gguf", split_max_size=0)
        with pytest.raises(an.OutputError, match="a stream takes one file; leave split_max_size"):
            model.convert(io.BytesIO(), "gguf", split_max_size=10**6)
        with pytest.raises(an.OutputError, match=r"into shards; split_max_size=\.\.\. cuts"):
            model.convert(tmp_path / "out.gguf", "gguf", max_shard_size=10**6)
        with pytest.raises(TypeError, match="no option 'split_max_size'"):
            model.remember(tmp_path / "out.gguf", split_max_size=10**6)  # type: ignore[call-arg]
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("before", ["none", "full"])
def test_killed_at_every_system_call(before: str, tmp_path: Path) -> None:
    script = HELPERS / "split_crashes.py"
    done = subprocess.run(
        [sys.executable, str(script), before, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50
