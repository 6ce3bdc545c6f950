"""A server of ranges for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis.sources import retries
from helpers.range_server import RangeServer, serving


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    """Serve `tmp_path/web`, and the repositories in `tmp_path/hub`; tries follow at once."""
    for name in ("web", "hub"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(retries, "_WAITS", (0.0,) * len(retries._WAITS))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(tmp_path / "web", tmp_path / "hub") as running:
        yield running
