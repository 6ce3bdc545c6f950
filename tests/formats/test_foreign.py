"""Files of other formats are named, and nothing of safetensors is taken for one of them."""

from __future__ import annotations

import io
import pickle
import zipfile

import pytest

import anamnesis as an


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", b"text")
    return stream.getvalue()


FOREIGN = {
    "ZIP": zipped(),
    "pickle": pickle.dumps({"a": 1}, protocol=2),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(8),
    "LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "web page": b"<!DOCTYPE html><html></html>",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_is_named(name: str) -> None:
    with pytest.raises(an.ParseError, match=f"this is .*{name}.*, not safetensors") as raised:
        an.parse(FOREIGN[name])
    assert raised.value.offset == 0


def test_zip_magic_is_a_real_one() -> None:
    assert zipfile.is_zipfile(io.BytesIO(FOREIGN["ZIP"]))


@pytest.mark.parametrize("length", [0x0280, 0x10280])
def test_header_length_that_looks_like_a_pickle(length: int) -> None:
    raw = length.to_bytes(8, "little") + b"{}".ljust(length)
    assert raw.startswith(b"\x80\x02")
    assert len(an.parse(raw)) == 0
