"""A file that is scanned: as the fuzzer's bytes are, or built from them if they start with `S`.

Python's unpicklers, NumPy and torch load it, with nothing behind the globals that they ask for.
What they ask for must be what `scan` has found, and harmless if it says *safe*; and so must be what
other scanners find.
"""

from __future__ import annotations

import zlib

from other_programs import ask
from structured import Choices
from structured_scan import scan_file
from traced import fuzz

from anamnesis.formats.scan.report import Scan
from anamnesis.formats.scan.scan import scan
from anamnesis.formats.torch.globals import is_allowed

FICKLED = 16  # one file in so many


def check_against_loaders(raw: bytes, told: Scan) -> None:
    """Raise if a loader asks for what was not found, or is not harmless in what is safe."""
    asked = ask("loaders", raw)
    if told.verdict == "safe":
        assert all(is_allowed(*found) for found in asked), asked
    if not told.problems and not any(p.malformed for p in told.pickles):
        found = {(g.module, g.name) for p in told.pickles for g in p.globals}
        assert asked <= found or ("(computed)", "(computed)") in found, asked - found


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw = scan_file(Choices(data[1:])) if data[:1] == b"S" else data
    told = scan(raw)
    check_against_loaders(raw, told)
    if told.verdict == "safe":
        # picklescan guesses which strings STACK_GLOBAL takes.
        assert b"\x93" in raw.replace(b"\x93NUMPY", b"") or not ask("picklescan", raw)
        if zlib.crc32(raw) % FICKLED == 0:
            assert not ask("fickling", raw)


if __name__ == "__main__":
    fuzz(check)
