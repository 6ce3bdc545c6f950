"""Instructions a value of each decoder, AVX2's and NEON's: python tools/count_instructions.py ROOT

ROOT is the folder that `KEEP_ROOT=ROOT bash .ci/emulated` has made, for the emulators in it. Both
machines are emulated, and both programs compiled by ziglang's clang, so that the counts are of the
same compiler and need no counters of a CPU. A count is the difference of a program that calls a
kernel twice and one that calls it once, with its driver, over 23,040 values.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from anamnesis import _core

PROJECT = Path(__file__).parents[1]
VALUES = 45 * 512
FAMILIES = ("scaled", "absmax", "convert", "block", "packed", "act-order", "trellis")
FLAGS = ("-O3", "-std=c11", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno")
MACHINES = {"x86_64": ("-cpu", "max"), "aarch64": ()}


def built(machine: str, folder: Path) -> Path:
    """Compile the program beside this one with the kernels, statically."""
    program = folder / machine
    sources = [
        *sorted((PROJECT / "csrc" / "kernels").rglob("*.c")),
        Path(__file__).with_suffix(".c"),
    ]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl", *FLAGS]
    subprocess.run(
        [*command, "-Icsrc", *map(str, sources), "-o", str(program)], cwd=PROJECT, check=True
    )
    return program


def lines(root: Path, program: Path, call: tuple[str, str, str], times: int) -> int:
    """Return how many instructions the emulator logs, one a line."""
    machine = program.name
    emulator = root / "usr" / "bin" / f"qemu-{machine}-static"
    logged = (*MACHINES[machine], "-singlestep", "-d", "exec,nochain", "-D", "/dev/stdout")
    command = [str(emulator), *logged, str(program), *call, str(times)]
    ran = subprocess.run(command, env={"LEVEL": "avx2"}, capture_output=True, check=True)
    return ran.stdout.count(b"\n")


def calls() -> Iterator[tuple[str, str, str]]:
    """Yield all families and names, to BF16 and F32."""
    for family in FAMILIES:
        for kernel in _core.kernels():
            if kernel.family == ("packed" if family == "act-order" else family):
                for out in ("BF16", "F32"):
                    yield family, kernel.name, out


def main() -> None:
    """Print a row for each."""
    root = Path(sys.argv[1])
    with TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        programs = [built(machine, Path(folder)) for machine in MACHINES]
        print(f"{'':34}  AVX2   NEON  ratio")
        for call in calls():
            tasks = [
                [pool.submit(lines, root, program, call, n) for n in (2, 1)] for program in programs
            ]
            avx2, neon = ((two.result() - one.result()) / VALUES for two, one in tasks)
            print(f"{' '.join(call):34} {avx2:5.2f} {neon:6.2f} {neon / avx2:6.2f}", flush=True)


if __name__ == "__main__":
    main()
