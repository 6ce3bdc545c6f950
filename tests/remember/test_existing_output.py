"""What exists is not overwritten unasked, and never the input."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import anamnesis as an
from helpers.handmade import write_safetensors
from helpers.models import partials, small_model, tree, write_directory

pytestmark = pytest.mark.usefixtures("small_bands")


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
        with (
            an.parse(source) as model,
            pytest.raises(an.OutputError, match=r"regular file|nothing"),
        ):
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
    with (
        an.parse(source) as model,
        pytest.raises(an.OutputError, match="not cut into shards; name a folder"),
    ):
        model.remember(tmp_path / "out.safetensors", max_shard_size=10)
    assert [p.name for p in tmp_path.iterdir()] == ["in.safetensors"]


def test_output_inside_the_input(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "in")
    for out in (source / "bf16", source / "a" / "b", tmp_path / "x" / ".." / "in" / "c"):
        is_refused(source, out)
