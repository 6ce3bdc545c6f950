"""How a command may end, and what it may say on stderr."""

from __future__ import annotations


def complaint(stderr: str, code: int | None) -> str:
    """Return what is wrong with how a command ended: `` if nothing is."""
    lines = stderr.splitlines()
    if code not in (None, 0, 1, 2):
        return f"exit code {code}"
    if any(not line.startswith(("amn: error: ", "amn: warning: ")) for line in lines):
        return f"not one line each: {stderr[:300]}"
    if any(bad in line for line in lines for bad in ("internal error", "out of memory")):
        return stderr[:300]
    if code and sum(line.startswith("amn: error: ") for line in lines) > 1:
        return f"several errors: {stderr[:300]}"
    return ""
