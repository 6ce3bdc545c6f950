"""Small bands, for tests of schemes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anamnesis.schemes.core.bands import cut_into


@pytest.fixture
def small_bands() -> Iterator[None]:
    """Cut weights into bands of 512 bytes, so that rows and columns are split."""
    with cut_into(512):
        yield
