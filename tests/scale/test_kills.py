"""Killed anywhere, nothing half made is seen, and going on makes the bytes of one process."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import anamnesis as an
from helpers.in_parts import KINDS, alone, as_one, left, write_model
from helpers.models import finish, start, tree

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("before", ["none", "full"])
@pytest.mark.parametrize("victim", ["1/2", "commit"])
def test_killed_at_every_system_call(victim: str, before: str, tmp_path: Path) -> None:
    from helpers import part_crashes

    script = Path(part_crashes.__file__).read_text()
    assert int(finish(start(script, victim, before, tmp_path))) > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fp8", "nvfp4", "gguf"])
def test_a_pool_of_processes(kind: str, tmp_path: Path) -> None:
    source, name = write_model(tmp_path / "in"), "out.gguf" if kind == "gguf" else "out"
    expected = as_one(source, tmp_path / "want" / name, KINDS[kind])
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        report = as_one(source, tmp_path / "made" / name, {**KINDS[kind], "executor": pool})
    assert tree(tmp_path / "made") == tree(tmp_path / "want")
    assert alone(report) == alone(expected)


@pytest.mark.slow
def test_a_pool_whose_process_dies_keeps_what_is_made(tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", layers=4, width=1024)
    options = {**KINDS["fp8"], "max_shard_size": 700_000}
    as_one(source, tmp_path / "want", options)
    said: list[str] = []
    for _ in range(3):
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            pool.submit(os.getpid).result()
            victims = list(pool._processes)[:1]  # no other way to name one

            def kill(*_: int, victims: list[int] = victims) -> None:
                if victims:
                    os.kill(victims.pop(), signal.SIGKILL)

            try:
                as_one(source, tmp_path / "out", {**options, "executor": pool, "progress": kill})
                shutil.rmtree(tmp_path / "out")  # it was quicker than the kill
            except an.OutputError as error:
                said.append(str(error))
                assert not (tmp_path / "out").exists()
    as_one(source, tmp_path / "out", {**options, "executor": "processes:1"})
    assert tree(tmp_path / "out") == tree(tmp_path / "want")
    assert not left(tmp_path)
    assert said
    assert all("files are made, and kept: run again" in line for line in said)


@pytest.mark.slow
def test_parents_killed(tmp_path: Path) -> None:
    """The command with its own workers is killed, whole or the parent alone, again and again."""
    source = write_model(tmp_path / "in", layers=4, width=1024)
    options = {**KINDS["fp8"], "max_shard_size": 700_000}
    as_one(source, tmp_path / "want", options)
    words = ["--to", "fp8-block", "--max-shard-size", "700KB", "--executor", "processes:2"]
    command = [
        sys.executable,
        "-m",
        "anamnesis",
        "convert",
        str(source),
        "-o",
        str(tmp_path / "out"),
    ]
    chance = random.Random(3)
    for _ in range(20):
        process = subprocess.Popen(
            [*command, *words], start_new_session=True, stderr=subprocess.PIPE, text=True
        )
        time.sleep(chance.uniform(0.3, 1.5))
        if process.poll() is None:
            kill = chance.choice([os.kill, os.killpg])
            kill(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
        out = tmp_path / "out"
        assert not (out / "config.json").exists() or tree(out) == tree(tmp_path / "want")
        if out.exists():
            break
    if not (tmp_path / "out").exists():  # a busy machine is slower than each kill
        subprocess.run([*command, *words], check=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "want")
