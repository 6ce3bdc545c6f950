"""Fixtures of the formats' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a model, empty."""
    folder = tmp_path / "model"
    folder.mkdir()
    return folder
