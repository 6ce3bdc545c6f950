"""A byte string is a weight: whatever can be asked for by name is written, and read again.

Run `python fuzz/fuzz_encodings.py -max_total_time=60` (needs atheris), or call `check` with bytes.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import anamnesis as an

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.each_encoding import NAMES, written_and_read


def check(data: bytes) -> None:
    """Raise AssertionError if what is read is not what was written."""
    (which, how), body = data[:2].ljust(2, b"\0"), data[2 : len(data) // 2 * 2] or bytes(2)
    name, values = NAMES[which % len(NAMES)], np.frombuffer(body, np.float16)
    if how & 1:  # else hardly any is
        values = np.where(np.isfinite(values), values, np.float16(0))
    if how & 2:
        values = values / np.float16(1024)  # so that some encodings have codes for all
    with TemporaryDirectory() as folder, suppress(an.UnsupportedError):
        written_and_read(name, values, Path(folder))


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.Setup([sys.argv[0], "-max_len=4096", *sys.argv[1:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
