"""Directories that the tests of checkpoints begin with."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

import anamnesis as an
from helpers.handmade import Entry, write_safetensors

ONE = struct.pack("<f", 1.0)
A: dict[str, Entry] = {"a": ("F32", [1], ONE)}
B: dict[str, Entry] = {"b": ("F32", [1], struct.pack("<f", 2.0))}
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"

needs_links = pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
needs_posix = pytest.mark.skipif(os.name == "nt", reason="no such file names on Windows")


def two_shards(root: Path) -> None:
    write_safetensors(root / FIRST, A)
    write_safetensors(root / SECOND, B)


def left_out(model: an.Model) -> dict[str, str]:
    return {d.name: d.reason for d in model._checkpoint.left_out}
