"""What verbs write is recorded, and one other byte is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.handmade import write_safetensors

TOOL = Path(__file__).parents[1] / "tools" / "digests.py"


def run(*arguments: str | Path, real: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(TOOL), *map(str, arguments)]
    told = {**os.environ, "ANAMNESIS_REAL": str(real)}
    return subprocess.run(line, env=told, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    values = bytes(range(1, 65)) * 4
    records = [tmp_path / f"{name}.json" for name in ("old", "again", "new")]
    for record in records:
        raw = values[:-1] + b"\1" if record.stem == "new" else values
        write_safetensors(
            tmp_path / "real" / "tiny.safetensors", {"a.weight": ("F32", (2, 32), raw)}
        )
        done = run(record, "--only", "tiny*", real=tmp_path / "real")
        assert done.returncode == 0, done.stderr
    old, again, new = records
    assert old.read_text() == again.read_text()
    alike = run("--compare", old, again, real=tmp_path)
    assert (alike.returncode, alike.stdout.splitlines()[0][:2]) == (0, "0 ")
    told = run("--compare", old, new, real=tmp_path)
    assert told.returncode == 1
    lines = told.stdout.splitlines()
    assert "tiny.safetensors | convert int4-32" in lines  # what differs
    assert "tiny.safetensors | convert int4-7" not in lines  # there is none, of either
    assert str(tmp_path) not in told.stdout
