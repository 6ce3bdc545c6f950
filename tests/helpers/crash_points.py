"""Run as a script: kill a conversion at every one of its system calls, then take it up again.

Each attempt is a fork that leaves by `os._exit` just before, in the middle of, or just after its
n-th call that changes the file system. Whatever it leaves must be nothing or the whole result, and
resuming must make the same bytes of it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any

import anamnesis as an
from anamnesis.schemes.core.bands import cut_into
from helpers.handmade import write_safetensors
from helpers.models import partials, small_model, tree, write_directory

CALLS = (
    *("replace", "rename", "unlink", "rmdir", "mkdir", "open", "write", "pwrite", "ftruncate"),
    *("posix_fallocate", "utime", "chmod"),
)
DIED = 77


def die_at(n: int, when: str) -> None:
    """Let the n-th call be the last."""
    left = [n]

    def deadly(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapper(*args: Any, **how: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **how)
            left[0] -= 1
            if left[0] == 0 and when == "before":
                os._exit(DIED)
            if left[0] == 0 and when == "amid" and name in ("write", "pwrite"):
                call(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
                os._exit(DIED)
            result = call(*args, **how)
            if left[0] == 0:
                os._exit(DIED)
            return result

        return wrapper

    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name), name))


def dies(source: Path, n: int, when: str, work: Callable[[an.Model], object]) -> bool:
    """Work with a model in a fork that dies at its n-th call; tell whether it died."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with an.parse(source) as model:
                die_at(n, when)
                work(model)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, DIED), code
    return code == DIED


def check(
    source: Path, out: Path, want: dict[str, bytes], counts: dict[str, int], old: Any
) -> None:
    """Check what is there after a crash, then resume, twice."""
    how: dict[str, Any] = {"dtype": "f16", "threads": 1}
    found = tree(out) if out.exists() else {}
    visible = {k: v for k, v in found.items() if ".amn-partial" not in k}
    if out.is_file():
        assert visible in (want, old), "half a file"
    elif "config.json" in visible:
        assert visible in (want, old), "half a directory with a config"
    else:
        mixed = {k for k, v in visible.items() if v not in (want.get(k), old.get(k))}
        assert not mixed, mixed
    with an.parse(source) as model:
        force = bool(old)
        report = model.remember(out, resume=True, force=force, **how)
        assert tree(out) == want, "resumed to something else"
        assert not partials(out.parent), "left something behind"
        if visible != want:
            assert report.overflows == counts, report.overflows
        again = os.stat(out).st_mtime_ns
        model.remember(out, resume=True, **how)
        assert os.stat(out).st_mtime_ns == again, "not a no-op"


@cut_into(50_000)
def main(kind: str, before: str, folder: Path, sync: bool) -> None:
    if kind == "file":
        source, out = folder / "in.safetensors", folder / "out.safetensors"
        tensors = small_model()
        # Some of it overflows F16.
        shape, raw = tensors["b.weight_scale_inv"][1:]
        tensors["b.weight_scale_inv"] = ("F32", shape, bytes(4) + b"\x00\x00\x80\x48" + raw[8:])
        write_safetensors(source, tensors)
    else:
        source, out = folder / "in", folder / "out"
        write_directory(source, config=kind == "directory")
    with an.parse(source) as model:
        report = model.remember(folder / "want", "f16")
    want, counts = tree(folder / "want"), report.overflows
    assert bool(counts) == (kind == "file")
    points = 0
    for when in ("before", "amid", "after"):
        n = 0
        died = True
        while died:
            n += 1
            old: dict[str, bytes] = {}
            if out.is_dir():
                shutil.rmtree(out)
            out.unlink(missing_ok=True)
            if before == "empty":
                out.mkdir()
            if before == "full":
                shutil.copytree(folder / "want", out) if out.suffix == "" else out.write_bytes(b"o")
                if out.is_dir():
                    for path in out.rglob("*"):
                        if path.is_file():
                            path.write_bytes(b"old " + path.name.encode())
                old = tree(out)
            how = {"dtype": "f16", "threads": 1, "force": bool(old), "sync": sync}
            died = dies(source, n, when, methodcaller("remember", out, **how))
            if not died:
                assert tree(out) == want
                assert not partials(folder)
                break
            points += 1
            check(source, out, want, counts, old)
    print(points)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4] == "sync")
