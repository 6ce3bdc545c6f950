"""Fixtures of the scheme tests; what is not a fixture is in fp8_layouts.py."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anamnesis.schemes.core.sizes import cut_into


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of its own for each test, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def small_bands() -> Iterator[None]:
    """Cut weights into bands of 512 bytes, so that rows and columns are split."""
    with cut_into(512):
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder that a test makes a model of."""
    (tmp_path / "model").mkdir()
    return tmp_path / "model"
