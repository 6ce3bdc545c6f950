"""The C extensions; everything else about the project is in pyproject.toml."""

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CSRC = Path("csrc")
HEADERS = sorted(
    path.as_posix()
    for folder in (CSRC, Path("anamnesis"))
    for path in folder.rglob("*.*")
    if path.suffix in {".h", ".def", ".pxd", ".pxi"}
)

FLAGS = {
    "msvc": ["/O2", "/std:c11", "/W3", "/fp:precise"],
    "unix": [
        "-O3",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-ffp-contract=off",
        "-fno-trapping-math",  # nobody reads the exception flags; lets plain loops vectorise
        "-fno-math-errno",  # a square root is an instruction, and needs no libm
        "-fvisibility=hidden",
    ],
}
GLUE = ["-Os"]  # for what Cython writes, which runs once a band
# For that these would say too much. A call's stack is reckoned in driver/packed.c.
OURS = [
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Wundef",
    "-Wvla",
    "-Wframe-larger-than=40960",
]
WERROR = {"msvc": "/WX", "unix": "-Werror"}

DIRECTIVES = {
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "autotestdict": False,
    # All that the modules ever change is made once, under a flag (csrc/amn_once.h).
    "freethreading_compatible": True,
}


class BuildExt(build_ext):
    """Compiles the files of all extensions side by side, with flags by compiler, not by system."""

    def build_extensions(self) -> None:
        """Build, now that the compiler is known."""
        kind = "msvc" if self.compiler.compiler_type == "msvc" else "unix"
        flags = list(FLAGS[kind])
        wants_symbols = self.debug or "-g" in os.environ.get("CFLAGS", "").split()
        if kind == "unix" and not wants_symbols:
            flags.append("-g0")  # Python's own flags have -g: nine tenths of the library
            if sys.platform == "linux":
                for extension in self.extensions:
                    extension.extra_link_args = ["-s"]
        if os.environ.get("ANAMNESIS_WERROR") == "1":
            flags.append(WERROR[kind])
        self._compile_side_by_side(kind, flags)
        super().build_extensions()  # which links

    def _compile_side_by_side(self, kind: str, flags: list[str]) -> None:
        tasks = [
            (extension, source)
            for extension in self.extensions
            if self.force or _is_stale(self.get_ext_fullpath(extension.name), extension.sources)
            for source in extension.sources
        ]
        tasks.sort(key=lambda task: _rank(task[1]))

        def compile_one(extension: Extension, source: str) -> None:
            more = {"msvc": [], "unix": OURS if source.endswith(".c") else GLUE}[kind]
            extension.extra_objects += self.compiler.compile(
                [source if source.endswith(".c") else translate(source)],
                output_dir=self.build_temp,
                macros=extension.define_macros,
                include_dirs=extension.include_dirs,
                debug=self.debug,
                extra_postargs=[*flags, *more],
            )

        # Compilers of MSVC's kind find their programs in the first call.
        with ThreadPoolExecutor(os.cpu_count() if kind == "unix" else 1) as pool:
            for done in [pool.submit(compile_one, *task) for task in tasks]:
                done.result()
        for extension in self.extensions:
            extension.depends, extension.sources = [*extension.sources, *HEADERS], []


def _is_stale(library: str, sources: list[str]) -> bool:
    """Tell whether a library is not there, or older than what it is made of."""
    if not os.path.exists(library):
        return True
    return os.path.getmtime(library) < max(map(os.path.getmtime, [*sources, *HEADERS]))


def _rank(source: str) -> int:
    """Where a file stands in the queue: what takes longest comes first."""
    return next((i for i, mark in enumerate(("/simd/", ".pyx")) if mark in source), 2)


def translate(source: str) -> str:
    """Let Cython translate a file to C, in a process of its own, and return the C file."""
    out = str(Path(source).with_suffix(".c"))
    directives = ",".join(f"{name}={value}" for name, value in DIRECTIVES.items())
    subprocess.run(
        [sys.executable, "-m", "cython", "-3", "-X", directives, source, "-o", out], check=True
    )
    return out


# One wheel for every CPython from 3.11 on. Free-threaded builds have no stable ABI before 3.15. It
# costs half a microsecond a call: nothing beside a band of a megabyte.
ABI3 = not sysconfig.get_config_var("Py_GIL_DISABLED")


def extension(name: str, *folders: str) -> Extension:
    """Return the extension of a .pyx file and some folders of csrc/."""
    sources = sorted(path.as_posix() for folder in folders for path in (CSRC / folder).rglob("*.c"))
    return Extension(
        f"anamnesis.{name}",
        sources=[f"anamnesis/{name}.pyx", *sources],
        include_dirs=[CSRC.as_posix()],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if ABI3 else [],
        py_limited_api=ABI3,
        libraries=[] if os.name == "nt" else ["m"],  # for fmaf
    )


setup(
    ext_modules=[
        extension("_core", "kernels"),
        extension("_io", "io"),
        extension("_parse", "parse"),
    ],
    cmdclass={"build_ext": BuildExt},
    options={
        "editable_wheel": {
            "mode": "compat"
        },  # a path that type checkers follow, not an import hook
        **({"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {}),
    },
)
