"""Any container into any other: what is loaded from it is what was in the model."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers import gguf_handmade as handmade
from helpers.handmade import safetensors_bytes, write_safetensors
from helpers.npy_cases import npz
from helpers.toy_models import write_file, write_shards

TARGETS = ("safetensors", "gguf", "npz", "pth")
F32, Q8_0, Q4_0 = 0, 8, 2


def gguf_model() -> bytes:
    """Blocks of two types between tensors that are plain, and metadata of several types."""
    rng = np.random.default_rng(2)
    blocks = {
        "blk.0.attn_q.weight": handmade.Tensor([64, 6], Q8_0, rng.bytes(12 * 34)),
        "blk.0.norm.weight": handmade.Tensor([6], F32, rng.normal(size=6).astype("f4").tobytes()),
        "blk.0.up.weight": handmade.Tensor([96, 5], Q4_0, rng.bytes(15 * 18)),
    }
    keys = {
        "general.architecture": (handmade.STRING, "toy"),
        "toy.heads": (handmade.U16, 3),
        "toy.list": handmade.Array(handmade.I32, list(range(5000))),
    }
    raw = handmade.gguf_bytes(keys, blocks)
    return raw + bytes(-len(raw) % 32)


def npz_model() -> bytes:
    """Arrays that every container holds."""
    rng = np.random.default_rng(3)
    floats = {"a": rng.normal(size=(30, 50)), "half": rng.normal(size=300).astype("f2")}
    return npz({**floats, "b": np.arange(7, dtype="i2")})


@pytest.fixture(params=["safetensors", "gguf", "npz", "directory"])
def any_source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model in each container."""
    if request.param == "directory":
        return write_shards(tmp_path)
    if request.param == "safetensors":
        return write_file(tmp_path)
    path = tmp_path / f"model.{request.param}"
    path.write_bytes(gguf_model() if request.param == "gguf" else npz_model())
    return path


def values(model: an.Model) -> dict[str, tuple[tuple[int, ...], bytes]]:
    return {name: (model[name].shape, model[name].numpy("bf16").tobytes()) for name in model}


