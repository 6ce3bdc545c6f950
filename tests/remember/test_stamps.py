"""Files that are written to while they are read: nothing of them gets a final name."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from helpers.models import partials

pytestmark = pytest.mark.usefixtures("small_bands")

SAID = "was written to while it was read"


def toucher(source: Path) -> tuple[Path, Callable[..., None]]:
    """Return a file of the model, and what writes to it once."""
    file = source if source.is_file() else source / "model-00001-of-00002.safetensors"

    def touch(*_: Any) -> None:
        with open(file, "r+b") as stream:
            stream.seek(-1, os.SEEK_END)
            last = stream.read(1)
            stream.seek(-1, os.SEEK_END)
            stream.write(bytes([last[0] ^ 1]))
        later = file.stat().st_mtime_ns + 10**9
        os.utime(file, ns=(later, later))

    return file, touch


@pytest.mark.parametrize("mmap", [False, True])
def test_nothing_gets_a_final_name(mmap: bool, source: Path, out: Path) -> None:
    file, touch = toucher(source)
    with an.parse(source, mmap=mmap) as model, pytest.raises(an.ParseError, match=SAID) as caught:
        model.remember(out, progress=touch)
    assert caught.value.source == str(file)
    assert not out.exists()
    assert not partials(out.parent)


def test_streams_fail_at_the_end(source: Path) -> None:
    if source.is_dir():
        pytest.skip("not a case: streams take one file")
    touch = toucher(source)[1]
    written = io.BytesIO()
    with an.parse(source) as model, pytest.raises(an.ParseError, match=SAID):
        model.remember(written, progress=touch)


def test_functions_fail_at_the_end(model: an.Model, source: Path) -> None:
    touch = toucher(source)[1]
    with pytest.raises(an.ParseError, match=SAID):
        model.remember(lambda *_: touch())


def test_stream_on_the_input(source: Path) -> None:
    if source.is_dir():
        pytest.skip("not a case: streams take one file")
    before = source.read_bytes()
    with (
        open(source, "r+b") as stream,
        an.parse(source) as model,
        pytest.raises(an.OutputError, match="which is the input"),
    ):
        model.remember(stream)
    with (
        open(source, "r+b") as stream,
        an.parse(stream) as model,
        pytest.raises(an.OutputError, match="which is the input"),
    ):
        model.remember(stream)
    assert source.read_bytes() == before
