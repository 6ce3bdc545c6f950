"""Outputs in buckets: the bytes of an output on disk, or one clear line and nothing to be seen."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.base.errors import AnamnesisError
from anamnesis.cli.app import cli
from anamnesis.convert.parts.parts import Parts
from anamnesis.sources import bucket as bucket_module
from anamnesis.sources.remote import open_remote
from helpers.in_parts import KILLED, KINDS, alone, as_one, make_all, write_model
from helpers.models import tree
from helpers.page_inputs import run_demo
from helpers.pages import PROJECT, blocks

pytest.importorskip("moto.server")
pytest.importorskip("obstore")
from helpers.s3_server import FAULTS, Bucket, Proxy, s3_server

pytestmark = pytest.mark.oracle

FP8, SHORT = KINDS["fp8"], {"to": "fp8-block", "max_shard_size": 70_000}
# One that is an upload of several parts, in a file that cannot be written in order, and sidecars.
NAMES = {"gguf": "out.gguf", "one": "out.gguf", "npz": "out.npz", "pth": "out.pth"}
EACH = {**KINDS, "npz": {"to": "npz"}, "pth": {"to": "pth"}}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Proxy]]:
    with s3_server() as running:
        yield running


@pytest.fixture
def bucket(server: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    endpoint, proxy = server
    names = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    for name, value in {**names, "AWS_ENDPOINT_URL": proxy.endpoint}.items():
        monkeypatch.setenv(name, value)
    bucket_module._store.cache_clear()
    proxy.reset()
    found = Bucket(endpoint, proxy, "outputs")
    found.clear()
    yield found
    assert not found.unfinished()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_model(tmp_path / "in")


def wanted(source: Path, folder: Path, options: dict[str, Any], name: str = "out") -> Any:
    """Return the files of an output on disk, and its report."""
    (folder / "want").mkdir()
    report = as_one(source, folder / "want" / name, options)
    return tree(folder / "want"), report


def visible(bucket: Bucket) -> set[str]:
    """Return the objects by which a program would find a model."""
    return {n for n in bucket.tree() if n.endswith(("config.json", "index.json"))}


def whole(tmp_path: Path, columns: int = 1024) -> Path:
    """Write a file that is uploaded in several parts."""
    rng = np.random.default_rng(0)
    arrays = {f"w{i}": rng.random((1024, columns), np.float32) for i in range(5)}
    an.save(arrays, tmp_path / "whole.safetensors")
    return tmp_path / "whole.safetensors"


# --- the same as on disk --------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", ["alone", "shares", "threads"])
@pytest.mark.parametrize("kind", EACH)
def test_the_bytes_and_the_report_of_a_disk(
    kind: str, way: str, source: Path, tmp_path: Path, bucket: Bucket
) -> None:
    name = NAMES.get(kind, "out")
    want, report = wanted(source, tmp_path, EACH[kind], name)
    if way == "shares":
        found = make_all(source, f"{bucket.url}/a b/ü/{name}", EACH[kind])
    else:
        with ThreadPoolExecutor(3) as pool:
            executor = {"executor": pool} if way == "threads" else {}
            found = as_one(source, f"{bucket.url}/a b/ü/{name}", EACH[kind] | executor)
    assert bucket.tree("a b/ü/") == want
    assert alone(found) == alone(report)


def test_processes(source: Path, tmp_path: Path, bucket: Bucket) -> None:
    want, _ = wanted(source, tmp_path, FP8)
    as_one(source, f"{bucket.url}/out", FP8 | {"executor": "processes:2"})
    assert bucket.tree() == want


@pytest.mark.parametrize("to", ["f32", "npz"])
def test_an_upload_in_parts(to: str, tmp_path: Path, bucket: Bucket) -> None:
    source, name = whole(tmp_path), "out.npz" if to == "npz" else "out.safetensors"
    want, _ = wanted(source, tmp_path, {"to": to}, name)
    as_one(source, f"{bucket.url}/{name}", {"to": to, "threads": 2})
    assert bucket.tree() == want


def test_from_a_bucket_to_a_bucket(source: Path, tmp_path: Path, bucket: Bucket) -> None:
    want, _ = wanted(source, tmp_path, FP8)
    for path, raw in tree(source).items():
        bucket.store.put(f"in/{path}", raw)
    as_one(f"{bucket.url}/in", f"{bucket.url}/out/", FP8)
    assert bucket.tree("out") == {name.removeprefix("out"): raw for name, raw in want.items()}


@pytest.mark.parametrize("url", ["", "/"])
def test_a_whole_bucket(url: str, source: Path, tmp_path: Path, bucket: Bucket) -> None:
    as_one(source, tmp_path / "out", FP8)
    make_all(source, bucket.url + url, FP8)
    assert bucket.tree() == tree(tmp_path / "out")


def requests(source: Path, bucket: Bucket, size: int) -> tuple[int, int]:
    """Return the files of a conversion, and its requests."""
    bucket.clear()
    bucket.proxy.reset()
    report = as_one(source, f"{bucket.url}/out", {"to": "f16", "max_shard_size": size})
    return report.n_files, len(bucket.proxy.asked)


def test_requests_grow_as_files_do(tmp_path: Path, bucket: Bucket) -> None:
    (tmp_path / "in").mkdir()
    source = write_model(tmp_path / "in", layers=12, width=16)
    (few, some), (many, more) = (requests(source, bucket, size) for size in (6000, 600))
    assert many > 4 * few
    assert more - some <= 7.1 * (many - few)


@pytest.mark.parametrize(
    "options", [FP8, KINDS["nvfp4"], KINDS["one"]], ids=["fp8", "nvfp4", "one"]
)
def test_two_make_one_output(
    options: dict[str, Any], source: Path, tmp_path: Path, bucket: Bucket
) -> None:
    want, _ = wanted(source, tmp_path, options)
    meet = threading.Barrier(2)

    def work(_: int) -> str:
        with an.parse(source) as model:
            meet.wait()
            try:
                model.convert(f"{bucket.url}/out", **options)
            except AnamnesisError as error:
                return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        errors = list(pool.map(work, range(2)))
    assert "" in errors
    lines = "another run ended meanwhile|exists|has no parts"
    assert all(re.search(lines, error) for error in errors if error), errors
    there = bucket.tree()
    assert {name: raw for name, raw in there.items() if ".amn-parts" not in name} == want
    assert there == want, errors


def test_who_comes_too_late_takes_its_note_back(source: Path, bucket: Bucket) -> None:
    def finish(done: int, total: int) -> None:
        if done and not others:
            others.append(as_one(source, f"{bucket.url}/out", FP8))

    others: list[Any] = []
    with pytest.raises(an.OutputError, match="another run ended meanwhile"):
        as_one(source, f"{bucket.url}/out", FP8 | {"progress": finish})
    assert not [name for name in bucket.tree() if ".amn-parts" in name]


@pytest.mark.parametrize("page", ["remote", "scale"])
def test_commands_of_the_pages(page: str, tmp_path: Path, bucket: Bucket) -> None:
    run_demo(tmp_path, "fp8-directory")
    run_demo(tmp_path, "llama")
    found = [c for c in blocks(PROJECT / "docs" / f"{page}.md") if "needs a bucket" in c.comment]
    lines = [line[2:] for block in found for line in block.text.splitlines()]
    endpoint = bucket.proxy.endpoint
    Bucket(endpoint, bucket.proxy, "models").clear()
    for line in lines:
        words = [sys.executable, "-m", "anamnesis", *shlex.split(line)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), line
    made = Bucket(endpoint, bucket.proxy, "models").tree()
    assert not [name for name in made if ".amn-parts" in name]
    assert len([name for name in made if name.endswith(("/config.json", "llama.safetensors"))]) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("convert in s3://outputs/out --to f16", "does not exist; `amn convert in -o s3://outp"),
        (
            "convert in s3://outputs/there/ --to f16",
            "s3://outputs/there: exists; --force replaces its files",
        ),
        ("convert in s3://no-such-bucket/out/ --to f16", "no such bucket"),
        ("convert in s3://outputs/there/ --to f16 --max-shard-size 1MB -o hf://a/b", "only s3://"),
    ],
)
def test_places_of_a_command_line(
    line: str, said: str, source: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.store.put("there/config.json", b"{}")
    monkeypatch.chdir(source.parent)
    done = CliRunner().invoke(cli, shlex.split(line), prog_name="amn")
    assert done.exit_code
    assert said in done.stderr
    assert set(bucket.tree()) == {"there/config.json"}


@pytest.mark.parametrize(
    ("out", "to"),
    [
        ("out", "fp8-block"),
        ("out.safetensors", "f16"),
        ("out.gguf", "gguf-q8_0 --names keep --split-max-size 40KB"),
    ],
)
def test_what_is_made_is_skipped(
    out: str, to: str, source: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    line = shlex.split(f"convert in --to {to} -o s3://outputs/{out} --skip-existing --json")
    made = CliRunner().invoke(cli, line, prog_name="amn")
    assert made.exit_code == 0, made.stderr
    before = bucket.tree()
    again = CliRunner().invoke(cli, line, prog_name="amn")
    assert (again.exit_code, bucket.tree()) == (0, before)
    assert json.loads(again.stdout)["skipped"] == f"s3://outputs/{out} exists"
    bucket.store.put(f"{out}.amn-parts/00000.json", b"{}")  # as of a run that has not ended
    other = CliRunner().invoke(cli, line, prog_name="amn")
    assert other.exit_code or "skipped" not in json.loads(other.stdout)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("hf://a/b", "only s3://, gs:// and az:// are written to"),
        ("https://user:secret@host/x?sign=secret", "https://host/x: only s3://"),
        ("s3:///x", "is not s3://BUCKET/KEY"),
        ("s3://no-such-bucket/x", "no such bucket"),
        ("s3://outputs/a//b", "which bucket clients do not accept"),
        ("s3://outputs/../b", "which bucket clients do not accept"),
        ("s3://outputs/a\tb", "which bucket clients do not accept"),
    ],
)
def test_addresses_that_are_not_written_to(
    url: str, line: str, source: Path, bucket: Bucket
) -> None:
    with pytest.raises((AnamnesisError, OSError)) as raised:
        as_one(source, url, FP8)
    assert line in str(raised.value)
    assert len(str(raised.value)) < 200
    assert not bucket.tree()


def test_one_file_needs_a_name(source: Path, bucket: Bucket) -> None:
    with pytest.raises(an.OutputError, match="is a bucket; name an object in it"):
        as_one(source, bucket.url, KINDS["one"])


@pytest.mark.parametrize("url", ["s3://outputs/out", "https://host/out"])
def test_a_pipeline_stays_on_this_machine(
    url: str, source: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = source.parent / "pipeline"
    root.mkdir()
    source.rename(root / "unet")
    index = {"_class_name": "Pipeline", "unet": ["diffusers", "UNet2DConditionModel"]}
    (root / "model_index.json").write_text(json.dumps(index))
    monkeypatch.chdir(root.parent)
    with pytest.raises(an.OutputError, match="a pipeline becomes a folder on this machine"):
        an.remember("pipeline", url)
    assert os.listdir() == ["pipeline"]
    assert not bucket.tree()


def test_without_obstore(source: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(an.UnsupportedError, match="obstore is needed") as raised:
        as_one(source, f"{bucket.url}/out", FP8)
    assert "anamnesis-tensors[remote]" in str(raised.value)


def test_an_output_that_is_there(source: Path, tmp_path: Path, bucket: Bucket) -> None:
    want, _ = wanted(source, tmp_path, FP8)
    out = f"{bucket.url}/out"
    as_one(source, out, SHORT)
    before = bucket.tree()
    for options in (FP8, SHORT):
        with pytest.raises(an.OutputError, match="exists"):
            as_one(source, out, options)
    with pytest.raises(an.OutputError, match="holds other weights"):
        as_one(source, out, FP8 | {"force": True})
    assert bucket.tree() == before
    bucket.clear()
    bucket.store.put("out/config.json", b"old")
    bucket.store.put("out/.hidden/model.safetensors", b"kept")
    as_one(source, out, FP8 | {"force": True})
    assert bucket.tree() == want | {"out/.hidden/model.safetensors": b"kept"}


@pytest.mark.parametrize(
    ("kind", "way"), [("fp8", "alone"), ("nvfp4", "threads"), ("gguf", "alone"), ("npz", "threads")]
)
def test_what_is_finished_is_resumed(kind: str, way: str, source: Path, bucket: Bucket) -> None:
    out, options = f"{bucket.url}/{NAMES.get(kind, 'out')}", EACH[kind]
    report = as_one(source, out, options)
    before = bucket.tree()
    bucket.proxy.reset()
    with ThreadPoolExecutor(3) as pool:
        executor = {"executor": pool} if way == "threads" else {}
        found = as_one(source, out, options | executor | {"resume": True})
    assert not [asked for asked in bucket.proxy.asked if not asked.startswith(("GET", "HEAD"))]
    assert bucket.tree() == before
    assert alone(found) == alone(report)


@pytest.mark.parametrize("kind", ["nvfp4", "gguf"])
def test_what_is_not_this_output_is_not_resumed(
    kind: str, source: Path, tmp_path: Path, bucket: Bucket
) -> None:
    want, _ = wanted(source, tmp_path, EACH[kind], NAMES.get(kind, "out"))
    out, options = f"{bucket.url}/{NAMES.get(kind, 'out')}", EACH[kind] | {"resume": True}
    as_one(source, out, options)
    for name in sorted(want)[::5]:
        bucket.store.put(name, want[name][:-1] + bytes([want[name][-1] ^ 1]))
        before = bucket.tree()
        with pytest.raises(an.OutputError, match="exists"):
            as_one(source, out, options)
        assert bucket.tree() == before
        as_one(source, out, options | {"force": True})
        assert bucket.tree() == want
    bucket.store.delete(min(want))
    with pytest.raises(an.OutputError, match="exists"):
        as_one(source, out, options)


@pytest.mark.parametrize("way", ["alone", "shares"])
def test_the_input_is_never_the_output(way: str, source: Path, bucket: Bucket) -> None:
    for path, raw in tree(source).items():
        bucket.store.put(f"in/deep/{path}", raw)
    before = bucket.tree()
    one = {**KINDS["one"], "force": True}
    for given, out, options in (
        ("in/deep", "in/deep", FP8),
        ("in/deep/", "in", FP8),
        ("in/deep", "", FP8),
        ("in/deep", "in/deep/inside", FP8),
        ("in/deep", "in/deep/out.gguf", one),
        ("in/deep/model.safetensors", "in/deep/model.safetensors", {"to": "f16"}),
    ):
        do = make_all if way == "shares" else as_one
        with pytest.raises(an.OutputError, match="is the input, or holds it, or lies inside it"):
            do(f"s3://outputs/{given}", f"S3://outputs/{out}", options | {"force": True})
    assert bucket.tree() == before


def test_parts_of_the_input_are_never_those_of_the_output(source: Path, bucket: Bucket) -> None:
    as_one(source, f"{bucket.url}/m.gguf", KINDS["gguf"])
    before = bucket.tree()
    (first,) = [name for name in before if name.startswith("m-00001-")]
    again = {"to": "gguf-q8_0", "split_max_size": 40_000, "force": True, "names": "keep"}
    with pytest.raises(an.OutputError, match="is the input"):
        as_one(f"{bucket.url}/{first}", f"{bucket.url}/m.gguf", again)
    assert bucket.tree() == before


def test_notes_of_another_plan(source: Path, bucket: Bucket) -> None:
    as_one(source, f"{bucket.url}/out", FP8 | {"part": "1/2"})
    with pytest.raises(an.OutputError, match=r"s3://outputs/out\.amn-parts are of .*remove them"):
        as_one(source, f"{bucket.url}/out", SHORT)


def test_objects_that_are_no_notes_stay(source: Path, bucket: Bucket) -> None:
    names = ("out.amn-parts/config.json", "out.amn-parts/deep/00000.json", "out-2/config.json")
    for name in names:
        bucket.store.put(name, b"{}")
    as_one(source, f"{bucket.url}/out", FP8)
    assert set(names) < bucket.tree().keys()
    assert not [n for n in bucket.tree() if ".amn-parts" in n and n not in names]


# --- what breaks ----------------------------------------------------------------------------------


def failing_edit(_: Any) -> Any:
    raise ValueError("no such values")


def stopping(done: int, total: int) -> None:
    if done > total * 0.7:
        raise KeyboardInterrupt


BREAKS: dict[str, tuple[dict[str, Any], type[BaseException]]] = {
    "edit": ({"edit": {"model.layers.2.*": failing_edit}}, ValueError),
    "progress": ({"progress": stopping}, KeyboardInterrupt),
}


@pytest.mark.parametrize("why", BREAKS)
def test_what_is_made_before_a_failure_is_not_made_again(
    why: str, source: Path, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, report = wanted(source, tmp_path, FP8)
    options, error = BREAKS[why]
    with pytest.raises(error):
        as_one(source, f"{bucket.url}/out", FP8 | options)
    assert not visible(bucket)
    assert not bucket.unfinished()
    if why == "edit":  # is another plan
        return
    made, make = list[int](), Parts.make

    def counting(parts: Parts, i: int, *rest: Any, **options: Any) -> None:
        made.append(i)
        make(parts, i, *rest, **options)

    monkeypatch.setattr(Parts, "make", counting)
    found = as_one(source, f"{bucket.url}/out", FP8)
    assert 0 < len(made) < report.n_files / 2
    assert bucket.tree() == want
    assert alone(found) == alone(report)


def test_a_store_that_does_not_compare(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.store.put("x", bytes(1 << 20))
    monkeypatch.setattr(bucket.proxy, "translate", lambda headers: headers.__delitem__("If-Match"))
    with open_remote(f"{bucket.url}/x") as found:
        bucket.store.put("x", bytes((1 << 20) - 1) + b"1")
        with pytest.raises(an.ParseError, match="was replaced while it was read"):
            found.read(1 << 19, 1 << 19)


@pytest.mark.parametrize("to", ["f32", "npz"])
@pytest.mark.parametrize("why", BREAKS)
def test_an_upload_is_given_up(why: str, to: str, tmp_path: Path, bucket: Bucket) -> None:
    source, name = whole(tmp_path), "out.npz" if to == "npz" else "out.safetensors"
    edits = {"edit": {"w4": failing_edit}} if why == "edit" else BREAKS[why][0]
    with pytest.raises(BREAKS[why][1]):
        as_one(source, f"{bucket.url}/{name}", {"to": to, "threads": 1} | edits)
    assert name not in bucket.tree()


def test_a_source_that_changes(source: Path, bucket: Bucket) -> None:
    def change(done: int, total: int) -> None:
        if done > total / 2:
            os.utime(source / "model.safetensors", ns=(1, 1))

    with pytest.raises(AnamnesisError, match=r"model\.safetensors"):
        as_one(source, f"{bucket.url}/out", FP8 | {"progress": change})
    assert not visible(bucket)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no such signal")
def test_a_run_that_is_killed(source: Path, tmp_path: Path, bucket: Bucket) -> None:
    want, _ = wanted(source, tmp_path, FP8)
    line = [sys.executable, "-c", KILLED, str(source), f"{bucket.url}/out"]
    assert subprocess.run(line, check=False).returncode == -signal.SIGKILL
    assert not visible(bucket)
    bucket.proxy.reset()
    as_one(source, f"{bucket.url}/out", FP8)
    assert len([a for a in bucket.proxy.asked if a.startswith("PUT /outputs/out/model-")]) < 6
    assert bucket.tree() == want


def test_old_files_and_new_ones_are_never_one_model(source: Path, bucket: Bucket) -> None:
    as_one(source, f"{bucket.url}/out", FP8)
    with pytest.raises(KeyboardInterrupt):
        as_one(source, f"{bucket.url}/out", FP8 | {"force": True, "progress": stopping})
    assert not visible(bucket)
    parts = KINDS["gguf"]
    as_one(source, f"{bucket.url}/m.gguf", parts)
    with pytest.raises(KeyboardInterrupt):
        as_one(source, f"{bucket.url}/m.gguf", parts | {"force": True, "progress": at_once})
    assert not [n for n in bucket.tree() if n.startswith("m-00001-")]


def at_once(done: int, total: int) -> None:
    raise KeyboardInterrupt


def broken(source: Path, bucket: Bucket, want: dict[str, bytes], fault: str, at: int) -> bool:
    """Convert with a fault; tell whether the conversion has such a request at all."""
    bucket.clear()
    bucket.proxy.reset(fault, at)
    error = None
    try:
        as_one(source, f"{bucket.url}/out", SHORT)
    except (AnamnesisError, OSError) as raised:
        error = str(raised)
        assert len(error) < 250
        assert "\n" not in error
    is_met = len(bucket.proxy.asked) >= at
    asked = bucket.proxy.asked[at - 1] if is_met else ""
    bucket.proxy.reset()
    there = bucket.tree()
    if "out/config.json" in there:
        assert {n: raw for n, raw in there.items() if ".amn-parts" not in n} == want, asked
    if error is None:
        assert there == want, asked
    elif not (there == want and "delete" in asked):
        as_one(source, f"{bucket.url}/out", SHORT)
        assert bucket.tree() == want, asked
    if "?uploads" in asked:  # its answer is lost, and its number
        return is_met
    assert not bucket.unfinished(), asked
    return is_met


STEP = 9


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.weekly), pytest.param(STEP)], ids=["each", "some"]
)
def test_each_fault_on_each_request(fault: str, step: int, tmp_path: Path, bucket: Bucket) -> None:
    (tmp_path / "in").mkdir()
    source = write_model(tmp_path / "in", layers=1)
    want, _ = wanted(source, tmp_path, SHORT)
    at = 1 + FAULTS.index(fault) % step
    while broken(source, bucket, want, fault, at):
        at += step
    assert at > 20
