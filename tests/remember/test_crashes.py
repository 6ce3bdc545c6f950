"""Killed anywhere, a run leaves nothing half done, and resuming makes the same bytes of it."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import write_safetensors
from helpers.models import finish, partials, start

POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@POSIX
@pytest.mark.parametrize(
    ("kind", "before", "sync"),
    [
        ("file", "none", "no"),
        ("file", "full", "no"),
        ("file", "none", "sync"),
        pytest.param("directory", "none", "no", marks=pytest.mark.slow),
        pytest.param("directory", "empty", "no", marks=pytest.mark.weekly),
        pytest.param("directory", "full", "no", marks=pytest.mark.slow),
        pytest.param("directory", "full", "sync", marks=pytest.mark.weekly),
        # without a config.json that comes last
        pytest.param("bare", "none", "no", marks=pytest.mark.weekly),
        pytest.param("bare", "full", "no", marks=pytest.mark.slow),
    ],
)
def test_killed_at_every_system_call(kind: str, before: str, sync: str, fast_folder: Path) -> None:
    from helpers import crash_points

    script = Path(crash_points.__file__).read_text()
    points = int(finish(start(script, kind, before, fast_folder, sync)))
    assert points > 30


RUN = """
import sys, anamnesis as an
with an.parse(sys.argv[1]) as model:
    print("ready", flush=True)
    model.remember(sys.argv[2], resume=sys.argv[3] == "resume")
"""


def large_model(path: Path) -> Path:
    """About 200 MB once decoded."""
    raw = np.random.default_rng(0).integers(0, 0x7F, 4 << 20, np.uint8).tobytes()
    entries = {f"{i:02}.weight": ("F8_E4M3", (2048, 2048), raw) for i in range(24)}
    return write_safetensors(path, entries)


def digest(path: Path) -> dict[str, str]:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_killed_at_any_moment(kind: str, fast_folder: Path) -> None:
    if kind == "file":
        source, out = large_model(fast_folder / "in.safetensors"), fast_folder / "out.safetensors"
    else:
        source, out = fast_folder / "in", fast_folder / "out"
        large_model(source / "model.safetensors")
        (source / "config.json").write_text("{}")
    with an.parse(source) as model:
        began = time.monotonic()
        model.remember(out)
        seconds = time.monotonic() - began
    want = digest(out)
    killed = 0
    for part in (0.05, 0.3, 0.6, 0.9, random.Random(kind).uniform(0, 1)):
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        process = start(RUN, source, out, "begin")
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds * part)
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        if out.exists():
            assert digest(out) == want
        finish(start(RUN, source, out, "resume"))
        assert digest(out) == want
        assert not partials(fast_folder)
    assert killed
