"""Pages and manifests: whole or not at all, and nothing replaced that was not to be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.base import text_files
from anamnesis.base.text_files import write_text


def test_a_file_that_another_run_makes_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.html"

    def check_writable(*_: Any, **__: Any) -> None:
        path.write_text("theirs")

    monkeypatch.setattr(text_files, "check_writable", check_writable)
    with pytest.raises(an.OutputError, match="exists"):
        write_text(str(path), "ours")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.html", "theirs")]


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("force", [True, False])
def test_it_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool, force: bool
) -> None:
    def link(*_: Any) -> None:
        raise PermissionError

    if not has_links:
        monkeypatch.setattr(os, "link", link)
    path = tmp_path / "a.html"
    if force:
        path.write_text("older, and longer")
    write_text(str(path), "new", force=force)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.html", "new")]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    path = tmp_path / "a.html"
    path.write_text("older")
    with pytest.raises(OSError, match="No space"):
        write_text(str(path), "new", force=True)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.html", "older")]
