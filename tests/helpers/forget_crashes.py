"""Run as a script: kill a quantisation at every one of its system calls, then take it up again.

As `crash_points` does of `remember`, with what only encodings have: first passes, several parts,
losses, and checksums that are written last.
"""

from __future__ import annotations

import os
import shutil
import sys
from operator import methodcaller
from pathlib import Path

import anamnesis as an
from anamnesis.formats import written
from anamnesis.schemes import encodings
from anamnesis.schemes.core.bands import cut_into
from helpers.crash_points import dies
from helpers.handmade import write_safetensors
from helpers.models import partials, tree
from helpers.toy_models import tensors
from helpers.toys import SUMMED


@cut_into(20_000)
def main(to: str, before: str, folder: Path) -> None:
    written.WRITERS["toy"] = SUMMED
    encodings.ENCODINGS["toy-rows"] = encodings.Row(encodings.Maker("helpers.toys", "in_rows"))
    kept = {name: entry for name, entry in tensors().items() if name[0] in "abn"}
    source, out = write_safetensors(folder / "in.safetensors", kept), folder / "out"
    if to == "toy-rows":
        source = write_safetensors(folder / "in" / "model.safetensors", kept).parent
        (source / "config.json").write_text("{}")
    with an.parse(source) as model:
        losses = model.convert(folder / "want", to).loss
    want = tree(folder / "want")
    points = 0
    for when in ("before", "amid", "after"):
        n = 0
        while True:
            n += 1
            if out.is_dir():
                shutil.rmtree(out)
            out.unlink(missing_ok=True)
            old = {}
            if before == "full":
                shutil.copytree(folder / "want", out) if source.is_dir() else out.write_bytes(b"o")
                for path in out.rglob("*"):
                    path.write_bytes(b"old " + path.name.encode())
                old = tree(out)
            work = methodcaller("convert", out, to, threads=1, force=bool(old))
            if not dies(source, n, when, work):
                assert tree(out) == want
                break
            points += 1
            found = tree(out) if out.exists() else {}
            visible = {k: v for k, v in found.items() if ".amn-partial" not in k}
            if not old:
                assert visible in ({}, want), "half an output"
            assert all(v in (want.get(k), old.get(k)) for k, v in visible.items()), "half a file"
            with an.parse(source) as model:
                report = model.convert(out, to, resume=True, force=bool(old), threads=2)
                assert tree(out) == want, (n, when, "resumed to something else")
                assert not partials(out.parent), "left something behind"
                if visible != want:
                    assert report.loss == losses, (n, when, "other losses")
                again = os.stat(out).st_mtime_ns
                model.convert(out, to, resume=True)
                assert os.stat(out).st_mtime_ns == again, "not a no-op"
    print(points)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
