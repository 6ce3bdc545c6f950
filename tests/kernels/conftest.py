"""Fixtures of the kernel tests; what is not a fixture is in kernel_cases.py."""

from __future__ import annotations

import zlib

import numpy as np
import pytest


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of its own for each test, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
