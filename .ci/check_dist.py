"""Fail if the sdist or the wheel in a folder lacks a file, or has one too many."""

import sys
import tarfile
import zipfile
from pathlib import Path

(sdist,) = Path(sys.argv[1]).glob("*.tar.gz")
(wheel,) = Path(sys.argv[1]).glob("*.whl")
WANTED = ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE-MIT", "LICENSE-APACHE", "docs/index.md"]
WANTED += ["tests/conftest.py", "tools/ggml_c.py", "csrc/kernels/kernels.def"]
WANTED += ["anamnesis/_core.pyx", "anamnesis/_io.pyx", "anamnesis/_parse.pyx"]
LARGEST_WHEEL = 2_050_000  # bytes; half of them are Python modules
TYPING = ["anamnesis/py.typed"]
TYPING += ["anamnesis/_core.pyi", "anamnesis/_io.pyi", "anamnesis/_parse.pyi"]

problems = []
with tarfile.open(sdist) as archive:
    packed = {name.partition("/")[2] for name in archive.getnames()}
problems += [f"{sdist.name} lacks {name}" for name in WANTED if name not in packed]
problems += [f"{sdist.name} has {name}" for name in packed if name.endswith((".so", "_core.c"))]

with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
    modules = [n for n in packed if n.startswith("anamnesis/") and n.endswith(".py")]
    problems += [f"{wheel.name} lacks {n}" for n in [*TYPING, *modules] if n not in names]
    sources = (".c", ".h", ".pyx", ".pxd", ".pxi")
    problems += [f"{wheel.name} has {n}" for n in names if n.endswith(sources)]
    problems += [f"{n} has debugging symbols" for n in names if b".debug_info" in archive.read(n)]
size = wheel.stat().st_size
if size > LARGEST_WHEEL:
    problems.append(f"{wheel.name} has {size:,} bytes, more than {LARGEST_WHEEL:,}")
print("\n".join(problems))
sys.exit(1 if problems else 0)
