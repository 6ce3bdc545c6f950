"""Checkpoints that four processes write, once for all tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import HELPERS


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what torch's own code has written."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, str(HELPERS / "ranks.py"), str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "RANKS_PORT": port}, capture_output=True)
    return folder
