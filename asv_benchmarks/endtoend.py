"""One table: `amn remember` of a generated model beside cp and a bare writer, in turns.

    python -m asv_benchmarks.endtoend [--family fp8] [--gb 2] [--turns 5] [--threads 2] [--dir D]
    python -m asv_benchmarks.endtoend --family bf16 --to fp8-block

The model is one of `families.FAMILIES`, such as fine-grained FP8; its output takes --gb. `amn` runs
as a command, so that its time includes the start of Python; cp copies amn's output; the bare writer
writes as many bytes from one warm megabyte, on as many threads, into reserved space. All read from
the page cache, and every other turn goes backwards, as the disk remembers who wrote before. What
was written is removed and synced outside of the times. CPU time is all that was spent, in the
kernel too: on a busy machine it tells more than the clock. A virtual machine may have given its
free memory back to its host, and pay for getting it again, page by page: before each work as much
is touched, and freed, as it is going to fill.

With --to the model is converted instead, and what sets the limit is a bare reader of the model, on
as many threads, followed by the bare writer. Those to be measured: bf16 to fp8-block, int8 and
gguf; npz and pth to safetensors; gguf-f16 to npz.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from asv_benchmarks.benchmarks.families import FAMILIES
from asv_benchmarks.benchmarks.models import bare_read, bare_write, cp, temporary_folder

MIB = 1 << 20
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024

# Run by itself: this process must stay small, for a child's peak memory starts at its parent's.
GENERATE = (
    "import sys; from pathlib import Path; "
    "from asv_benchmarks.benchmarks.families import FAMILIES; "
    "FAMILIES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))"
)


def run(command: list[str]) -> tuple[float, int]:
    """Run a command to its end; return seconds and peak memory in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return elapsed, usage.ru_maxrss * MAXRSS_UNIT


def amn(*arguments: str) -> list[str]:
    """Return the command line of this interpreter's `amn`."""
    return [sys.executable, "-c", "from anamnesis.cli.app import main; main()", *arguments]


def convert(source: Path, out: Path, to: str, threads: int) -> list[str]:
    """Return the command line of a process that converts, and does nothing else."""
    code = (
        "import sys; from anamnesis import parse; "
        "parse(sys.argv[1]).convert(sys.argv[2], sys.argv[3], threads=int(sys.argv[4]))"
    )
    return [sys.executable, "-c", code, str(source), str(out), to, str(threads)]


# Huge pages, where there are any: touched in a tenth of the time.
TOUCH = """
import mmap, sys
private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
memory = mmap.mmap(-1, int(sys.argv[1]), **private)
if hasattr(mmap, "MADV_HUGEPAGE"):
    memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(memory), mmap.PAGESIZE):
    memory[at] = 1
"""


def turn(work: Callable[[], object], made: Path, n_bytes: int) -> tuple[float, float]:
    """Seconds of one turn that makes a file of so many bytes, by the clock and of CPU time."""
    os.sync()
    subprocess.run([sys.executable, "-c", TOUCH, str(n_bytes)], check=True)
    start, before = time.perf_counter(), sum(os.times()[:4])
    work()
    taken = time.perf_counter() - start, sum(os.times()[:4]) - before
    made.unlink()
    return taken


def measure(folder: Path, family: str, to: str, gb: float, turns: int, threads: int) -> str:
    """Return the table; `to` is empty, or what the model is converted to."""
    container = to if to in ("gguf", "npz", "pth") else "safetensors"
    source, output = folder / f"model.{family}", folder / f"out.{container}"
    made = folder / f"again.{container}"
    generate = [sys.executable, "-c", GENERATE, family, str(source), str(int(gb * 1e9))]
    subprocess.run(generate, check=True)

    def make(out: Path) -> int:
        remember = amn("remember", str(source), "-o", str(out), "--threads", str(threads))
        return run(convert(source, out, to, threads) if to else remember)[1]

    def bare() -> None:
        if to:
            bare_read(source, threads)
        bare_write(made, n_bytes, threads)

    make(output)  # which warms the page cache
    n_bytes = output.stat().st_size
    work_name, bare_name = (
        ("convert", "bare reader and writer") if to else ("amn remember", "bare writer")
    )
    peaks: list[int] = []
    works: list[tuple[str, Callable[[], object]]] = [
        (work_name, lambda: peaks.append(make(made))),
        ("cp", lambda: cp(output, made)),
        (bare_name, bare),
    ]
    times: dict[str, list[tuple[float, float]]] = {what: [] for what, _ in works}
    for i in range(turns):
        for what, work in works[::-1] if i % 2 else works:
            times[what].append(turn(work, made, n_bytes))
    models = f"{family} to {to}" if to else family
    rows = [
        f"{n_bytes / 1e9:.2f} GB from {source.stat().st_size / 1e9:.2f} GB of {models}, "
        f"{threads} threads, {os.cpu_count()} CPUs, medians of {turns} turns",
        "",
        f"| what | seconds | GB/s written | time, {bare_name} = 1 | fastest | least CPU seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    base = median(wall for wall, _ in times[bare_name])
    for what, taken in times.items():
        walls, cpus = zip(*taken, strict=True)
        middle = median(walls)
        rows.append(
            f"| {what} | {middle:.2f} | {n_bytes / middle / 1e9:.2f} | {middle / base:.2f} | "
            f"{min(walls):.2f} | {min(cpus):.2f} |"
        )
    idle = run(amn("--version"))[1]
    rows += [
        "",
        f"Peak memory of {work_name}: {max(peaks) / MIB:.0f} MiB; "
        f"of `amn --version`: {idle / MIB:.0f} MiB",
    ]
    return "\n".join(rows)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, default="fp8", help="which model")
    parser.add_argument("--to", default="", help="convert to this encoding or container")
    parser.add_argument("--gb", type=float, default=2.0, help="size of the model as BF16")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dir", help="where to put the files; they take 3 times --gb")
    options = parser.parse_args()
    with temporary_folder(options.dir) as folder:
        sizes = (options.gb, options.turns, options.threads)
        print(measure(Path(folder), options.family, options.to, *sizes))


if __name__ == "__main__":
    main()
