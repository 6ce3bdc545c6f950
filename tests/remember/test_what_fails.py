"""What fails says so, and leaves nothing under a final name."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from helpers.handmade import write_safetensors
from helpers.models import (
    Stop,
    finish,
    partials,
    small_model,
    start,
    stopping,
    tree,
    write_directory,
)

pytestmark = pytest.mark.usefixtures("small_bands")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("cannot mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk(model: an.Model, tiny_disk: Path) -> None:
    hows: tuple[dict[str, Any], ...] = ({}, {"resume": True})
    for how in hows:
        with pytest.raises(OSError, match=r"output takes .* are free") as caught:
            model.remember(tiny_disk / "out", "f32", **how)
        assert caught.value.errno == errno.ENOSPC
        assert not list(tiny_disk.iterdir())


def test_disk_that_is_full_to_the_brim(model: an.Model, tiny_disk: Path) -> None:
    """Not even the notes of a run have room."""
    with open(tiny_disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
        while filler.write(b"x" * 4096):
            pass
    out = tiny_disk / "out"
    with pytest.raises(OSError, match="No space left") as caught:
        model.remember(out)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value.filename).startswith(str(out))
    assert [p.name for p in tiny_disk.iterdir()] == ["filler"]


@pytest.mark.parametrize("threads", [1, 4])
def test_writes_that_are_short(
    threads: int, model: an.Model, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system may write less than is asked for, though there is room."""
    model.remember(out.with_name("whole"), threads=threads, resume=True)
    for name in ("write", "pwrite") if hasattr(os, "pwrite") else ("write",):
        write = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda fd, data, *at, write=write: write(fd, data[: len(data) // 3 + 1], *at)
        )
    model.remember(out, threads=threads, resume=True)
    assert tree(out) == tree(out.with_name("whole"))


LIMITED = """
import resource, sys, anamnesis as an
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
with an.parse(sys.argv[1]) as model:
    try:
        model.remember(sys.argv[2])
    except OSError as error:
        print(error.errno, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_file_that_may_not_be_so_large(source: Path, out: Path) -> None:
    told = finish(start(LIMITED, source, out))
    assert told.startswith(str(errno.EFBIG))
    assert "the output takes" in told
    assert not out.exists()
    assert not partials(out.parent)


READ_ONLY = """
import io, os, sys, anamnesis as an
with an.parse(sys.argv[1]) as model:
    model.remember(io.BytesIO())  # import everything, while that is allowed
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        model.remember(sys.argv[2])
    except PermissionError as error:
        print("refused", error.filename)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs permissions")
def test_read_only_folder(source: Path, fast_folder: Path) -> None:
    fast_folder.chmod(0o711)
    folder = fast_folder / "locked"
    folder.mkdir(0o755)
    folder.chmod(0o555)
    told = finish(start(READ_ONLY, source, folder / "out"))
    assert told.startswith("refused")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("threads", [1, 4])
def test_source_cut_short_meanwhile(threads: int, source: Path, out: Path) -> None:
    last = source if source.is_file() else source / "model-00002-of-00002.safetensors"
    size = last.stat().st_size

    def progress(*_: int) -> None:
        os.truncate(last, size - 30_000)

    with an.parse(source) as model, pytest.raises(an.ParseError, match="was cut while"):
        model.remember(out, threads=threads, progress=progress)
    assert not out.exists()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, Stop])
def test_error_in_the_progress_callback(
    error: type[BaseException],
    threads: int,
    model: an.Model,
    out: Path,
    want: dict[str, bytes],
) -> None:
    began, threads_before = time.monotonic(), set(threading.enumerate())
    with pytest.raises(error):
        model.remember(out, threads=threads, progress=stopping(1, error()))
    assert time.monotonic() - began < 10
    assert set(threading.enumerate()) <= threads_before
    assert not out.exists()
    assert partials(out.parent)
    model.remember(out, threads=threads, resume=True)
    assert tree(out) == want


SIGNALLED = """
import signal, sys, threading, anamnesis as an
from anamnesis.schemes.core.bands import cut_into
signal.signal(signal.SIGINT, signal.default_int_handler)
def progress(done, total):
    if done > 50_000:
        signal.raise_signal(signal.SIGINT)
with cut_into(4096), an.parse(sys.argv[1]) as model:
    try:
        model.remember(sys.argv[2], threads=4, progress=progress)
    except KeyboardInterrupt:
        print("interrupted", threading.active_count())
"""


def test_interrupt(source: Path, model: an.Model, out: Path, want: dict[str, bytes]) -> None:
    assert finish(start(SIGNALLED, source, out), timeout=20) == "interrupted 1\n"
    model.remember(out, resume=True)
    assert tree(out) == want


class Breaking(io.BytesIO):
    """A stream that takes some bytes, then breaks."""

    def write(self, data: Any, /) -> int:
        if self.tell() > 50_000:
            raise Stop
        return super().write(data)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_error_in_a_stream(threads: int, model: an.Model) -> None:
    began, threads_before = time.monotonic(), set(threading.enumerate())
    with pytest.raises(Stop):
        model.remember(Breaking(), threads=threads)
    with pytest.raises(Stop):
        model.remember(io.BytesIO(), threads=threads, progress=stopping(1, Stop()))
    assert time.monotonic() - began < 10
    assert set(threading.enumerate()) <= threads_before


@pytest.mark.parametrize("threads", [1, 8])
def test_error_in_a_callback(threads: int, model: an.Model) -> None:
    def callback(*_: Any) -> None:
        raise Stop

    with pytest.raises(Stop):
        model.remember(callback, threads=threads)


def test_a_model_with_problems_leaves_nothing(tmp_path: Path) -> None:
    tensors = {**small_model(), "c.weight_scale": ("F32", (), bytes(4))}
    source = write_safetensors(tmp_path / "in.safetensors", tensors)
    with an.parse(source) as model, pytest.raises(an.UnsupportedError, match=r"c\.weight_scale"):
        model.remember(tmp_path / "out" / "out.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["in.safetensors"]


def test_sidecar_that_vanishes(tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    with an.parse(source) as model:
        (source / "tokenizer.json").unlink()
        with pytest.raises(FileNotFoundError):
            model.remember(out)
        assert not out.exists()
        (source / "tokenizer.json").write_text("{}")
        model.remember(out, resume=True)
    assert json.loads((out / "tokenizer.json").read_text()) == {}
    shutil.rmtree(out)
