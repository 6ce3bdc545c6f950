"""The small model, parsed, and the toys by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.formats import written
from anamnesis.schemes import encodings
from anamnesis.schemes.core.bands import cut_into
from anamnesis.schemes.core.encoding import Encoding
from helpers.toy_models import write_file, write_shards
from helpers.toys import SUMMED, in_rows


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Know the toys by name, and make bands of a few kilobytes."""
    monkeypatch.setitem(written.WRITERS, "toy", SUMMED)
    monkeypatch.setitem(
        encodings.ENCODINGS, "toy-rows", encodings.Row(encodings.Maker("helpers.toys", "in_rows"))
    )
    with cut_into(4096):
        yield


@pytest.fixture(params=["file", "directory"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The model, once a file and once a directory of two shards."""
    return (write_file if request.param == "file" else write_shards)(tmp_path)


@pytest.fixture
def model(source: Path) -> Iterator[an.Model]:
    """The model, parsed."""
    with an.parse(source) as parsed:
        yield parsed


@pytest.fixture
def out(source: Path) -> Path:
    """Where it goes to."""
    return source.with_name(source.name.replace("in", "out"))


@pytest.fixture
def rows() -> Encoding:
    """The toy encoding."""
    return in_rows()
