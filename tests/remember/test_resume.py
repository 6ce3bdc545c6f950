"""A run that was interrupted is finished to the same bytes, or begun anew; two do not meet."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.convert.resume import staging
from helpers.handmade import write_safetensors
from helpers.models import (
    codes,
    finish,
    interrupt,
    partials,
    small_model,
    start,
    tree,
    write_directory,
)

pytestmark = pytest.mark.usefixtures("small_bands")


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


@pytest.mark.parametrize(
    "how", [{"dtype": "f32"}, {"dtype": "f16"}, {"cast_all": True}, {"math": "reference"}]
)
def test_resume_with_other_options(
    how: dict[str, Any], model: an.Model, out: Path, want: dict[str, bytes]
) -> None:
    interrupt(model, out, dtype="f32" if how.get("cast_all") else "bf16")
    if how.get("cast_all"):
        how = {"dtype": "f32", "cast_all": True}
    with pytest.raises(an.OutputError, match="a different source, version or options"):
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
    with other, pytest.raises(an.OutputError, match="a different source"):
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
        with pytest.raises(an.OutputError, match="a different source"):
            model.remember(out, resume=True)
        model.remember(out)
        os.utime(file, ns=(later + 10**10, later + 10**10))
    with an.parse(source) as model, pytest.raises(an.OutputError, match="exists"):
        model.remember(out, resume=True)  # made of what the source was before


def change(source: Path) -> None:
    """Change a value of a model, and make it look old."""
    for file in [source] if source.is_file() else source.glob("*.safetensors"):
        raw = bytearray(file.read_bytes())
        raw[-1] ^= 1
        file.write_bytes(raw)
        os.utime(file, ns=(10**18, 10**18))


def test_resume_over_the_output_of_another_source(source: Path, out: Path) -> None:
    """Its header, size and times are those of what would be written."""
    with an.parse(source) as model:
        model.remember(out)
    before = tree(out)
    change(source)
    with an.parse(source) as model:
        with pytest.raises(an.OutputError, match="exists"):
            model.remember(out, resume=True)
        assert tree(out) == before
        assert not partials(out.parent)
        model.remember(out, resume=True, force=True)
        model.remember(out.with_name("want"))
    assert tree(out) == tree(out.with_name("want")) != before


def test_finished_output_is_told_of_as_when_it_was_made(model: an.Model, out: Path) -> None:
    first = model.remember(out, dtype="f16")
    again = model.remember(out, dtype="f16", resume=True)
    assert (again.overflows, again.n_bytes) == (first.overflows, first.n_bytes)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_resume_over_a_directory_that_was_changed(name: str, tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    with an.parse(source) as model:
        model.remember(out)
        with open(out / name, "ab") as stream:
            stream.write(b" ")
        before = tree(out)
        with pytest.raises(an.OutputError, match="exists"):
            model.remember(out, resume=True)
        assert tree(out) == before


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
    monkeypatch.setattr(staging, "boot_id", lambda: "another")
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
from anamnesis.schemes.core.bands import cut_into
with cut_into(4096), an.parse(sys.argv[1]) as model:
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
