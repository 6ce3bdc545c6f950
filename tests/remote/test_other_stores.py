"""Outputs and inputs at Google's and Azure's, by their own clients and APIs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.base.errors import ParseError
from anamnesis.convert.resume.bucket import delete, put
from anamnesis.sources import bucket as bucket_module
from anamnesis.sources.remote import open_remote
from helpers.in_parts import KILLED, KINDS, alone, as_one, make_all, write_model
from helpers.models import tree

pytest.importorskip("moto.server")
pytest.importorskip("obstore")
from helpers.other_stores import AZURITE, azure, google, objects

pytestmark = pytest.mark.oracle

FP8 = KINDS["fp8"]
SERVERS = {"gs": google, "az": azure}
AZ = pytest.param("az", marks=pytest.mark.skipif(not AZURITE, reason="ANAMNESIS_AZURITE is unset"))


@pytest.fixture(scope="module", params=["gs", AZ])
def bucket(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    before = dict(os.environ)
    with SERVERS[request.param](tmp_path_factory.mktemp("server")) as names:
        os.environ.pop("AWS_ENDPOINT_URL", None)
        os.environ.update(names)
        bucket_module._store.cache_clear()
        yield f"{request.param}://outputs"
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def source(bucket: str, tmp_path: Path) -> Path:
    for name in objects(bucket):
        delete([f"{bucket}/{name}"])
    (tmp_path / "in").mkdir()
    return write_model(tmp_path / "in")


@pytest.mark.parametrize(
    ("kind", "way"), [("fp8", "alone"), ("nvfp4", "shares"), ("gguf", "threads")]
)
def test_there_and_back(kind: str, way: str, source: Path, bucket: str, tmp_path: Path) -> None:
    options, name = KINDS[kind], "out.gguf" if kind == "gguf" else "out"
    (tmp_path / "want").mkdir()
    report = as_one(source, tmp_path / "want" / name, options)
    want = tree(tmp_path / "want")
    if way == "shares":
        found = make_all(source, f"{bucket}/a b/{name}", options)
    else:
        with ThreadPoolExecutor(3) as pool:
            executor = {"executor": pool} if way == "threads" else {}
            found = as_one(source, f"{bucket}/a b/{name}", options | executor)
    assert objects(bucket) == {f"a b/{path}": raw for path, raw in want.items()}
    assert alone(found) == alone(report)
    with pytest.raises(an.OutputError, match="exists"):
        as_one(source, f"{bucket}/a b/{name}", options)
    again = as_one(source, f"{bucket}/a b/{name}", options | {"resume": True})
    assert alone(again) == alone(report)
    if kind == "fp8":
        an.remember(f"{bucket}/a b/out", tmp_path / "far")
        an.remember(tmp_path / "want" / "out", tmp_path / "near")
        assert tree(tmp_path / "far") == tree(tmp_path / "near")
        with pytest.raises(an.OutputError, match="is the input"):
            as_one(f"{bucket}/a b/out", f"{bucket}/a b/out", {"to": "f16", "force": True})


def test_what_is_there_is_replaced(source: Path, bucket: str, tmp_path: Path) -> None:
    for name in ("config.json", "out/config.json"):
        put(f"{bucket}/{name}", b"old")
    as_one(source, f"{bucket}/out", FP8 | {"force": True})
    as_one(source, tmp_path / "out", FP8)
    want = {f"out/{name}": raw for name, raw in tree(tmp_path / "out").items()}
    assert objects(bucket) == want | {"config.json": b"old"}


def test_an_upload_in_parts(source: Path, bucket: str, tmp_path: Path) -> None:
    name, options = "whole.safetensors", {"to": "f32", "threads": 2}
    path = write_model(source, layers=3, width=1280) / "model.safetensors"

    def stop(done: int, total: int) -> None:
        if done > total * 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        as_one(path, f"{bucket}/{name}", options | {"progress": stop})
    assert name not in objects(bucket)
    as_one(path, f"{bucket}/{name}", options)
    as_one(path, tmp_path / name, options)
    assert objects(bucket) == {name: (tmp_path / name).read_bytes()}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no such signal")
def test_a_run_that_is_killed(source: Path, bucket: str, tmp_path: Path) -> None:
    line = [sys.executable, "-c", KILLED, str(source), f"{bucket}/out"]
    assert subprocess.run(line, check=False).returncode == -signal.SIGKILL
    assert "out/config.json" not in objects(bucket)
    as_one(source, f"{bucket}/out", FP8 | {"resume": True})
    as_one(source, tmp_path / "out", FP8)
    assert objects(bucket) == {f"out/{n}": raw for n, raw in tree(tmp_path / "out").items()}


def test_small_objects(source: Path, bucket: str) -> None:
    url = f"{bucket}/a/b.json"
    assert put(url, b"one", mode="create")
    assert not put(url, b"two", mode="create")
    delete([f"{bucket}/none", url, f"{bucket}/also none"])
    assert objects(bucket) == {}
    with pytest.raises(FileNotFoundError, match="no such object"):
        open_remote(url)
    put(url, b"")
    assert open_remote(url).size == 0


def test_what_is_replaced_meanwhile(source: Path, bucket: str) -> None:
    put(f"{bucket}/x", bytes(1 << 20))
    with open_remote(f"{bucket}/x") as found:
        put(f"{bucket}/x", bytes(1 << 20)[:-1] + b"1")
        with pytest.raises(ParseError, match="was replaced while it was read"):
            found.read(1 << 19, 1 << 19)
