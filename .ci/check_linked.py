"""Fail if a library for macOS or Windows needs another that is not a part of the system.

So do delocate and delvewheel look at wheels, each on its own system alone: what they would have to
copy into a wheel is listed here, from the headers that loaders read.

    python .ci/check_linked.py FILE.dylib|FILE.dll ...
"""

import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pefile
from macholib.mach_o import LC_ID_DYLIB
from macholib.MachO import MachO

SYSTEM = ("/usr/lib/libSystem.B.dylib", "kernel32.dll", "api-ms-win-crt-*.dll")


def needed_by(library: Path) -> Iterator[str]:
    """Yield what a library loads."""
    if library.suffix == ".dylib":
        for header in MachO(str(library)).headers:
            for load, _, data in header.commands:
                if load.get_cmd_name().endswith("_DYLIB") and load.cmd != LC_ID_DYLIB:
                    yield data.rstrip(b"\0").decode()
    else:
        for entry in getattr(pefile.PE(str(library)), "DIRECTORY_ENTRY_IMPORT", []):
            yield entry.dll.decode().lower()


def main(libraries: list[Path]) -> int:
    """Print what is not a part of the system, and whether all is."""
    problems = []
    for library in libraries:
        needed = list(needed_by(library))
        others = [n for n in needed if not any(fnmatchcase(n, known) for known in SYSTEM)]
        problems += [f"{library.name} needs {other}" for other in others]
        problems += [] if needed else [f"{library.name} needs nothing: was it read right?"]
    print("\n".join(problems) if problems else f"{len(libraries)} libraries need the system alone")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
