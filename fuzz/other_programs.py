"""What other programs make of a file, asked of the process that `loaders.py` runs in."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["ask"]


class Server:
    """The process."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("loaders.py"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, program: str, path: str) -> set[tuple[str, str]]:
        """Return what a program finds in a file, up to where it is cut off."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([program, path]), file=self._process.stdin, flush=True)
        lines = map(json.loads, self._process.stdout)
        return {tuple(found) for found in iter(lines.__next__, None)}


server = cache(Server)


def ask(program: str, raw: bytes) -> set[tuple[str, str]]:
    """Return the globals that a program finds in a file: `loaders`, `picklescan` or `fickling`."""
    with tempfile.TemporaryDirectory(prefix="anamnesis-fuzz-") as folder:
        path = Path(folder, "x")
        path.write_bytes(raw)
        if sys.platform == "linux":
            return server().ask(program, str(path))
        from loaders import PROGRAMS

        found: set[tuple[str, str]] = set()
        PROGRAMS[program](str(path), raw, found)
        return found
