"""Fixtures of the scheme tests; what is not a fixture is in fp8_layouts.py."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of its own for each test, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def small_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut weights into bands of 512 bytes, so that rows and columns are split."""
    from anamnesis.convert.plan import plan
    from anamnesis.schemes.core import arrays as memory
    from anamnesis.schemes.integers import words as packed

    monkeypatch.setattr(plan, "BAND_BYTES", 512)
    monkeypatch.setattr(memory, "BAND_BYTES", 512)
    monkeypatch.setattr(packed, "STRIPE_BYTES", 4096)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder that a test makes a model of."""
    (tmp_path / "model").mkdir()
    return tmp_path / "model"
