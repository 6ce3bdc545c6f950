"""Helpers that run as scripts, in an interpreter of their own."""

from __future__ import annotations

import os
from pathlib import Path

HELPERS = Path(__file__).parent


def environment() -> dict[str, str]:
    """Return this process's, in which helpers import each other."""
    paths = [str(HELPERS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
