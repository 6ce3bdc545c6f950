"""Times what it is asked for: a name a line on standard input, seconds a line on standard output.

tools/compare.py starts one for each of two builds of the package. The benchmarks are those of one
checkout, so that both do the same work. What a build does not have is answered by a reason.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path

import anamnesis as an

from .benchmarks import encoders, kernels
from .benchmarks.families import FAMILIES
from .benchmarks.figures import best_time
from .benchmarks.models import temporary_folder

CALLS = 5  # of a kernel for one answer, which is that of the fastest
FILE_BYTES = 64 << 20
ENCODINGS = ("fp8-block", "int8", "int4-128", "nvfp4", "bnb-nf4", "gguf-q4_k", "gguf-q8_0")
FOLDER = temporary_folder()

Timed = Callable[[], float]


def kernel(kind: type[kernels._Kernel], parameters: tuple[str, ...]) -> Timed:
    """Return what times a call of a kernel, by the CPU."""
    benchmark = kind()
    benchmark.setup(*parameters)  # type: ignore[attr-defined]
    return lambda: best_time(benchmark.work, CALLS)


def file(family: str, encoding: str = "") -> Timed:
    """Return what times a conversion of a file, by the clock: to BF16, or to an encoding."""
    source, out = (Path(FOLDER.name) / f"{family}{end}" for end in ("", ".safetensors"))
    if not source.exists():
        FAMILIES[family](source, FILE_BYTES)

    def work() -> float:
        out.unlink(missing_ok=True)
        start = time.perf_counter()
        with an.parse(source) as model:
            if encoding:
                model.convert(out, encoding, threads=1)
            else:
                model.remember(out, "bf16", threads=1)
        return time.perf_counter() - start

    return work


def works() -> Iterator[tuple[str, Callable[[], Timed]]]:
    """Yield all names, and what prepares each."""
    found = [*vars(kernels).values(), *vars(encoders).values()]
    for kind in dict.fromkeys(one for one in found if isinstance(one, type)):
        if issubclass(kind, kernels._Kernel) and kind is not kernels._Kernel:
            rows: tuple[tuple[str, ...], ...] = kind.params  # type: ignore[attr-defined]
            for parameters in product(*rows):
                if parameters[-1] == "best":
                    name = " ".join((kind.__name__, *map(str, parameters[:-1])))
                    yield name, partial(kernel, kind, parameters)
    for family in FAMILIES:
        yield f"file {family}", partial(file, family)
    for encoding in ENCODINGS:
        yield f"file bf16 to {encoding}", partial(file, "bf16", encoding)


WORKS = dict(works())


@cache
def prepared(name: str) -> Timed:
    """Return what times the work of a name."""
    return WORKS[name]()


def answer(name: str) -> str:
    """Return seconds, or why there are none."""
    try:
        return repr(prepared(name)())
    except (KeyError, NotImplementedError, an.AnamnesisError, ValueError) as missing:
        return f"missing: {type(missing).__name__}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(*WORKS, sep="\n")
    else:
        for line in sys.stdin:
            print(answer(line.rstrip("\n")), flush=True)
