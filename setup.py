"""The C extensions; everything else about the project is in pyproject.toml."""

import os
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CSRC = Path("csrc")
HEADERS = sorted(path.as_posix() for path in CSRC.rglob("*.*") if path.suffix in {".h", ".def"})

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
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "autotestdict": False,
    # All that the modules ever change are the tables of csrc/kernels/iq_lists.c, made under a flag.
    "freethreading_compatible": True,
}


class BuildExt(build_ext):
    """Chooses flags by compiler, not by operating system."""

    def wants_symbols(self) -> bool:
        """Tell whether somebody is going to debug: in a checkout, or by flags of their own."""
        is_asked = "-g" in os.environ.get("CFLAGS", "").split()
        return bool(self.inplace or self.editable_mode or self.debug or is_asked)

    def build_extensions(self) -> None:
        """Build, now that the compiler is known."""
        kind = "msvc" if self.compiler.compiler_type == "msvc" else "unix"
        flags = list(FLAGS[kind])
        if kind == "unix" and not self.wants_symbols():
            flags.append("-g0")  # Python's own flags have -g: nine tenths of the library
            if sys.platform == "linux":
                for extension in self.extensions:
                    extension.extra_link_args = ["-s"]
        if os.environ.get("ANAMNESIS_WERROR") == "1":
            flags.append(WERROR[kind])
        for extension in self.extensions:
            extension.extra_compile_args = flags
        if kind == "unix":
            self._compile_on_all_cores()
        super().build_extensions()

    def _compile_on_all_cores(self) -> None:
        """Compile the files of an extension side by side, ours with warnings of their own."""
        compile_one, compile_all = self.compiler._compile, self.compiler.compile

        def compile_in_threads(sources: list[str], **how: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                running = []

                def start(
                    obj: str, src: str, ext: str, cc: list[str], flags: list[str], pp: list[str]
                ) -> None:
                    more = OURS if Path(src).is_relative_to(CSRC) else GLUE
                    running.append(pool.submit(compile_one, obj, src, ext, cc, [*flags, *more], pp))

                self.compiler._compile = start
                objects = compile_all(sources, **how)
                for one in running:
                    one.result()
            return objects

        self.compiler.compile = compile_in_threads


# One wheel for every CPython from 3.11 on. Free-threaded builds have no stable ABI before 3.15. It
# costs half a microsecond a call: nothing beside a band of a megabyte.
ABI3 = not sysconfig.get_config_var("Py_GIL_DISABLED")


def extension(name: str, *folders: str) -> Extension:
    """Return the extension of a .pyx file and some folders of csrc/."""
    sources = sorted(path.as_posix() for folder in folders for path in (CSRC / folder).rglob("*.c"))
    return Extension(
        f"anamnesis.{name}",
        sources=[f"anamnesis/{name}.pyx", *sources],
        depends=HEADERS,
        include_dirs=[CSRC.as_posix()],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if ABI3 else [],
        py_limited_api=ABI3,
    )


setup(
    ext_modules=cythonize(
        [extension("_core", "kernels"), extension("_io", "io"), extension("_parse", "parse")],
        compiler_directives=DIRECTIVES,
    ),
    cmdclass={"build_ext": BuildExt},
    options={
        "editable_wheel": {
            "mode": "compat"
        },  # a path that type checkers follow, not an import hook
        **({"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {}),
    },
)
