"""What a file costs under every verb, in CPU time and memory: each file in a process of its own.

A server that has imported everything forks for each file, so that a child's peak is the file's own,
and what hangs, or takes all memory, ends with the child. Linux only.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from endings import complaint

MOST_SECONDS = 1.0  # of a machine that takes REFERENCE_SECONDS for `reference()`
MOST_BYTES = 100_000_000
LIMITED_BYTES = 5_000_000  # what the verb `limited` allows in all
MOST_LIMITED = 20_000_000
REFERENCE_SECONDS = 0.04
WARM_SIZE = 1500  # bytes of a bomb
KILLED_AFTER = 3  # seconds of a verb
KILLED_BEYOND = 2 << 30  # bytes of address space over the server's own

VERBS = {
    "parse": ("parse", "--metadata"),
    "parse-json": ("parse", "--json", "--allow-foreign"),
    "inspect": ("inspect",),
    "inspect-json": ("inspect", "--json", "--allow-foreign"),
    "scan": ("scan",),
    "scan-json": ("scan", "--json"),
    "remember": ("remember", "--force", "--allow-unknown", "--allow-foreign", "--threads=1"),
}


class Cost(NamedTuple):
    """What one verb took.

    Attributes
    ----------
    verb : str
    seconds : float
        CPU time.
    n_bytes : int
        Peak of resident memory over what the process had before the first verb.
    complaint : str
        What must not be on stderr, if it was there.
    """

    verb: str
    seconds: float
    n_bytes: int
    complaint: str = ""


def run(args: tuple[str, ...], path: str) -> str:
    """Run a command in this process; return what its stderr must not hold."""
    from anamnesis.cli.app import cli

    stderr = io.StringIO()
    # --json is written as a whole, and would count as memory if it were kept.
    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(stderr):
        code = cli.main([*args, path], standalone_mode=False)
    gc.unfreeze()
    return complaint(stderr.getvalue(), code)


def limited(path: str) -> str:
    """Parse with a limit; the limit, not the machine, is what ends it."""
    import anamnesis as an

    with suppress(an.AnamnesisError, OSError):
        an.parse(path, limits=an.ParseLimits(max_total_bytes=LIMITED_BYTES)).close()
    return ""


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reference() -> float:
    """Return the CPU seconds that a fixed piece of work takes: the best of five."""

    def once() -> float:
        started = time.process_time()
        names = {f"layers.{i}.weight": [i, str(i)] for i in range(10_000)}
        assert json.loads(json.dumps(names)) == names
        assert len(zlib.compress(bytes(1_000_000))) < 2_000
        return time.process_time() - started

    return min(once() for _ in range(5))


# --- the server ---------------------------------------------------------------------------------


def serve() -> None:
    """Read paths from stdin, a JSON string a line; write a list of costs for each."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    _warm_up()
    print(json.dumps(reference()), file=answers, flush=True)
    for line in requests:
        print(json.dumps(_measured(json.loads(line))), file=answers, flush=True)


def _warm_up() -> None:
    """Import what the verbs import, and do what is done once."""
    from bombs import BOMBS, WARM

    with tempfile.TemporaryDirectory() as folder:
        for name in WARM:
            path = write(BOMBS[name](WARM_SIZE), Path(folder, name))
            for args in VERBS.values():
                run(args, str(path))
    gc.collect()
    gc.freeze()


def _measured(path: str) -> list[Cost]:
    """Run all verbs on a file in a child; return what they took, up to the one that killed it."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            _child(path, writer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        costs = [Cost(*json.loads(line)) for line in told]
    _, status, usage = os.wait4(child, 0)
    if status or len(costs) <= len(VERBS):
        verb = ["limited", *VERBS][len(costs)]
        seconds, n_bytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        seconds -= sum(cost.seconds for cost in costs)
        costs.append(Cost(verb, seconds, n_bytes, f"killed, status {status}"))
    return costs


def _child(path: str, writer: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + KILLED_BEYOND
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    base = peak_bytes()
    for verb in ("limited", *VERBS):
        started = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(started) + KILLED_AFTER, -1))
        try:
            wrong = run(VERBS[verb], path) if verb in VERBS else limited(path)
        except BaseException as error:
            wrong = f"{type(error).__name__}: {error}"[:300]
        cost = Cost(verb, time.process_time() - started, peak_bytes() - base, wrong)
        os.write(writer, json.dumps(cost).encode() + b"\n")


# --- the client ---------------------------------------------------------------------------------


class Meter:
    """A server, and what it says of files."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.most_seconds = MOST_SECONDS * max(1.0, self._answer() / REFERENCE_SECONDS)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def _answer(self) -> Any:
        assert self._server.stdout is not None
        return json.loads(self._server.stdout.readline())

    def costs(self, path: str | Path) -> list[Cost]:
        """Return what each verb takes, in order."""
        assert self._server.stdin is not None
        print(json.dumps(str(path)), file=self._server.stdin, flush=True)
        return [Cost(*cost) for cost in self._answer()]

    def excesses(self, path: str | Path) -> list[str]:
        """Return what is too much, or wrong, in words."""
        costs = self.costs(path)
        for _ in range(2):  # the machine may have become busy since `reference`
            if not any(cost.seconds > self.most_seconds and not cost.complaint for cost in costs):
                break
            costs = [
                again._replace(seconds=min(cost.seconds, again.seconds))
                for cost, again in zip(costs, self.costs(path), strict=False)
            ]
        return [said for cost in costs if (said := self._excess(cost))]

    def _excess(self, cost: Cost) -> str:
        if cost.complaint:
            return f"{cost.verb}: {cost.complaint}"
        if cost.seconds > self.most_seconds:
            return f"{cost.verb}: {cost.seconds:.2f} s"
        if cost.n_bytes > (MOST_LIMITED if cost.verb == "limited" else MOST_BYTES):
            return f"{cost.verb}: {cost.n_bytes:,} bytes"
        return ""


def write(files: dict[str, bytes], folder: Path) -> Path:
    """Write files below an empty folder; return the only one, or the folder of several."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder if len(files) > 1 else folder / next(iter(files))


def clear(folder: Path) -> None:
    """Remove a folder with what the verbs left in it, and beside it."""
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    serve()
