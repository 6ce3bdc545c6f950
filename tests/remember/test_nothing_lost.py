"""What exists is not overwritten, what is interrupted can be resumed, what fails says so."""

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from handmade import write_safetensors
from models import codes, finish, partials, small_model, start, tree, write_directory

import anamnesis as an
from anamnesis.convert import staging

pytestmark = pytest.mark.usefixtures("small_bands")


class Stop(Exception):
    """What a test raises amid a run."""


def stopping(after: int, error: BaseException) -> Callable[[int, int], None]:
    def progress(done: int, _: int) -> None:
        if done >= after:
            raise error

    return progress


def interrupt(model: an.Model, out: Path, after: int = 50_000, **how: Any) -> None:
    with pytest.raises(Stop):
        model.remember(out, threads=1, progress=stopping(after, Stop()), **how)


@pytest.fixture
def want(model: an.Model, out: Path) -> dict[str, bytes]:
    """What comes of an uninterrupted run."""
    other = out.with_name("want")
    model.remember(other)
    return tree(other)


# --- what exists ----------------------------------------------------------------------------------


def test_existing_output(model: an.Model, out: Path, want: dict[str, bytes]) -> None:
    model.remember(out)
    assert tree(out) == want
    with pytest.raises(an.OutputError, match="force=True replaces it"):
        model.remember(out, "f32")
    assert tree(out) == want
    assert not partials(out.parent)
    model.remember(out, "f32", force=True)
    assert tree(out) != want
    model.remember(out, force=True)
    assert tree(out) == want


def test_existing_file_of_something_else(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "in.safetensors", small_model())
    out = tmp_path / "out"
    out.write_bytes(b"precious")
    with an.parse(source) as model, pytest.raises(an.OutputError, match="exists"):
        model.remember(out)
    assert out.read_bytes() == b"precious"


