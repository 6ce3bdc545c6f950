"""Slices of published models through the command line, byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from safetensors import safe_open

from helpers.cli_runs import amn

REAL = os.environ.get("ANAMNESIS_REAL")
pytestmark = pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL is not set")
INPUTS = sorted(
    path
    for path in Path(REAL or os.devnull).glob("fp8/*.safetensors")
    if not path.name.endswith(".expected.safetensors")
)


def contents(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    return {
        name: (e["dtype"], e["shape"], raw[start:][slice(*e["data_offsets"])])
        for name, e in header.items()
    }


def test_there_are_some() -> None:
    assert len(INPUTS) >= 5


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_equals_what_was_expected(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    done = amn("remember", path, "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    with safe_open(out, "np") as file:
        assert set(file.keys()) == set(contents(out))
    expected = contents(path.with_suffix(".expected.safetensors"))
    found = contents(out)
    assert expected
    for name, tensor in expected.items():
        assert found[name] == tensor, name
