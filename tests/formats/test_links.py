"""Names and links that lead out of a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

import anamnesis as an
from helpers.checkpoints import A, B, left_out, needs_links, two_shards
from helpers.handmade import write_index, write_safetensors


@pytest.mark.parametrize(
    "shard",
    [
        *("../secret.safetensors", "..", "x/../../secret.safetensors", "/etc/passwd", ""),
        *("..\\secret.safetensors", "C:\\secret.safetensors", "c:secret.safetensors", "a\0b"),
    ],
)
def test_index_that_leads_out(root: Path, shard: str) -> None:
    write_safetensors(root.parent / "secret.safetensors", B)
    write_safetensors(root / "x.safetensors", A)
    write_index(root, {"a": "x.safetensors", "b": shard})
    with pytest.raises(an.ParseError, match="leads out"):
        an.parse(root)


@pytest.mark.parametrize("shard", ["\ud800", "n" * 5000, ".", "x.safetensors/y", "%2e%2e/x", "~/x"])
def test_index_of_odd_names_that_are_merely_not_there(root: Path, shard: str) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_index(root, {"a": "x.safetensors", "b": shard})
    with pytest.raises(an.ParseError, match="is missing"):
        an.parse(root)


@needs_links
@pytest.mark.parametrize("target", ["../secret.safetensors", "absolute"])
def test_link_that_leads_out(root: Path, target: str) -> None:
    secret = write_safetensors(root.parent / "secret.safetensors", B)
    (root / "y.safetensors").symlink_to(secret if target == "absolute" else target)
    (root / "tokenizer.json").symlink_to(secret)
    write_safetensors(root / "x.safetensors", A)
    model = an.parse(root)
    assert list(model) == ["a"]
    assert set(left_out(model)) == {"y.safetensors", "tokenizer.json"}
    assert model._checkpoint.sidecars == []


@needs_links
def test_linked_folder(root: Path) -> None:
    write_safetensors(root.parent / "other" / "y.safetensors", B)
    (root / "sub").symlink_to(root.parent / "other")
    write_safetensors(root / "x.safetensors", A)
    model = an.parse(root)
    assert left_out(model) == {"sub": "a link to a folder"}
    assert model._checkpoint.sidecars == []


@needs_links
def test_link_in_the_directory(root: Path) -> None:
    write_safetensors(root / "files" / "1.bin", A)
    (root / "x.safetensors").symlink_to("files/1.bin")
    assert list(an.parse(root)) == ["a"]


@needs_links
@pytest.mark.parametrize("name", ["x.safetensors", "config.json"])
def test_links_in_a_circle_and_to_nothing(root: Path, name: str) -> None:
    write_safetensors(root / "a.safetensors", A)
    (root / name).symlink_to(name)
    with pytest.raises(OSError, match=name):
        an.parse(root)
    (root / name).unlink()
    (root / name).symlink_to("gone")
    with pytest.raises(FileNotFoundError):
        an.parse(root)


@needs_links
def test_cache_of_the_hub(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    write_safetensors(repository / "blobs" / "f00", A)
    (repository / "blobs" / "ba2").write_text('{"dtype": "float32"}')
    (snapshot / "model.safetensors").symlink_to("../../blobs/f00")
    (snapshot / "config.json").symlink_to("../../blobs/ba2")
    write_safetensors(tmp_path / "models--org--other" / "blobs" / "1", B)
    (snapshot / "stolen.safetensors").symlink_to("../../../models--org--other/blobs/1")
    with an.parse(snapshot) as model:
        assert list(model) == ["a"]
        assert model._checkpoint.config == {"dtype": "float32"}
        assert set(left_out(model)) == {"stolen.safetensors"}


@needs_links
def test_folder_of_a_snapshot_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    """Diffusers' repositories have a model in each folder."""
    repository = tmp_path / "models--org--name"
    folder = repository / "snapshots" / "0123abc" / "unet"
    folder.mkdir(parents=True)
    write_safetensors(repository / "blobs" / "f00", A)
    (folder / "diffusion_pytorch_model.safetensors").symlink_to("../../../blobs/f00")
    write_safetensors(tmp_path / "elsewhere", B)
    (folder / "stolen.safetensors").symlink_to("../../../../elsewhere")
    with an.parse(folder) as model:
        assert list(model) == ["a"]
        assert set(left_out(model)) == {"stolen.safetensors"}


@needs_links
def test_folder_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    two_shards(root)
    (tmp_path / "link").symlink_to(root)
    assert len(an.parse(tmp_path / "link")) == 2
