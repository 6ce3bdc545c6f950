"""MPI's processes make the files: the bytes of one process, whatever ends them."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import mpi4py
import pytest

from helpers.in_parts import KINDS, as_one, left, write_model
from helpers.models import tree

assert mpi4py  # which scripts import

SCRIPT = """
import json, os, signal, sys
import anamnesis as an
from mpi4py.futures import MPIPoolExecutor

def main(source, out, options, ending):
    with MPIPoolExecutor() as pool, an.parse(source) as model:
        worker = pool.submit(os.getpid).result()
        def progress(done, total):
            if done and ending == "change":
                os.utime(f"{source}/model.safetensors", ns=(1, 1))
            if done > total * 0.3 and ending == "stop":
                raise KeyboardInterrupt
            if done > total * 0.3 and ending == "kill":
                os.kill(worker, signal.SIGKILL)
        try:
            model.convert(out, **json.loads(options), executor=pool, progress=progress)
        except (an.ParseError, KeyboardInterrupt) as error:
            print(type(error).__name__, error)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def by_mpi(source: Path, out: Path, options: dict[str, Any], ending: str = "") -> str:
    """Convert by a pool of two; return what is printed."""
    script = source.parent / "script.py"
    script.write_text(SCRIPT)
    start = [str(Path(sysconfig.get_path("scripts"), "mpiexec")), "-n", "3", sys.executable]
    words = ["-m", "mpi4py.futures", str(script), str(source), str(out), json.dumps(options)]
    done = subprocess.run(
        [*start, *words, ending], capture_output=True, text=True, check=False, timeout=100
    )
    assert bool(done.returncode) == (ending == "kill"), done.stderr
    return done.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_model(tmp_path / "in")


@pytest.mark.parametrize("kind", ["nvfp4", "gguf"])
def test_the_bytes_of_one_process(kind: str, source: Path, tmp_path: Path) -> None:
    name = "out.gguf" if kind == "gguf" else "out"
    for folder in ("want", "made"):
        (tmp_path / folder).mkdir()
    as_one(source, tmp_path / "want" / name, KINDS[kind])
    assert by_mpi(source, tmp_path / "made" / name, KINDS[kind]) == ""
    assert tree(tmp_path / "made") == tree(tmp_path / "want")
    assert not left(tmp_path)


@pytest.mark.parametrize(
    ("ending", "said"), [("change", "ParseError"), ("stop", "KeyboardInterrupt"), ("kill", "")]
)
def test_what_ends_a_run(ending: str, said: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert said in by_mpi(source, out, KINDS["fp8"], ending)
    assert not out.exists()
    if ending != "change":
        by_mpi(source, out, KINDS["fp8"])
        as_one(source, tmp_path / "want", KINDS["fp8"])
        assert tree(out) == tree(tmp_path / "want")
