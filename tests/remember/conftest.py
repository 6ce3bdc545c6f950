"""Fixtures of the remember tests; plain functions are in models.py."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.schemes.core.bands import cut_into
from helpers.handmade import write_safetensors
from helpers.models import small_model, tree, write_directory

KINDS = ("file", "directory")


@pytest.fixture
def small_bands() -> Iterator[None]:
    """Bands of a few kilobytes, so that small models have many."""
    with cut_into(4096, stripe=1 << 14):
        yield


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small model, once a file and once a directory."""
    if request.param == "file":
        return write_safetensors(tmp_path / "in.safetensors", small_model(), {"made": "by hand"})
    return write_directory(tmp_path / "in")


@pytest.fixture
def out(source: Path) -> Path:
    """Where it goes to."""
    return source.with_name(source.name.replace("in", "out"))


@pytest.fixture
def model(source: Path) -> an.Model:
    """The model, parsed."""
    return an.parse(source)


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """A folder in memory, where there is one: for tests that write much."""
    memory = "/dev/shm"
    roomy = os.path.isdir(memory) and shutil.disk_usage(memory).free > 4 << 30
    with tempfile.TemporaryDirectory(dir=memory if roomy else None) as folder:
        yield Path(folder)


@pytest.fixture
def want(model: an.Model, out: Path) -> dict[str, bytes]:
    """What comes of an uninterrupted run."""
    other = out.with_name("want")
    model.remember(other)
    return tree(other)
