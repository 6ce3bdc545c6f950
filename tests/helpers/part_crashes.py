"""Run as a script: kill a part, or the commit, at every one of its system calls; then go on."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from operator import methodcaller
from pathlib import Path

import anamnesis as an
from helpers.crash_points import dies
from helpers.in_parts import KINDS, as_one, left, write_model
from helpers.models import tree

OPTIONS = {**KINDS["nvfp4"], "max_shard_size": 40_000, "verify": False, "threads": 1}


def go_on(source: Path, out: Path, want: dict[str, bytes], *, force: bool) -> None:
    """Do all that is left; what is committed to the last name may be no more than left over."""
    with an.parse(source) as model:
        if (out / "config.json").exists() and not force and tree(out) == want:
            if left(out.parent):  # killed while the folder of parts was removed
                shutil.rmtree(out.parent / "out.amn-parts")
            return
        for part in ("1/2", "2/2", "commit"):
            model.convert(out, part=part, force=force, **OPTIONS)


def main(victim: str, before: str, folder: Path) -> None:
    source, out = write_model(folder / "in", layers=1), folder / "out"
    as_one(source, folder / "want", OPTIONS)
    want, points, force = tree(folder / "want"), 0, before == "full"
    makes = partial(methodcaller, "convert", out, force=force, **OPTIONS)
    for when in ("before", "amid", "after"):
        n, died = 0, True
        while died:
            n += 1
            shutil.rmtree(out, ignore_errors=True)
            if force:
                shutil.copytree(folder / "want", out)
                (out / "config.json").write_text("old")
            for part in ("1/2", "2/2") if victim == "commit" else ("2/2",):
                dies(source, -1, when, makes(part=part))
            died = dies(source, n, when, makes(part=victim))
            there = tree(out) if out.exists() else {}
            shown = {name: raw for name, raw in there.items() if ".amn-parts" not in name}
            if "config.json" in shown and shown["config.json"] != b"old":
                assert shown == want, "half a directory with a config"
            go_on(source, out, want, force=force)
            assert tree(out) == want
            assert not left(folder), left(folder)
            points += died
    print(points)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
