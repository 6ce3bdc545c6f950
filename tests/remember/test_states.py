"""What a run finds decides what it does; a forged partial run replaces nothing silently."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.convert.resume import staging
from anamnesis.convert.resume.folder import Folder
from helpers.handmade import write_safetensors
from helpers.models import partials, small_model, tree, write_directory

pytestmark = pytest.mark.usefixtures("small_bands")


class Stop(Exception):
    """What ends a run."""


def stop_at_last(model: an.Model, out: Path, **how: Any) -> None:
    """Run until the first file would leave the partial folder."""
    move = Folder.move

    def move_within(self: Folder, name: str, to: Folder, new: str) -> None:
        if ".amn-partial" not in str(to.path):
            raise Stop
        move(self, name, to, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "move", move_within)
        with pytest.raises(Stop):
            model.remember(out, threads=1, **how)


def another_boot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(staging, "boot_id", lambda: "another")


def forge(partial: Path) -> None:
    """Change a value of the last file, as who forges a partial run may."""
    file = max((partial / "files").rglob("*.safetensors"), default=None) or next(
        p for p in (partial / "files").rglob("*") if p.is_file()
    )
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)


def test_a_synced_run_is_taken_up_after_a_power_cut(
    model: an.Model, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.remember(out.with_name("want"))
    stop_at_last(model, out, sync=True)
    another_boot(monkeypatch)
    calls: list[int] = []
    model.remember(out, resume=True, sync=True, progress=lambda done, _: calls.append(done))
    assert not calls  # nothing was decoded again
    assert tree(out) == tree(out.with_name("want"))
    assert not partials(out.parent)


def test_a_forged_run_replaces_nothing_silently(
    model: an.Model, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is synced and of another boot may be of whoever made the folder."""
    stop_at_last(model, out, sync=True)
    (partial,) = partials(out.parent)
    forge(partial)
    model.remember(out.with_name("old"), "f32")
    if out.with_name("old").is_dir():  # OUT was there before, so the partial run is beside it
        out.mkdir()
        (out / "mine.txt").write_text("precious")
    else:
        out.write_bytes(b"precious")
    before, staged = tree(out), tree(partial)
    another_boot(monkeypatch)
    with pytest.raises(an.OutputError, match="exists"):
        model.remember(out, resume=True)
    assert tree(out) == before
    assert tree(partial) == staged
    model.remember(out, resume=True, force=True)  # who says so gets it
    assert tree(out) != before


def test_what_was_lost_amid_the_commit_is_made_anew(model: an.Model, out: Path) -> None:
    model.remember(out.with_name("want"))
    stop_at_last(model, out)
    (partial,) = partials(out.parent)
    next(p for p in (partial / "files").rglob("*") if p.stat().st_size > 60_000).unlink()
    model.remember(out, resume=True)
    assert tree(out) == tree(out.with_name("want"))


def test_an_unsynced_commit_of_another_boot_is_begun_anew(
    model: an.Model, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.remember(out.with_name("want"))
    stop_at_last(model, out)
    (partial,) = partials(out.parent)
    forge(partial)
    another_boot(monkeypatch)
    model.remember(out, resume=True)
    assert tree(out) == tree(out.with_name("want"))


# --- a directory as one file ----------------------------------------------------------------------


def test_a_directory_becomes_one_file(tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out.safetensors"
    with an.parse(source) as model:
        report = model.remember(out)
        assert model.remember_to_bytes() == out.read_bytes()
        names, values = list(model), {name: model[name].numpy("bf16").tobytes() for name in model}
    with an.parse(out) as one:
        assert sorted(one) == sorted(names)
        assert {name: one[name].numpy("bf16").tobytes() for name in one} == values
    left = {d.name for d in report.dropped if "one file" in d.reason}
    assert {"config.json", "tokenizer.json", "hf_quant_config.json"} <= left
    assert report.path == str(out)


def test_a_directory_as_one_file_is_not_put_into_itself(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "in")
    before = tree(source)
    with an.parse(source) as model, pytest.raises(an.OutputError, match="inside the input"):
        model.remember(source / "all.safetensors")
    assert tree(source) == before


def test_a_directory_without_tensors(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "in" / "model.safetensors", {})
    (tmp_path / "in" / "config.json").write_text("{}")
    with an.parse(tmp_path / "in") as model:
        for out in ("out", "out.safetensors"):
            with pytest.raises(an.ParseError, match="hold no tensors"):
                model.remember(tmp_path / out)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


# --- the plan -------------------------------------------------------------------------------------


def test_a_plan_touches_nothing(model: an.Model, out: Path, monkeypatch: Any) -> None:

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a plan opens, reads and writes nothing")

    for call in ("open", "pread", "preadv", "stat", "mkdir", "write"):
        if hasattr(os, call):
            monkeypatch.setattr(os, call, refuse)
    plan = model.plan().to_dict()
    monkeypatch.undo()
    report = model.remember(out)
    assert plan["n_bytes"] == report.n_bytes
    assert plan["n_out"] == report.n_out
    assert json.loads(json.dumps(plan)) == plan
    files = {file["name"]: file["n_bytes"] for file in plan["files"]}
    if out.is_dir():
        assert files == {p.name: p.stat().st_size for p in out.glob("*.safetensors")}
        assert plan["config"] == {
            "dtype": "bfloat16",
            "quantization_config": None,
        }
        assert "tokenizer.json" in plan["copied"]
    assert plan["encodings"] == {"bf16": 3, "i64": 1}
    assert "b.input_scale" in {d["name"] for d in plan["dropped"]}
    assert plan["peak_memory"] > 16 << 20


def test_a_plan_tells_the_problems(tmp_path: Path) -> None:
    tensors = {**small_model(), "c.weight_scale": ("F32", (), bytes(4))}
    source = write_safetensors(tmp_path / "in.safetensors", tensors)
    with an.parse(source) as model:
        plan = model.plan()
        assert list(plan.to_dict()["problems"]) == ["c.weight_scale"]
        assert plan.n_tensors == 4
        assert model.plan(allow_unknown=True).to_dict()["unknown"] == ["c.weight_scale"]