@pytest.mark.parametrize("to", TARGETS)
def test_every_pair(to: str, any_source: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out.{to}"
    with an.parse(any_source) as model:
        report = model.convert(out, to, verify=True, threads=2)
        stream = io.BytesIO()
        model.convert(stream, to, threads=3)
        assert stream.getvalue() == out.read_bytes()
        want = values(model)
        assert report.format == ("torch" if to == "pth" else to)
        if any_source.is_dir():
            assert {"config.json", "tokenizer.json"} <= {d.name for d in report.dropped}
    with an.parse(out) as written:
        assert values(written) == want
        assert not written.problems
    again = out.with_name(f"again.{to}")
    with an.parse(any_source) as model:
        model.convert(again, to, threads=1)
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("threads", [1, 3])
def test_gguf_to_gguf_is_the_same_file(threads: int, tmp_path: Path) -> None:
    (tmp_path / "in.gguf").write_bytes(gguf_model())
    with an.parse(tmp_path / "in.gguf") as model:
        report = model.convert(tmp_path / "out.gguf", "gguf", threads=threads)
        assert (tmp_path / "out.gguf").read_bytes() == gguf_model()
        assert not report.dropped
        model.convert(tmp_path / "plain.gguf", "gguf", overrides={"*.up.*": "f32"})
        want = {name: model[name].numpy("f32").tobytes() for name in model}
    with an.parse(tmp_path / "plain.gguf") as written:
        schemes = {name: written[name].scheme for name in written}
        assert list(schemes.values()) == ["Q8_0", "F32", "F32"]
        assert {name: written[name].numpy("f32").tobytes() for name in written} == want
        assert list(written.metadata["toy.list"]) == list(range(5000))


def test_a_dtype_that_is_asked_for_leaves_no_blocks(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    an.save({"blk.0.attn_q.weight": values, "output_norm.weight": values[0]}, tmp_path / "f.gguf")
    an.convert(tmp_path / "f.gguf", tmp_path / "in.gguf", "gguf-q8_0")
    with an.parse(tmp_path / "in.gguf") as model:
        assert model["blk.0.attn_q.weight"].scheme == "Q8_0"
        model.convert(tmp_path / "0.gguf", "gguf-f16")
        model.convert(tmp_path / "1.gguf", "f16")
        model.convert(tmp_path / "2.gguf", "gguf", dtype="f16")
        for n in range(3):
            with an.parse(tmp_path / f"{n}.gguf") as written:
                assert {written[name].scheme for name in written} == {"F16", "F32"}


def test_metadata_of_gguf(tmp_path: Path) -> None:
    told = {"general.architecture": "mine", "mine.layers": 3, "mine.list": [1.5, 2.5]}
    with an.parse(write_file(tmp_path)) as model:
        report = model.convert(tmp_path / "out.gguf", "gguf", metadata=told)
        with pytest.raises(an.UnsupportedError, match="place for metadata"):
            model.convert(tmp_path / "out.npz", "npz", metadata=told)
    assert not (tmp_path / "out.npz").exists()
    assert "made" in {d.name for d in report.dropped}
    with an.parse(tmp_path / "out.gguf") as written:
        assert {key: written.metadata[key] for key in told} == told


@pytest.mark.parametrize(
    ("name", "entry", "to", "why"),
    [
        ("flag", ("BOOL", (2,), bytes(2)), "gguf", "BOOL"),
        ("five", ("F32", (1, 1, 1, 1, 1), bytes(4)), "gguf", "4 dimensions"),
        ("x" * 64, ("F32", (1,), bytes(4)), "gguf", "64 bytes"),
        ("../up", ("F32", (1,), bytes(4)), "npz", "outside"),
    ],
)
def test_what_a_container_cannot_hold(
    name: str, entry: Any, to: str, why: str, tmp_path: Path
) -> None:
    source = write_safetensors(tmp_path / "in.safetensors", {"a": ("I8", (1,), b"x"), name: entry})
    with an.parse(source) as model:
        with pytest.raises(an.UnsupportedError, match=why) as caught:
            model.convert(tmp_path / "out", to)
        assert name in str(caught.value)
        assert "in.safetensors" in str(caught.value)
        with pytest.raises(an.UnsupportedError, match=why):
            model.convert(io.BytesIO(), to)
    assert [p.name for p in tmp_path.iterdir()] == ["in.safetensors"]


@pytest.mark.parametrize(
    "options", [{}, {"allow_unknown": True}, {"overrides": {"*": "keep"}}], ids=str
)
@pytest.mark.parametrize("dtype", ["BOOL", "U16", "C64"])
def test_what_to_do_about_a_dtype(dtype: str, options: Any) -> None:
    """GGUF has no bytes either, so that no option helps: the dtype is named, not that of bytes."""
    model = an.parse(safetensors_bytes({"a": (dtype, (0,), b"")}))
    told = rf"'a'.* {dtype}.*; write safetensors, NPZ, .* instead$"
    with pytest.raises(an.UnsupportedError, match=told):
        model.convert(io.BytesIO(), "gguf", **options)


DTYPES = {
    **{f"I{n}": f"<i{n // 8}" for n in (8, 16, 32, 64)},
    **{f"U{n}": f"<u{n // 8}" for n in (8, 16, 32, 64)},
    "BOOL": "?",
    "F64": "<f8",
    "C64": "<c8",
}


def test_scalars_and_dtypes_of_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    want, tensors = {}, {}
    for dtype, kind in DTYPES.items():
        for i, shape in enumerate([(), (3,), (2, 0), (2, 3)]):
            array = want[f"{dtype} {i}"] = rng.integers(0, 2, shape).astype(kind)
            tensors[f"{dtype} {i}"] = (dtype, shape, array.tobytes())
    source = write_safetensors(tmp_path / "in.safetensors", tensors)
    with an.parse(source) as model:
        model.convert(tmp_path / "out.npz", "npz", verify=True)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as found:
        assert set(found) == set(want)
        for name, array in want.items():
            assert found[name].dtype == array.dtype
            assert found[name].shape == array.shape
            assert found[name].tobytes() == array.tobytes()
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        assert archive.testzip() is None


def test_npz_that_was_resumed(model: an.Model, tmp_path: Path) -> None:
    """Checksums are of bands that two runs have written."""

    class Stop(Exception):
        pass

    def progress(done: int, _: int) -> None:
        if done > 30_000:
            raise Stop

    with pytest.raises(Stop):
        model.convert(tmp_path / "out.npz", "npz", threads=1, progress=progress)
    model.convert(tmp_path / "out.npz", "npz", resume=True, verify=True)
    model.convert(tmp_path / "want.npz", "npz")
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "want.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        assert archive.testzip() is None
    began = (tmp_path / "out.npz").stat().st_mtime_ns
    model.convert(tmp_path / "out.npz", "npz", resume=True)
    assert (tmp_path / "out.npz").stat().st_mtime_ns == began