def test_existing_directory_of_other_weights(tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    write_safetensors(out / "other.safetensors", small_model())
    with an.parse(source) as model:
        for force in (False, True):
            with pytest.raises(an.OutputError, match=r"not empty|other\.safetensors"):
                model.remember(out, force=force)
    assert sorted(tree(out)) == ["other.safetensors"]


def test_output_in_folders_that_are_not_there_yet(model: an.Model, out: Path) -> None:
    model.remember(out.parent / "x" / "y" / out.name)
    assert (out.parent / "x" / "y" / out.name).exists()


def is_refused(source: Path, out: str | Path) -> None:
    before = tree(source)
    with an.parse(source) as model:
        for force in (False, True):
            with pytest.raises(an.OutputError, match="input"):
                model.remember(out, force=force)
    assert tree(source) == before
    assert not partials(source.parent)


def test_output_is_the_input(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_refused(source, source)
    monkeypatch.chdir(source.parent)
    is_refused(source, source.name)
    is_refused(source, f"./x/../{source.name}")


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_output_is_the_input_by_a_link(source: Path) -> None:
    link = source.with_name("link.safetensors" if source.is_file() else "link")
    link.symlink_to(source)
    is_refused(source, link)
    (source.parent / "folder").symlink_to(source.parent)
    is_refused(source, source.parent / "folder" / source.name)
    if source.is_file():
        hard = source.with_name("hard.safetensors")
        hard.hardlink_to(source)
        is_refused(source, hard)


def test_output_is_the_input_in_other_letters(source: Path) -> None:
    other = source.with_name(source.name.upper())
    if other.exists():
        is_refused(source, other)
        return
    before = tree(source)  # this file system tells letters apart: it is another output
    with an.parse(source) as model:
        model.remember(other)
    assert tree(source) == before
    assert tree(other) != before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
@pytest.mark.parametrize("force", [False, True])
def test_output_is_no_regular_file(tmp_path: Path, force: bool) -> None:
    source = write_safetensors(tmp_path / "in.safetensors", small_model())
    pipe, dangling = tmp_path / "pipe", tmp_path / "dangling"
    os.mkfifo(pipe)
    dangling.symlink_to(tmp_path / "nowhere")
    for out in (pipe, dangling, Path(os.devnull)):
        with an.parse(source) as model, pytest.raises(an.OutputError, match="regular file"):
            model.remember(out, force=force)
    assert pipe.is_fifo()
    assert dangling.is_symlink()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_a_link_to_what_is_open_is_not_replaced(tmp_path: Path) -> None:
    """/dev/stdout is such a link, which a superuser would replace for all programs."""
    source = write_safetensors(tmp_path / "in.safetensors", small_model())
    link = tmp_path / "stdout"
    with open(tmp_path / "redirected", "wb") as stream, an.parse(source) as model:
        link.symlink_to(f"/proc/self/fd/{stream.fileno()}")
        assert link.is_file()
        with pytest.raises(an.OutputError, match="regular file"):
            model.remember(link, force=True)
    assert link.is_symlink()
    assert (tmp_path / "redirected").read_bytes() == b""


def test_output_in_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for out in (tmp_path / "file" / "out", tmp_path / "file" / "a" / "out"):
        with an.parse(source) as model, pytest.raises(an.OutputError, match="no folder"):
            model.remember(out, force=True)
    assert (tmp_path / "file").read_bytes() == b"x"


def test_one_file_is_not_cut(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "in.safetensors", small_model())
    with an.parse(source) as model, pytest.raises(an.OutputError, match="not cut into shards"):
        model.remember(tmp_path / "out.safetensors", max_shard_size=10)
    assert [p.name for p in tmp_path.iterdir()] == ["in.safetensors"]


def test_output_inside_the_input(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "in")
    for out in (source / "bf16", source / "a" / "b", tmp_path / "x" / ".." / "in" / "c"):
        is_refused(source, out)


# --- resuming -------------------------------------------------------------------------------------


def test_resume(model: an.Model, out: Path, want: dict[str, bytes]) -> None:
    interrupt(model, out)
    assert not out.exists()
    assert len(partials(out.parent)) == 1
    calls: list[int] = []
    model.remember(out, resume=True, progress=lambda done, _: calls.append(done))
    assert tree(out) == want
    assert not partials(out.parent)
    assert calls == sorted(calls)
    began = os.stat(out).st_mtime_ns
    model.remember(out, resume=True)
    assert os.stat(out).st_mtime_ns == began
    assert tree(out) == want


def test_resume_does_no_work_twice(model: an.Model, out: Path, monkeypatch: Any) -> None:
    interrupt(model, out)
    written: list[int] = []
    write = staging.Staging.write

    def counting(self: Any, name: str, offset: int, data: bytes) -> None:
        written.append(len(data))
        write(self, name, offset, data)

    monkeypatch.setattr(staging.Staging, "write", counting)
    total = model.remember(out, resume=True).n_bytes
    assert 0 < sum(written) < total - 40_000


@pytest.mark.parametrize("is_folder", [False, True])
def test_resume_of_the_input(is_folder: bool, tmp_path: Path) -> None:
    """Its header is that of the output, if nothing in it is quantised."""
    source = write_safetensors(tmp_path / "in" / "model.safetensors", small_model())
    out = tmp_path / ("out" if is_folder else "out.safetensors")
    with an.parse(source.parent if is_folder else source) as model:
        model.remember(out)
    with an.parse(out) as model, pytest.raises(an.OutputError, match="is the input"):
        model.remember(out, resume=True)


def test_resume_without_a_partial_run(model: an.Model, out: Path, want: dict[str, bytes]) -> None:
    model.remember(out, resume=True)
    assert tree(out) == want


def test_without_resume_it_begins_anew(model: an.Model, out: Path, want: dict[str, bytes]) -> None:
    interrupt(model, out, dtype="f32")
    model.remember(out)
    assert tree(out) == want
    assert not partials(out.parent)


@pytest.mark.parametrize("how", [{"dtype": "f32"}, {"dtype": "f16"}, {"cast_all": True}])
def test_resume_with_other_options(
    how: dict[str, Any], model: an.Model, out: Path, want: dict[str, bytes]
) -> None:
    interrupt(model, out, dtype="f32" if how.get("cast_all") else "bf16")
    if how.get("cast_all"):
        how = {"dtype": "f32", "cast_all": True}
    with pytest.raises(an.OutputError, match="another source, version or options"):
        model.remember(out, resume=True, **how)
    assert not out.exists()
    if "cast_all" not in how:
        model.remember(out, resume=True)  # what there was is not lost
        assert tree(out) == want


def test_resume_with_another_block_size(tmp_path: Path) -> None:
    tensors = {
        "a.weight": codes(192, 192),
        "a.weight_scale": ("F32", (2, 2), b"\x00\x00\x80\x3f" * 4),
    }
    source, out = write_safetensors(tmp_path / "in.safetensors", tensors), tmp_path / "out"
    with an.parse(source, block_size=(96, 96)) as model:
        interrupt(model, out, 30_000)
    other = an.parse(source, block_size=(128, 128))
    with other, pytest.raises(an.OutputError, match="another source"):
        other.remember(out, resume=True)


def test_resume_of_a_changed_source(source: Path, out: Path) -> None:
    with an.parse(source) as model:
        interrupt(model, out)
    file = source if source.is_file() else source / "model-00001-of-00002.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    later = time.time_ns() + 10**9
    os.utime(file, ns=(later, later))
    with an.parse(source) as model:
        with pytest.raises(an.OutputError, match="another source"):
            model.remember(out, resume=True)
        model.remember(out)
        os.utime(file, ns=(later + 10**10, later + 10**10))
    with an.parse(source) as model, pytest.raises(an.OutputError, match="exists"):
        model.remember(out, resume=True)  # made of what the source was before


def test_resume_by_another_path(
    source: Path, out: Path, want: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with an.parse(source) as model:
        interrupt(model, out)
    monkeypatch.chdir(source.parent)
    with an.parse(source.name) as model:
        model.remember(out.name, resume=True)
    assert tree(out) == want


def test_resume_of_bytes(tmp_path: Path) -> None:
    raw = write_safetensors(tmp_path / "in.safetensors", small_model()).read_bytes()
    out = tmp_path / "out"
    interrupt(an.parse(raw), out)
    an.parse(io.BytesIO(raw)).remember_to_bytes()
    an.parse(raw).remember(out, resume=True)
    assert out.read_bytes() == an.parse(raw).remember_to_bytes()


def test_torn_journal(model: an.Model, out: Path, want: dict[str, bytes]) -> None:
    interrupt(model, out)
    (partial,) = partials(out.parent)
    with open(partial / "journal", "ab") as journal:
        journal.write(b"\x01\x02\x03\x04\x05\x06\x07")
    interrupt(model, out, 100_000, resume=True)
    model.remember(out, resume=True)
    assert tree(out) == want


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff"])
def test_plan_that_is_unreadable(
    raw: bytes, model: an.Model, out: Path, want: dict[str, bytes]
) -> None:
    interrupt(model, out)
    (partial,) = partials(out.parent)
    (partial / "plan.json").write_bytes(raw)
    model.remember(out, resume=True)
    assert tree(out) == want


@pytest.mark.parametrize("sync", [False, True])
def test_after_a_power_cut_it_begins_anew(
    sync: bool, model: an.Model, out: Path, want: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal may have reached the disk before the bytes that it is about."""
    interrupt(model, out, sync=sync)
    (partial,) = partials(out.parent)
    for file in (partial / "files").rglob("*.safetensors"):
        file.write_bytes(bytes(file.stat().st_size))
    for file in (partial / "files").glob(out.name):
        file.write_bytes(bytes(file.stat().st_size))
    monkeypatch.setattr(staging, "_boot_id", lambda: "another")
    model.remember(out, resume=True, sync=sync)
    assert tree(out) == want


def test_partial_file_that_was_removed(model: an.Model, out: Path, want: dict[str, bytes]) -> None:
    """To make room, say: what the journal says of it must not be believed."""
    interrupt(model, out)
    (partial,) = partials(out.parent)
    for file in [p for p in (partial / "files").rglob("*") if p.is_file()]:
        file.unlink()
    model.remember(out, resume=True)
    assert tree(out) == want


def test_overflows_are_counted_across_runs(tmp_path: Path) -> None:
    tensors = small_model()
    _, shape, raw = tensors["a.weight_scale_inv"]
    tensors["a.weight_scale_inv"] = ("F32", shape, b"\x00\x00\x80\x47" * (len(raw) // 4))
    source, out = write_safetensors(tmp_path / "in.safetensors", tensors), tmp_path / "out"
    with an.parse(source) as model:
        overflows = model.remember(io.BytesIO(), "f16").overflows
        assert overflows["a.weight"] > 10_000
        interrupt(model, out, dtype="f16")
        assert model.remember(out, "f16", resume=True).overflows == overflows


# --- two at once ----------------------------------------------------------------------------------

WAITING = """
import sys, anamnesis as an
def progress(done, total):
    if done and not told:
        told.append(done)
        print("half", flush=True)
        sys.stdin.readline()
told = []
with an.parse(sys.argv[1]) as model:
    model.remember(sys.argv[2], threads=1, progress=progress)
"""


def test_second_run_while_the_first_writes(
    model: an.Model, source: Path, out: Path, want: dict[str, bytes]
) -> None:
    process = start(WAITING, source, out)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    hows: tuple[dict[str, Any], ...] = ({}, {"resume": True}, {"force": True})
    for how in hows:
        with pytest.raises(an.OutputError, match="another run"):
            model.remember(out, **how)
    assert process.stdin is not None
    process.stdin.write("\n")
    finish(process)
    assert tree(out) == want
    assert not partials(out.parent)


RACING = """
import sys, anamnesis as an
from anamnesis.convert import plan
plan.BAND_BYTES = 4096
with an.parse(sys.argv[1]) as model:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        model.remember(sys.argv[2])
        print("won")
    except an.OutputError as error:
        print("lost", error)
"""


def test_race(source: Path, out: Path, want: dict[str, bytes]) -> None:
    runs = [start(RACING, source, out) for _ in range(3)]
    for run in runs:
        assert run.stdout is not None
        run.stdout.readline()
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()
    told = [finish(run) for run in runs]
    assert sum(line.startswith("won") for line in told) == 1, told
    assert tree(out) == want
    assert not partials(out.parent)


# --- failures -------------------------------------------------------------------------------------


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

    with an.parse(source) as model, pytest.raises(an.ParseError, match="ends after"):
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
from anamnesis.convert import plan
plan.BAND_BYTES = 4096
signal.signal(signal.SIGINT, signal.default_int_handler)
def progress(done, total):
    if done > 50_000:
        signal.raise_signal(signal.SIGINT)
with an.parse(sys.argv[1]) as model:
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
