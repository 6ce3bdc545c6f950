"""All verbs as functions, what a file is by its first bytes, and modules without an import."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import write_safetensors

ARRAYS = {"a.weight": np.arange(128 * 128, dtype=np.float32).reshape(128, 128)}
WRITTEN = {"safetensors": "safetensors", "gguf": "gguf", "npz": "npz", "npy": "npy", "pth": "torch"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    an.save(ARRAYS, tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


def test_verbs(path: Path) -> None:
    out = path.parent
    an.convert(path, out / "one.npz", "npz-f16", mmap=True)
    an.forget(path, out / "one.safetensors", "fp8-block")
    with an.parse(path) as model:
        model.convert(out / "two.npz", "npz-f16")
        model.forget(out / "two.safetensors", "fp8-block")
        assert an.plan(path, "fp8-block").to_dict() == model.plan("fp8-block").to_dict()
    for ending in ("npz", "safetensors"):
        assert (out / f"one.{ending}").read_bytes() == (out / f"two.{ending}").read_bytes()
    with pytest.raises(TypeError, match="no option 'thread'"):
        an.convert(path, out / "x", thread=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("ending", WRITTEN)
def test_detected(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    an.save(ARRAYS, path)
    assert an.detect_format(path) == WRITTEN[ending]
    raw = path.read_bytes()
    assert an.detect_format(raw) == WRITTEN[ending]
    stream = io.BytesIO(raw)
    stream.seek(3)
    assert an.detect_format(stream) == WRITTEN[ending]
    assert stream.tell() == 3
    (tmp_path / "model").write_bytes(raw)  # whatever it is called
    assert an.detect_format(str(tmp_path / "model")) == WRITTEN[ending]
    if ending in ("safetensors", "gguf", "npy"):
        assert an.detect_format(raw[:100]) == WRITTEN[ending]


def test_nothing_that_is_read(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("readme", "")
    for raw in (
        b"",
        b"x",
        b"<html>",
        bytes(100),
        b"PK\3\4 and more",
        archive.getvalue(),
        b"\x80\2].",
    ):
        assert an.detect_format(raw) is None
    with pytest.raises(FileNotFoundError):
        an.detect_format(tmp_path / "nothing")
    with pytest.raises(TypeError, match="cannot read an int"):
        an.detect_format(3)  # type: ignore[arg-type]


def test_every_first_bytes_of_a_file(path: Path) -> None:
    """Whatever is cut off: an answer, and no error."""
    files = [path.read_bytes()[:40]]
    for ending in WRITTEN:
        an.save({"a": np.ones(2, np.float32)}, path.parent / f"b.{ending}")
        files.append((path.parent / f"b.{ending}").read_bytes())
    for raw in files:
        for end in range(0, len(raw), 7):
            assert an.detect_format(raw[:end]) in (None, *WRITTEN.values())


def test_modules_without_an_import() -> None:
    code = (
        "import anamnesis as an, sys; assert 'anamnesis.schemes' not in sys.modules;"
        "an.schemes.fp8.dequantize; an.schemes.bnb.NF4; assert 'schemes' in dir(an)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'scheme'"):
        an.scheme  # noqa: B018


def test_codebooks_are_those_of_files(tmp_path: Path) -> None:
    from anamnesis.schemes import bnb

    for kind, table in (("nf4", bnb.NF4), ("fp4", bnb.FP4)):
        an.save(ARRAYS, tmp_path / f"{kind}.safetensors", f"bnb-{kind}")
        with an.parse(tmp_path / f"{kind}.safetensors") as model:
            raw = model.stored["a.weight.quant_map"].read()
        assert table.dtype == np.float32
        assert table.tobytes() == raw
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 1


def test_a_broken_file_is_still_of_a_format(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"a": ("F32", (9,), b"")})
    assert an.detect_format(path) == "safetensors"
    with pytest.raises(an.ParseError):
        an.parse(path)
