"""The kernels without Python: the program that .ci/cross builds for other machines, on this one.

`PYTHONPATH=tests python tests/kernels/test_c_program.py` records what it prints, after a new row in
kernels.def or blocks.def; a line that changes is a kernel that gives other bytes than before.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest

from anamnesis import _core
from helpers.kernel_calls import PROJECT

RECORDED = PROJECT / "tests/c/kernels.txt"
FAMILIES = ("scaled", "absmax", "convert", "block", "packed", "trellis", "encode")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the program in a folder, and run it."""
    sources = [PROJECT / "tests/c/kernels_test.c", *(PROJECT / "csrc/kernels").rglob("*.c")]
    flags = ["-std=c11", "-O1", "-ffp-contract=off", "-fno-math-errno", f"-I{PROJECT / 'csrc'}"]
    compiler = shlex.split(os.environ.get("CC", "cc"))
    objects: list[Path] = []
    for source in sources:  # one by one, so that a compiler's cache has them
        objects.append(folder / f"{len(objects)}.o")
        subprocess.run([*compiler, *flags, "-c", source, "-o", objects[-1]], check=True)
    program = folder / "kernels_test"
    subprocess.run([*compiler, *objects, "-o", program, "-lm"], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True)


@pytest.mark.slow
def test_every_level_gives_the_recorded_bytes(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.stdout == RECORDED.read_text()
    tested = {line.removeprefix("tested: ") for line in done.stderr.splitlines()}
    assert tested == set(_core.supported_levels())
    rows = {line.split()[1] for line in done.stdout.splitlines()}
    assert rows == {kernel.name for kernel in _core.kernels() if kernel.family in FAMILIES}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        RECORDED.write_text(run(Path(folder)).stdout)
