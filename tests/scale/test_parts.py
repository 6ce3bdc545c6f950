"""Files of an output made in parts: the bytes and the report of one process, or one clear line."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import anamnesis as an
from anamnesis.convert.parts import parts as by_executor
from anamnesis.convert.parts import parts as parts_module
from anamnesis.convert.parts.parts import Parts, _places
from anamnesis.convert.request.share import Share, share_of
from anamnesis.convert.request.targets import listed, target
from anamnesis.convert.resume import identity as identity_module
from anamnesis.convert.resume import parts_folder
from anamnesis.convert.resume.folder import Folder
from helpers.handmade import write_safetensors
from helpers.in_parts import KINDS, alone, as_one, left, make_all, write_model
from helpers.models import Stop, small_model, stopping, tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "in")


def output_of(kind: str, folder: Path, name: str) -> Path:
    """Return where an output goes: files of GGUF are called by their folder's name."""
    (folder / name).mkdir()
    return folder / name / ("out.gguf" if kind in ("gguf", "one") else "out")


def make(source: Path, out: Path, part: str, **options: Any) -> Any:
    with an.parse(source) as model:
        return model.convert(out, **{**KINDS["fp8"], **options}, part=part)


# --- the same as one process ----------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["shares", "threads"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_and_the_report_of_one_process(
    kind: str, way: str, source: Path, tmp_path: Path
) -> None:
    want, out = output_of(kind, tmp_path, "want"), output_of(kind, tmp_path, "made")
    expected = as_one(source, want, KINDS[kind])
    if way == "shares":
        report = make_all(source, out, KINDS[kind])
    else:
        with ThreadPoolExecutor(3) as pool:
            report = as_one(source, out, {**KINDS[kind], "executor": pool})
    assert tree(out.parent) == tree(want.parent)
    assert (expected.n_files == 1) == (kind == "one")
    assert bool(report.overflows) == (kind == "plain")
    assert alone(report) == alone(expected)
    assert not left(tmp_path)


