"""What a terminal was sent, and what is left to read on it."""

from __future__ import annotations

import os
import re


def received(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # Linux says EIO when the other side is closed
        return b""


def final_screen(text: str) -> list[str]:
    """Return what is left to read, as a terminal that knows the few codes used here has it."""
    lines, row = [""], 0
    for code in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\n|\r|[^\x1b\r\n]+", text):
        if code == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif code == "\x1b[1A":
            row -= 1
        elif code == "\x1b[2K":
            lines[row] = ""
        elif code[0] not in "\r\x1b":
            lines[row] = code + lines[row][len(code) :]
    return [line.rstrip() for line in lines if line.strip()]
