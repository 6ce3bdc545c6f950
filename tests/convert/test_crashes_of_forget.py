"""A quantisation that was killed is taken up to the same bytes and the same losses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.convert.resume import staging
from helpers.scripts import HELPERS, environment


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("to", "before"),
    [("toy-rows", "none"), ("toy-rows", "full"), ("toy-toy-rows", "none"), ("toy-f32", "full")],
)
def test_killed_at_every_system_call(to: str, before: str, tmp_path: Path) -> None:
    script = HELPERS / "forget_crashes.py"
    done = subprocess.run(
        [sys.executable, str(script), to, before, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


class Stop(Exception):
    """What ends a run."""


def interrupt(model: an.Model, out: Path, after: int, **how: Any) -> Path:
    def progress(done: int, _: int) -> None:
        if done > after:
            raise Stop

    with pytest.raises(Stop):
        model.forget(out, "toy-rows", threads=1, progress=progress, **how)
    (partial,) = out.parent.rglob("*.amn-partial")
    return partial


def test_resume_does_no_first_pass_twice(
    model: an.Model, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers import toys

    want = model.forget(out.with_name("want"), "toy-rows")
    interrupt(model, out, 20_000)
    monkeypatch.setattr(toys.Largest, "see", None)
    report = model.forget(out, "toy-rows", resume=True)
    assert report.loss == want.loss


@pytest.mark.parametrize("how", [{"loss": False}, {"exclude": "b.*"}, {"rename": {"a": "x"}}])
def test_resume_with_other_options(how: dict[str, Any], model: an.Model, out: Path) -> None:
    interrupt(model, out, 20_000)
    with pytest.raises(an.OutputError, match="a different source, version or options"):
        model.forget(out, "toy-rows", resume=True, **how)
    with pytest.raises(an.OutputError, match="a different source, version or options"):
        model.remember(out, resume=True)


@pytest.mark.parametrize("damage", ["torn", "flipped", "huge"])
def test_damaged_surveys(damage: str, model: an.Model, out: Path) -> None:
    model.forget(out.with_name("want"), "toy-rows")
    surveys = interrupt(model, out, 20_000) / "surveys"
    raw = bytearray(surveys.read_bytes())
    if damage == "torn":
        surveys.write_bytes(raw[:-1])
        model.forget(out, "toy-rows", resume=True)
        return
    raw[-1] ^= 1
    surveys.write_bytes(raw if damage == "flipped" else raw * 1000)
    with pytest.raises(an.OutputError, match="surveys: is damaged"):
        model.forget(out, "toy-rows", resume=True)
    model.forget(out, "toy-rows")


def test_finished_output_after_its_notes_are_gone(model: an.Model, out: Path) -> None:
    """What the header holds depends on a first pass, which is made again to compare it."""
    model.forget(out, "toy-rows")
    began = os.stat(out).st_mtime_ns
    model.forget(out, "toy-rows", resume=True)
    assert os.stat(out).st_mtime_ns == began
    with pytest.raises(an.OutputError, match="exists"):
        model.convert(out, "f32", resume=True)


def test_synced_commit_with_first_passes(
    model: an.Model, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anamnesis.convert.resume.folder import Folder

    want = model.forget(out.with_name("want"), "toy-rows")
    move = Folder.move

    def move_within(self: Folder, name: str, to: Folder, new: str) -> None:
        if ".amn-partial" not in str(to.path):
            raise Stop
        move(self, name, to, new)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "move", move_within)
        with pytest.raises(Stop):
            model.forget(out, "toy-rows", sync=True)
    monkeypatch.setattr(staging, "boot_id", lambda: "another")
    assert model.forget(out, "toy-rows", resume=True).loss == want.loss
