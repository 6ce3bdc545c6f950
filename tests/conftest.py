"""Fixtures of all tests; plain functions that build inputs are in handmade.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from handmade import Entry, WriteModel, write_safetensors


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """Write a handmade file below the test's own folder: `write_model(tensors, name=…)`."""

    def write(
        tensors: Mapping[str, Entry],
        name: str = "model.safetensors",
        metadata: Mapping[str, str] | None = None,
    ) -> Path:
        return write_safetensors(tmp_path / name, tensors, metadata)

    return write
