"""Run as a script: kill the writing of a GGUF model in parts at every one of its system calls.

What is left has no first part, by which all others are found, unless all parts are there; and it is
taken up to the same bytes.
"""

from __future__ import annotations

import os
import sys
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

import anamnesis as an
from anamnesis.schemes.core.bands import cut_into
from helpers import gguf_handmade as handmade
from helpers.crash_points import dies
from helpers.models import partials

LIMIT = 100_000


def write_source(path: Path) -> Path:
    """Write four tensors, which make three parts."""
    rng = np.random.default_rng(4)
    tensors = {
        f"{i}": handmade.Tensor([256, n], 0, rng.bytes(n * 1024))
        for i, n in enumerate((80, 15, 60, 97))
    }
    path.write_bytes(handmade.gguf_bytes({"general.name": (handmade.STRING, "x")}, tensors))
    return path


@cut_into(50_000)
def main(before: str, folder: Path) -> None:
    source, there = write_source(folder / "in.gguf"), folder / "there"
    (folder / "want").mkdir()
    out = there / "out.gguf"
    with an.parse(source) as model:
        model.convert(folder / "want" / "out.gguf", "gguf", split_max_size=LIMIT)
    want = {path.name: path.read_bytes() for path in sorted((folder / "want").iterdir())}
    assert len(want) == 3
    first = next(iter(want))
    old = {name: b"old " + name.encode() for name in want} if before == "full" else {}
    points = 0
    for when in ("before", "amid", "after"):
        n = 0
        while True:
            n += 1
            there.mkdir(exist_ok=True)
            for path in there.iterdir():
                path.unlink()
            for name, raw in old.items():
                (there / name).write_bytes(raw)
            how: dict[str, Any] = {"split_max_size": LIMIT, "force": bool(old)}
            work = methodcaller("convert", out, "gguf", threads=1, **how)
            died = dies(source, n, when, work)
            found = {path.name: path.read_bytes() for path in there.iterdir() if path.is_file()}
            if not died:
                assert found == want
                break
            points += 1
            assert all(raw in (want[name], old.get(name)) for name, raw in found.items())
            if first in found:
                assert found in (want, old), "half of the parts, and the first"
            with an.parse(source) as model:
                model.convert(out, "gguf", **how, resume=True, threads=2)
                assert {p.name: p.read_bytes() for p in there.iterdir()} == want, (n, when)
                assert not partials(there), "left something behind"
                began = os.stat(there / first).st_mtime_ns
                model.convert(out, "gguf", split_max_size=LIMIT, resume=True)
                assert os.stat(there / first).st_mtime_ns == began, "not a no-op"
    print(points)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
