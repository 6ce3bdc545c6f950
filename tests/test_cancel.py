"""`cancel` stops every long call soon, and nothing is left behind."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import anamnesis as an
from anamnesis.convert.resume import staging
from anamnesis.convert.resume.partial import PartialFolder

SOON = 5  # seconds; a band takes some milliseconds, a whole run endless ones


class After:
    """Is set once it was asked so many times."""

    def __init__(self, n: int) -> None:
        self.left = n

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


class Watched(threading.Event):
    """Knows when it was set."""

    at = 0.0

    def set(self) -> None:
        self.at = time.monotonic()
        super().set()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some bands of plain and of quantised weights, in a directory."""
    folder = tmp_path_factory.mktemp("cancel") / "in"
    folder.mkdir()
    rng = np.random.default_rng(1)
    arrays = {f"{i}.weight": rng.standard_normal((1024, 1024), np.float32) for i in range(6)}
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


Call = Callable[[an.Model, Path, Any], object]
CALLS: dict[str, Call] = {
    "remember": lambda model, out, cancel: model.remember(out, cancel=cancel),
    "remember-file": lambda model, out, cancel: model.remember(
        out.with_suffix(".safetensors"), cancel=cancel
    ),
    "function": lambda model, _, cancel: model.remember(lambda *_: None, cancel=cancel),
    "stream": lambda model, _, cancel: model.remember(io.BytesIO(), cancel=cancel),
    "out-of-order": lambda model, _, cancel: model.convert(io.BytesIO(), "npz", cancel=cancel),
    "bytes": lambda model, _, cancel: model.remember_to_bytes(cancel=cancel),
    "convert": lambda model, out, cancel: model.convert(out, "f16", cancel=cancel),
    "forget": lambda model, out, cancel: model.forget(out, "int4", cancel=cancel),
    "survey": lambda model, out, cancel: model.forget(out, "fp8-tensor", cancel=cancel),
    "verify": lambda model, out, cancel: model.forget(out, "int8", verify=True, cancel=cancel),
    "measure": lambda model, _, cancel: model.plan("int4", measure=True, cancel=cancel),
    "sample": lambda model, _, cancel: model.plan("fp8-tensor", measure=8, cancel=cancel),
    "state_dict": lambda model, _, cancel: model.state_dict(cancel=cancel),
    "function-call": lambda model, out, cancel: an.remember(
        model["0.weight"].parts[0].source.path or "", out, cancel=cancel
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 7, 11])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_stops_wherever_it_is(
    source: Path, tmp_path: Path, call: Call, n: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anamnesis.convert.request.resolve.default_threads", lambda: threads)
    asked = After(n)
    with an.parse(source) as model, pytest.raises(an.Cancelled, match="cancelled by the caller"):
        call(model, tmp_path / "out", asked)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_not_set_changes_nothing(source: Path, tmp_path: Path, call: Call) -> None:
    with an.parse(source) as model:
        call(model, tmp_path / "out", threading.Event())


def test_at_any_time_while_it_verifies(source: Path, tmp_path: Path) -> None:
    """From the first question to the last."""
    every = After(1 << 30)
    with an.parse(source).select("0") as model:
        model.forget(tmp_path / "whole", "fp8-tensor", verify=True, cancel=every)
        for n in range((1 << 30) - every.left):
            with pytest.raises(an.Cancelled):
                model.forget(tmp_path / "out", "fp8-tensor", verify=True, cancel=After(n))
            assert os.listdir(tmp_path) == ["whole"]


@pytest.mark.parametrize("to", ["f16", "int4", "fp8-tensor", "bnb-nf4"])
def test_soon(tmp_path: Path, to: str) -> None:
    """From another thread, while it is at work."""
    arrays = {f"{i}.weight": np.zeros((4096, 4096), np.float32) for i in range(4)}
    save_file(arrays, tmp_path / "in.safetensors")
    cancel = Watched()
    timer = threading.Timer(0.1, cancel.set)

    def endless() -> None:
        timer.start()
        while True:
            an.convert(tmp_path / "in.safetensors", tmp_path / "out", to, force=True, cancel=cancel)

    with pytest.raises(an.Cancelled):
        endless()
    assert time.monotonic() - cancel.at < SOON
    assert not list(tmp_path.glob("*partial*"))


def test_copies_of_other_files(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_PIECE", 1)
    asked = After(1 << 30)
    an.remember(source, tmp_path / "out", cancel=asked)
    assert (1 << 30) - asked.left >= 6 + len("{}")


def test_an_older_output_stays(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    out.write_bytes(b"old")
    with pytest.raises(an.Cancelled):
        an.remember(source, out, force=True, cancel=After(3))
    assert out.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.safetensors"]


def test_what_cannot_be_asked(source: Path, tmp_path: Path) -> None:
    """Nothing is left behind, as of a run that is cancelled."""

    class Broken:
        def is_set(self) -> bool:
            raise RuntimeError("no")

    with pytest.raises(an.Cancelled, match=r"cancel\.is_set\(\) failed: RuntimeError\('no'\)"):
        an.remember(source, tmp_path / "out", cancel=Broken())
    assert os.listdir(tmp_path) == []


def test_what_is_no_event(source: Path, tmp_path: Path) -> None:
    with an.parse(source) as model:
        for cancel in (5, True, lambda: False):
            with pytest.raises(TypeError, match=r"must have is_set\(\), as threading\.Event has"):
                model.remember(tmp_path / "out", cancel=cancel)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"must have is_set\(\)"):
                model.state_dict(cancel=cancel)  # type: ignore[call-overload]


def test_it_is_an_anamnesis_error() -> None:
    assert issubclass(an.Cancelled, an.AnamnesisError)


def test_progress_that_raises(source: Path, tmp_path: Path) -> None:
    """What it raises comes out; what is written stays, and is taken up."""
    out, whole = tmp_path / "out", tmp_path / "whole"
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if done > total // 2:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        an.remember(source, out, "f16", cast_all=True, progress=stop, threads=1)
    assert os.listdir(tmp_path) == ["out.amn-partial"]
    seen: list[int] = []
    an.remember(
        source, out, "f16", cast_all=True, resume=True, progress=lambda done, _: seen.append(done)
    )
    assert seen[0] >= calls[-1]
    an.remember(source, whole, "f16", cast_all=True)
    names = sorted(os.listdir(whole))
    assert sorted(os.listdir(out)) == names
    assert all((out / name).read_bytes() == (whole / name).read_bytes() for name in names)


def test_whoever_is_interrupted_while_it_tidies_up_can_write_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out.safetensors"
    with an.parse(source / "model.safetensors") as model:
        with monkeypatch.context() as patch:
            patch.setattr(PartialFolder, "_remove", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.remember(out)
        model.remember(out, resume=True)
    assert os.listdir(tmp_path) == [out.name]
