"""Files that are no model are named with a remedy, and no safetensors is taken for one of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sqlite3
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import anamnesis as an
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import safetensors_bytes


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def tarred() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return stream.getvalue()


def database(tmp: Path) -> bytes:
    path = tmp / "x.db"
    connection = sqlite3.connect(path)
    connection.execute("create table t (a)")
    connection.close()
    return path.read_bytes()


README = "# Qwen3\n\nThis is the model card in French: prêt à porter.\n" * 40
CONFIG = json.dumps({"model_type": "llama", "hidden_size": 64}).encode()
ONNX = b"\x08\x08\x12\x07pytorch\x1a\x052.1.0" + bytes(100)

# What it is, by the words that the message must have.
FOREIGN = {
    "JSON": CONFIG,
    "JSON ": b"\n [1, 2, 3]",
    "text": README.encode(),
    "text ": b"hi",
    "an empty file": b"",
    "a PNG image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(50),
    "a JPEG image": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(50),
    "a GIF image": b"GIF89a" + bytes(50),
    "a WebP image": b"RIFF\x24\0\0\0WEBPVP8 " + bytes(50),
    "a WAV or AVI file": b"RIFF\x24\0\0\0WAVEfmt " + bytes(50),
    "a gzip archive": gzip.compress(b"text" * 100, mtime=0),
    "a gzip archive ": gzip.compress(b"", mtime=0),
    "a bzip2 archive": bz2.compress(b"text" * 100),
    "an xz archive": lzma.compress(b"text" * 100),
    "a Zstandard archive": bytes.fromhex("28b52ffd2004210000") + b"text1234",
    "an LZ4 archive": bytes.fromhex("04224d186470b9") + bytes(20),
    "a 7-Zip archive": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(50),
    "a tar archive": tarred(),
    "a ZIP archive without tensors": zipped(a=b"text"),
    "a Keras archive": zipped(**{"config.json": b"{}", "model.weights.h5": b"\x89HDF"}),
    "a PDF document": b"%PDF-1.7\n" + bytes(50),
    "a program or library (ELF)": b"\x7fELF\2\1\1\0" + bytes(50),
    "a program or library (Mach-O)": b"\xcf\xfa\xed\xfe\x0c\0\0\1" + bytes(50),
    "a Windows program or library": b"MZ\x90\0\3\0\0\0\4" + bytes(50),
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(50),
    "an ONNX model": ONNX,
    "a Core ML or TensorFlow model": b"\x08\x04\x12\x10\x0a\x06\x0a\x05image" + bytes(50),
    "a TensorFlow Lite model": b"\x1c\0\0\0TFL3" + bytes(50),
    "a Parquet table": b"PAR1\x15\4\x15\x10" + bytes(50),
    "a GGML file from before GGUF": b"tjgg\1\0\0\0" + bytes(50),
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "a web page": b"<!DOCTYPE html><html></html>",
    "a web page ": b"\n\n<html lang='en'>" + bytes(5),
    "an XML file": b"<?xml version='1.0'?><a/>",
    "a file of zeros": bytes(1000),
    **{
        f"a pickle{' ' * protocol}": pickle.dumps({"a": [1, "x", (2.5, None)]}, protocol=protocol)
        for protocol in range(6)
    },
    "a pickle" + " " * 6: b"ccollections\nOrderedDict\n(tR.",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_is_named(name: str) -> None:
    with pytest.raises(an.ParseError) as raised:
        an.parse(FOREIGN[name])
    message = str(raised.value)
    assert f"this is {name.strip()}" in message
    assert "not a model file" in message
    assert raised.value.offset == 0
    assert raised.value.remedy
    assert "\n" not in message


@pytest.mark.parametrize("name", FOREIGN)
def test_limits_do_not_hide_what_it_is(name: str) -> None:
    """A gate for uploads learns that it is no model, not that it is too large."""
    with pytest.raises(an.ParseError):
        an.parse(FOREIGN[name], limits=an.ParseLimits(max_single_alloc=2000, max_total_bytes=2000))


def test_real_files_of_this_machine(tmp_path: Path) -> None:
    """What the magics claim holds for what the programs themselves write."""
    with pytest.raises(an.ParseError, match="an SQLite database"):
        an.parse(database(tmp_path))
    with pytest.raises(an.ParseError, match=r"a (Windows )?program or library"):
        an.parse(os.path.realpath(sys.executable))


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes(seed: int) -> None:
    import random

    raw = bytes([0xF1, *random.Random(seed).randbytes(500)])
    with pytest.raises(
        an.ParseError, match="not a model file of a known format: it starts with f1 "
    ):
        an.parse(raw)


def test_zip_magic_is_a_real_one() -> None:
    assert zipfile.is_zipfile(io.BytesIO(FOREIGN["a ZIP archive without tensors"]))


@pytest.mark.parametrize("length", [0x0280, 0x10280, 0x8B1F, 0x5A4D, 0x685A42])
def test_header_length_that_looks_like_another_format(length: int) -> None:
    raw = length.to_bytes(8, "little") + b"{}".ljust(length)
    assert raw[:2] in (b"\x80\x02", b"\x1f\x8b", b"MZ", b"BZ")
    assert len(an.parse(raw)) == 0


def test_a_damaged_safetensors_stays_one() -> None:
    """Its own message has the offset; whatever its first bytes look like."""
    for length in (0x0280, 0x8B1F):
        with pytest.raises(an.ParseError, match="in the header"):
            an.parse(length.to_bytes(8, "little") + b"{x}".ljust(length))


# --- directories and their files ------------------------------------------------------------------


@pytest.mark.parametrize("given", ["relative", "absolute"])
def test_config_points_to_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_bytes(CONFIG)
    monkeypatch.chdir(tmp_path)
    root = "m" if given == "relative" else str(tmp_path / "m")
    with pytest.raises(an.ParseError) as raised:
        an.parse(os.path.join(root, "config.json"))
    assert str(raised.value).endswith(
        f"config.json: this is JSON, not a model file; pass the model's directory, {root!r}"
    )
    monkeypatch.chdir("m")
    with pytest.raises(an.ParseError, match=r"pass the model's directory, '\.'"):
        an.parse("config.json")


# --- downloads that stopped -----------------------------------------------------------------------

WEIGHTS = safetensors_bytes({"a": ("F32", (8, 8), bytes(256)), "b": ("U8", (40,), bytes(40))})


def test_truncated_safetensors() -> None:
    whole = len(WEIGHTS)
    for size in (whole - 1, whole - 100):
        with pytest.raises(an.ParseError, match=f"truncated: {size:,} of {whole:,} bytes") as cut:
            an.parse(WEIGHTS[:size])
        assert cut.value.offset == size
    n_header = struct.unpack("<Q", WEIGHTS[:8])[0]
    with pytest.raises(an.ParseError, match=f"truncated .*: 20 of at least {8 + n_header} bytes"):
        an.parse(WEIGHTS[:20])


def test_truncated_gguf() -> None:
    whole = gguf_bytes({}, {"a": Tensor((64,), 0, bytes(256)), "b": Tensor((64,), 0, bytes(256))})
    for size in (len(whole) - 1, len(whole) - 300):
        with pytest.raises(an.ParseError, match=f"truncated: {size:,} of {len(whole):,} bytes"):
            an.parse(whole[:size])


def test_truncated_npy() -> None:
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, np.zeros(100))
    with pytest.raises(an.ParseError, match="truncated: 700 of 800 bytes follow its header"):
        an.parse(stream.getvalue()[:-100])


def test_truncated_zip() -> None:
    raw = zipped(**{"a.npy": bytes(100)})
    with pytest.raises(an.ParseError, match="the file is truncated"):
        an.parse(raw[:-30])
