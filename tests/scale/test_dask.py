"""Dask's workers make the files: the bytes of one process, whoever dies."""

from __future__ import annotations

import random
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import anamnesis as an
from helpers.dask_cluster import Cluster, cluster
from helpers.in_parts import KINDS, alone, as_one, left, write_model
from helpers.models import tree

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask"), 2) as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "in")


@pytest.mark.parametrize("kind", ["fp8", "nvfp4", "gguf", "edit"])
def test_the_bytes_of_one_process(kind: str, dask: Cluster, source: Path, tmp_path: Path) -> None:
    name = "out.gguf" if kind == "gguf" else "out"
    expected = as_one(source, tmp_path / "want" / name, KINDS[kind])
    with Client(dask.address, set_as_default=False) as client:
        pool = client.get_executor(pure=False)
        report = as_one(source, tmp_path / "made" / name, {**KINDS[kind], "executor": pool})
    assert tree(tmp_path / "made") == tree(tmp_path / "want")
    assert alone(report) == alone(expected)
    assert not left(tmp_path)


def test_the_command_line(dask: Cluster, source: Path, tmp_path: Path) -> None:
    expected = as_one(source, tmp_path / "want", KINDS["fp8"])
    address = dask.address.replace("tcp:", "dask:")
    words = ["--to", "fp8-block", "--max-shard-size", "18KB", "--executor", address]
    amn = Path(sysconfig.get_path("scripts"), "amn")
    command = [
        sys.executable,
        str(amn),
        "convert",
        str(source),
        "-o",
        str(tmp_path / "out"),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "out") == tree(tmp_path / "want")
    assert f"out {expected.n_out}" in done.stdout


def test_an_error_of_a_worker_is_the_error(dask: Cluster, source: Path, tmp_path: Path) -> None:
    options: Any = {"to": "fp8-block", "max_shard_size": 18_000}
    with Client(dask.address, set_as_default=False) as client, an.parse(source) as model:
        path = source / "model.safetensors"
        raw = path.read_bytes()
        path.write_bytes(raw[:-4])
        with pytest.raises(an.AnamnesisError, match=r"model\.safetensors"):
            model.convert(tmp_path / "out", executor=client.get_executor(), **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        pytest.param("nvfp4", 5, marks=pytest.mark.slow),
        pytest.param("fp8", 100, marks=pytest.mark.weekly),
        pytest.param("nvfp4", 100, marks=pytest.mark.weekly),
    ],
)
def test_workers_killed_at_random(kind: str, kills: int, tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", layers=4, width=1024)
    options = {**KINDS[kind], "max_shard_size": 700_000, "verify": False}
    expected = as_one(source, tmp_path / "want", options)
    want, chance, killed, ended = tree(tmp_path / "want"), random.Random(1), 0, threading.Event()

    def kill() -> None:
        nonlocal killed
        while not ended.wait(chance.uniform(0.05, 0.6)):
            victims.kill(chance.randrange(len(victims.workers)))
            killed += 1

    n = 0
    with cluster(tmp_path, 3) as victims:
        while killed < kills:
            ended.clear()
            killer = threading.Thread(target=kill)
            killer.start()
            end = time.monotonic() + 120
            try:
                with Client(victims.address, set_as_default=False) as client:
                    pool = client.get_executor(pure=False, retries=1000)
                    more = {"executor": pool, "force": bool(n)}
                    report = as_one(source, tmp_path / "out", {**options, **more})
            finally:
                ended.set()
                killer.join()
            assert time.monotonic() < end
            assert tree(tmp_path / "out") == want
            assert alone(report) == alone(expected)
            n += 1
    assert not left(tmp_path)
    print(f"{killed} kills, {n} conversions")
