"""Runs each fuzzer for some seconds, two at a time, each from its seeds: `each.py SCRATCH OPTION…`.

To trace the package takes several times as long as that, so it is traced once, and each fuzzer runs
in a copy of the process. Finds go to SCRATCH, the seeds stay as they are.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from traced import HERE, import_package, run, trace

import anamnesis

ALONE = {"fuzz_bombs"}  # which starts processes before anything is traced


def fuzz(name: str, log: Path, arguments: list[str]) -> None:
    """Run a fuzzer, in a process of its own."""
    with log.open("w") as stream:
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
    program = os.path.join(HERE, f"{name}.py")
    if name in ALONE:
        os.execv(sys.executable, [sys.executable, program, *arguments])
    sys.argv = [program, *arguments]
    module = import_module(name)
    if hasattr(module, "main"):
        module.main()
    trace(HERE)
    run(module.check)


def passes(name: str, scratch: Path, options: list[str]) -> bool:
    """Tell whether a fuzzer finds nothing, and print what it says if it does."""
    corpus, seeds = scratch / "corpus" / name, Path(HERE, "corpus", name)
    corpus.mkdir(parents=True, exist_ok=True)
    folders = [str(folder) for folder in (corpus, seeds) if folder.is_dir()]
    log = scratch / f"{name}.log"
    arguments = [*options, f"-artifact_prefix={scratch}/", *folders]
    process = multiprocessing.get_context("fork").Process(target=fuzz, args=(name, log, arguments))
    process.start()
    process.join()
    print(name if process.exitcode == 0 else log.read_text(errors="replace"), flush=True)
    return process.exitcode == 0


def main(scratch: str, *options: str) -> int:
    """Run all; return 1 if one finds something."""
    import_package()
    trace(*anamnesis.__path__)
    names = sorted(path.stem for path in Path(HERE).glob("fuzz_*.py"))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda name: passes(name, Path(scratch), [*options]), names))
    return int(not all(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