def test_merged_layers_lie_in_several_files(source: Path) -> None:
    with an.parse(source) as model:
        files = model.plan(**KINDS["nvfp4"]).files
    of = {weight.name: file.name for file in files for weight in file.weights}
    merged = {of[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qkv"}
    assert len(merged) > 1


def test_odd_scales_are_those_of_one_process(tmp_path: Path) -> None:
    tensors = small_model()
    shape, raw = tensors["b.weight_scale_inv"][1:]
    tensors["b.weight_scale_inv"] = ("F32", shape, bytes(4) + raw[4:])
    source = write_safetensors(tmp_path / "in.safetensors", tensors)
    options = {"to": "bf16", "max_shard_size": 70_000}
    expected = as_one(source, tmp_path / "want", options)
    report = make_all(source, tmp_path / "out", options)
    assert expected.odd_scales
    assert alone(report) == alone(expected)
    assert tree(tmp_path / "out") == tree(tmp_path / "want")


@pytest.mark.parametrize("verb", ["remember", "forget"])
def test_the_other_verbs(verb: str, source: Path, tmp_path: Path) -> None:
    to = {"remember": "f16", "forget": "int8"}[verb]
    for out, parts in (("want", [None]), ("out", ["2/2", "1/2", "commit"])):
        for part in parts:
            with an.parse(source) as model:
                write = getattr(model, verb)
                write(tmp_path / out, to, cast_all=True, max_shard_size=50_000, part=part)
    assert tree(tmp_path / "out") == tree(tmp_path / "want")


def test_progress_is_told_as_files_are_done(source: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    options = KINDS["fp8"] | {"progress": lambda *pair: told.append(pair)}
    with ThreadPoolExecutor(1) as pool:
        as_one(source, tmp_path / "out", {**options, "executor": pool})
    assert told == sorted(told)
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] > 0
    told.clear()
    as_one(source, tmp_path / "in-shares", {**options, "part": "1/2"})
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


# --- where parts are, and who made them -----------------------------------------------------------


def test_a_directory_that_is_there_holds_its_parts(source: Path, tmp_path: Path) -> None:
    as_one(source, tmp_path / "want", KINDS["fp8"])
    (tmp_path / "out").mkdir()
    make(source, tmp_path / "out", "1/2")
    assert os.listdir(tmp_path / "out") == [".amn-parts"]
    make(source, tmp_path / "out", "2/2")
    make(source, tmp_path / "out", "commit")
    assert tree(tmp_path / "out") == tree(tmp_path / "want")


def test_an_output_that_is_there(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    as_one(source, out, KINDS["fp8"])
    want = tree(out)
    (out / "config.json").write_text("old")
    for part in ("1/1", "commit"):
        with pytest.raises(an.OutputError, match=r"exists|no parts"):
            make(source, out, part)
    make(source, out, "1/1", force=True)
    assert tree(out)["config.json"] == b"old"
    with pytest.raises(an.OutputError, match="exists"):
        make(source, out, "commit")
    make(source, out, "commit", force=True)
    assert tree(out) == want


def test_an_executor_resumes_what_is_finished(source: Path, tmp_path: Path) -> None:
    as_one(source, tmp_path / "out", KINDS["fp8"])
    before = os.stat(tmp_path / "out" / "config.json").st_mtime_ns
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(an.OutputError, match="exists"):
            as_one(source, tmp_path / "out", {**KINDS["fp8"], "executor": pool})
        as_one(source, tmp_path / "out", {**KINDS["fp8"], "executor": pool, "resume": True})
    assert os.stat(tmp_path / "out" / "config.json").st_mtime_ns == before


def test_missing_files_are_named(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(an.OutputError, match="has no parts to commit"):
        make(source, out, "commit")
    report = make(source, out, "2/3")
    with pytest.raises(an.OutputError, match="8 of 12 files are not made") as raised:
        make(source, out, "commit")
    assert report.missing[0] in str(raised.value)
    assert not out.exists()
    again = make(source, out, "2/3")
    assert (again.files, again.missing) == (report.files, report.missing)
    path = tmp_path / "out.amn-parts" / "files" / report.files[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert report.files[0] in make(source, out, "1/3").missing


@pytest.mark.skipif(sys.platform == "win32", reason="an open file is not renamed there")
def test_nobody_sweeps_a_file_that_waits_for_its_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = Folder.move

    def swept(self: Folder, name: str, to: Folder, new: str) -> None:
        parts_folder._sweep(self, f"{name.partition('.new.')[0]}.new.")
        move(self, name, to, new)

    monkeypatch.setattr(Folder, "move", swept)
    with an.parse(source) as model:
        model.convert(tmp_path / "out", part="1/1", **KINDS["nvfp4"])


def test_two_make_one_file(source: Path, tmp_path: Path) -> None:
    as_one(source, tmp_path / "want", KINDS["nvfp4"])
    meet = threading.Barrier(4)

    def work(number: int) -> None:
        with an.parse(source) as model:
            asked = model.convert  # opened before they meet
            meet.wait()
            asked(tmp_path / "out", part=f"{number}/2", **KINDS["nvfp4"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, (1, 2, 1, 2)))
    make(source, tmp_path / "out", "commit", **KINDS["nvfp4"])
    assert tree(tmp_path / "out") == tree(tmp_path / "want")
    assert not left(tmp_path)


def test_what_the_dead_leave_is_swept_and_what_the_living_write_is_not(
    source: Path, tmp_path: Path
) -> None:
    fcntl = pytest.importorskip("fcntl")
    make(source, tmp_path / "out", "99/99")
    notes = tmp_path / "out.amn-parts" / "parts"
    dead, living = notes / "00000.new.dead", notes / "00000.new.living"
    dead.write_bytes(b"x")
    with living.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        make(source, tmp_path / "out", "1/1")
    assert living.exists()
    assert not dead.exists()
    make(source, tmp_path / "out", "commit")
    assert not left(tmp_path)


def test_a_file_that_was_not_synced_is_relied_on_by_its_boot_alone(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    make_file = Parts.make

    def counted(self: Parts, i: int, *args: Any, **how: Any) -> None:
        made.append(i)
        if len(made) == 3:
            raise an.ParseError("stop")
        make_file(self, i, *args, **how)

    monkeypatch.setattr(Parts, "make", counted)
    options = {**KINDS["fp8"]}
    with ThreadPoolExecutor(1) as pool, pytest.raises(an.ParseError, match="stop"):
        as_one(source, tmp_path / "out", {**options, "executor": pool})
    monkeypatch.setattr(Parts, "make", make_file)
    n_made = sum(".json" in name for name in os.listdir(tmp_path / "out.amn-parts" / "parts")) - 1
    assert n_made >= 2
    monkeypatch.setattr(parts_module, "boot_id", lambda: "another")
    assert len(make(source, tmp_path / "out", "12/12").missing) == 11
    monkeypatch.undo()
    assert len(make(source, tmp_path / "out", "12/12").missing) == 11 - n_made


# --- refused in one line --------------------------------------------------------------------------


def test_parts_of_another_plan_are_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    make(source, out, "1/2")
    for part in ("2/2", "commit"):
        with pytest.raises(an.OutputError, match="are of other options, or another model; remove"):
            make(source, out, part, to="int8")
    os.utime(source / "model.safetensors", ns=(0, 1))
    with pytest.raises(an.OutputError, match=r"are of another model\.safetensors; remove"):
        make(source, out, "2/2")
    monkeypatch.setattr(identity_module, "__version__", "0.0.1")
    with pytest.raises(an.OutputError, match=r"of anamnesis, and this is 0\.0\.1; remove"):
        make(source, out, "2/2")


def test_a_worker_of_another_version_or_model_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = KINDS["fp8"]
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(by_executor, "__version__", "0.0.1")
        with pytest.raises(an.OutputError, match=r"a worker has version 0\.0\.1 of anamnesis"):
            as_one(source, tmp_path / "out", {**options, "executor": pool})
        monkeypatch.undo()
        with an.parse(source) as model:
            os.utime(source / "model.safetensors", ns=(0, 1))
            with pytest.raises(an.OutputError, match=r"another model\.safetensors; remove them"):
                model.convert(tmp_path / "out", executor=pool, **options)


class _Uncancelled(ThreadPoolExecutor):
    """An executor whose futures refuse to be cancelled, as parsl's do."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(*args, **kwargs)
        future.cancel = Mock(side_effect=NotImplementedError)  # type: ignore[method-assign]
        return future


def test_futures_need_no_way_to_be_cancelled(source: Path, tmp_path: Path) -> None:
    options = KINDS["fp8"]
    as_one(source, tmp_path / "want", options)
    with _Uncancelled(2) as pool:
        as_one(source, tmp_path / "out", {**options, "executor": pool})
    assert tree(tmp_path / "out") == tree(tmp_path / "want")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"part": "3/2"}, "part: there is no process 3 of 2"),
        ({"part": "0/2"}, "part: write I/N"),
        ({"part": "1"}, "part: write I/N"),
        ({"part": "auto/0"}, "part: write I/N"),
        ({"executor": "threads:2"}, "executor: write processes:N or dask://HOST:PORT"),
        ({"executor": "processes:0"}, "executor: write processes:N or dask://HOST:PORT"),
        ({"executor": 4}, r"executor: give a concurrent\.futures\.Executor"),
        ({"executor": "processes:1", "part": "1/2"}, "part: its files are made here; leave exec"),
        (
            {"part": "1/2", "edit": {"*": abs}},
            r"edit: the function for '\*' .*leave part=\.\.\. out",
        ),
        ({"executor": "processes:1", "edit": {"*": abs}}, r"leave executor=\.\.\. out"),
        ({"executor": "processes:1", "cancel": threading.Event()}, "cancel: workers cannot ask it"),
        ({"part": "1/2", "expect_same": "in"}, "expect_same compares all files at once"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    options: dict[str, Any], message: str, source: Path, tmp_path: Path
) -> None:
    refused = pytest.raises((ValueError, an.UnsupportedError), match=message)
    with an.parse(source) as model, refused:
        model.convert(tmp_path / "out", "fp8-block", **options)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("option", [{"part": "1/2"}, {"executor": "processes:1"}])
def test_a_stream_and_a_function_are_of_one_process(option: Any, source: Path) -> None:
    (name,) = option
    with an.parse(source) as model:
        with pytest.raises(an.OutputError, match=f"a stream takes one file; leave {name}"):
            model.convert(io.BytesIO(), "fp8-block", **option)
        with pytest.raises(TypeError, match="a function is called in this process"):
            model.remember(lambda *_: None, **option)


def test_a_model_without_a_path_cannot_be_sent(source: Path, tmp_path: Path) -> None:
    raw = (source / "model.safetensors").read_bytes()
    with an.parse(raw) as model, pytest.raises(an.UnsupportedError, match="parsed from a path"):
        model.convert(tmp_path / "out.safetensors", "fp8-block", executor="processes:1")


@pytest.mark.parametrize(
    "note",
    [
        "",
        "[",
        "[]",
        "{}",
        '{"n_bytes": 1}',
        '{"n_bytes": %d}',
        '{"n_bytes": %d, "found": {"x": 1}}',
    ],
)
def test_damaged_notes(note: str, source: Path, tmp_path: Path) -> None:
    make(source, tmp_path / "out", "1/1")
    parts = tmp_path / "out.amn-parts"
    size = min((parts / "files").iterdir()).stat().st_size
    (parts / "parts" / "00000.json").write_text(note % size if "%" in note else note)
    with pytest.raises(an.OutputError, match=r"1 of 12 files are not made|is damaged; remove it"):
        make(source, tmp_path / "out", "commit")
    assert not (tmp_path / "out").exists()


# --- shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [1, 2, 3, 7, 20])
def test_shares_are_all_files_once_and_alike(of: int) -> None:
    sizes = [(i * 37) % 11 + 20 for i in range(12)]
    shares = [_places(Share(number, of), sizes) for number in range(1, of + 1)]
    assert sorted(i for share in shares for i in share) == list(range(12))
    loads = [sum(sizes[i] for i in share) for share in shares]
    assert max(loads) - min(loads) <= max(sizes) + 1


SLURM = {
    "SLURM_ARRAY_TASK_ID": "7",
    "SLURM_ARRAY_TASK_MIN": "3",
    "SLURM_ARRAY_TASK_MAX": "9",
    "SLURM_ARRAY_TASK_STEP": "2",
    "SLURM_ARRAY_TASK_COUNT": "4",
}


@pytest.mark.parametrize(
    ("text", "variables", "share"),
    [
        ("2/5", {}, (2, 5)),
        ("2/5", SLURM, (2, 5)),
        ("auto", SLURM, (3, 4)),
        ("auto/4", SLURM, (3, 4)),
        ("auto", {"SLURM_PROCID": "1", "SLURM_NTASKS": "8"}, (2, 8)),
        ("auto", {**SLURM, "SLURM_PROCID": "1", "SLURM_NTASKS": "8"}, (18, 32)),
        ("auto/6", {"JOB_COMPLETION_INDEX": "0"}, (1, 6)),
    ],
)
def test_schedulers_number_processes(text: str, variables: Any, share: tuple[int, int]) -> None:
    assert share_of(text, variables) == share


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("auto", {}, "neither Slurm nor Kubernetes"),
        ("auto/5", SLURM, "there is no process 3 of 4"),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_ID": "19"}, "there is no process 9 of 4"),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_ID": "x"}, "SLURM_ARRAY_TASK_ID is 'x'"),
        ("auto", {"SLURM_PROCID": "8", "SLURM_NTASKS": "8"}, "there is no process 9 of 8"),
        ("auto", {"JOB_COMPLETION_INDEX": "1"}, "write auto/N"),
        ("auto/2", {"JOB_COMPLETION_INDEX": "2"}, "there is no process 3 of 2"),
    ],
)
def test_numbers_that_say_nothing(text: str, variables: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^part: .*{message}"):
        share_of(text, variables)


def test_a_part_may_have_no_files(source: Path, tmp_path: Path) -> None:
    report = make(source, tmp_path / "out.gguf", "2/4", **KINDS["one"], max_shard_size=None)
    assert (report.part, report.files, report.missing) == ("2/4", (), ("out.gguf",))
    assert json.dumps(report.to_dict())
    assert str(report) == (
        "Part 2/4: nothing, for there are fewer files than parts; 0 of 1 file made"
    )


def test_what_progress_raises_comes_out(source: Path, tmp_path: Path) -> None:
    stop = stopping(1, Stop())
    with ThreadPoolExecutor(1) as pool, pytest.raises(Stop):
        as_one(source, tmp_path / "out", {**KINDS["fp8"], "executor": pool, "progress": stop})
    with pytest.raises(Stop):
        make(source, tmp_path / "out", "1/1", progress=stop)
    assert not (tmp_path / "out").exists()


TARGETS = [row.name for row in listed() if row.kind in ("encoding", "dtype", "container")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("to", TARGETS)
def test_each_target_is_the_same_in_a_worker(to: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", layers=1, width=256)
    got: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        for name, more in (("one", {}), ("several", {"executor": pool})):
            out = tmp_path / name / ("out.gguf" if is_gguf(to) else "out")
            edit = {"*norm.weight": np.ones(3, np.float64)} if to in ("bf16", "f32") else {}
            try:
                as_one(source, out, {"to": to, "names": "keep", "edit": edit, **more})
                got.append(tree(tmp_path / name))
            except (an.AnamnesisError, ValueError) as error:
                got.append(str(error).replace("several", "one"))
    assert got[0] == got[1]


def is_gguf(to: str) -> bool:
    """Tell whether a target is written as a GGUF."""
    found = target(to)
    return "gguf" in (found.container, found.usual)


@pytest.mark.skipif(os.name == "nt", reason="needs links")
@pytest.mark.parametrize("name", ["", "parts", "files", "lock"])
def test_no_link_is_followed(name: str, source: Path, tmp_path: Path) -> None:
    parts, elsewhere = tmp_path / "out.amn-parts", tmp_path / "elsewhere"
    if name:
        make(source, tmp_path / "out", "1/1")
    path = parts / name
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.mkdir()
    path.symlink_to(elsewhere)
    before = tree(elsewhere)
    for part in ("commit",) if name == "lock" else ("1/1", "commit"):
        with pytest.raises(an.OutputError, match=r"is a link, where a|of several names"):
            make(source, tmp_path / "out", part)
    assert tree(elsewhere) == before
    assert not (tmp_path / "out").exists()


def test_of_several_commits_one_ends(source: Path, tmp_path: Path) -> None:
    as_one(source, tmp_path / "want", KINDS["fp8"])
    make(source, tmp_path / "out", "1/1")
    meet, ended = threading.Barrier(4), []

    def commit(_: int) -> None:
        with an.parse(source) as model:
            meet.wait()
            try:
                model.convert(tmp_path / "out", part="commit", **KINDS["fp8"])
                ended.append("")
            except an.OutputError as error:
                ended.append(str(error))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(4)))
    said = "has no parts to commit|another run is writing it"
    assert [bool(re.search(said, one)) for one in sorted(ended)] == [False, True, True, True]
    assert tree(tmp_path / "out") == tree(tmp_path / "want")
    assert not left(tmp_path)
