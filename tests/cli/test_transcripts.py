"""docs/transcripts.md, in a terminal of 80 columns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("only on Linux and macOS: needs a pseudo-terminal", allow_module_level=True)

import fcntl
import pty
import struct
import termios

from helpers.cli_runs import environment
from helpers.page_inputs import run_demo
from helpers.pages import PROJECT, SECONDS, commands
from helpers.terminals import final_screen, received

PAGE = PROJECT / "docs" / "transcripts.md"
COLUMNS = 80


def in_terminal(line: str, cwd: Path) -> str:
    """Return what a shell's terminal has been sent when a line has run."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    kept = {k: v for k, v in environment().items() if k not in ("COLUMNS", "LINES")}
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    with subprocess.Popen(
        ["sh", "-c", line],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env={**kept, "TERM": "xterm-256color", "NO_COLOR": "1", "PATH": path},
    ):
        os.close(slave)
        chunks = []
        while chunk := received(master):
            chunks.append(chunk)
    os.close(master)
    return b"".join(chunks).decode()


@pytest.mark.slow
def test_the_terminal_shows_the_page(tmp_path: Path) -> None:
    run_demo(tmp_path)
    shown = commands(PAGE)
    assert len(shown) >= 9
    for command in shown:
        if command.line.startswith("ls "):  # in columns on a terminal
            continue
        screen = final_screen(in_terminal(command.line, tmp_path))
        expected = [line.rstrip() for line in command.output.splitlines() if line.strip()]
        assert [SECONDS.sub("0.0s", line) for line in screen] == [
            SECONDS.sub("0.0s", line) for line in expected
        ], command.line
        if not re.search(r"at byte|\[max_", command.output):  # errors may take several lines
            assert max(map(len, screen), default=0) <= COLUMNS, command.line
