"""ggml's own C code, as an oracle: fetched from PyPI, built and called through ctypes.

    python tools/ggml_c.py            # fetch and build now; prints where the libraries are
    python tools/ggml_c.py llama      # llama-quantize and libllama too

The source package of llama-cpp-python carries llama.cpp; of that, CMake's target `ggml-base` alone
is built (ten seconds), and llama-quantize with libllama only for who asks for it (a quarter of an
hour). They go into the user's cache, or into the folder that the environment variable
ANAMNESIS_GGML names. Needs pip, cmake and a C++ compiler. Nothing of it gets into the package.

Two builds: the plain one, whose results count, never fuses a multiplication and an addition; the
native one, for benchmarks, may use all that this CPU has.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

VERSION = "0.3.36"
PACKAGE = f"llama_cpp_python-{VERSION}"
BUILDS = {
    "plain": ["-DCMAKE_C_FLAGS=-ffp-contract=off", "-DCMAKE_CXX_FLAGS=-ffp-contract=off"],
    "native": ["-DCMAKE_C_FLAGS=-march=native", "-DCMAKE_CXX_FLAGS=-march=native"],
}
# ggml on its own wants files that the package leaves out; as a part of something it does not.
PROJECT = """\
cmake_minimum_required(VERSION 3.14)
project(oracle C CXX)
add_subdirectory("${LLAMA}/ggml" ggml)
"""

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def home() -> Path:
    """The folder with the source and the builds."""
    told = os.environ.get("ANAMNESIS_GGML")
    if told:
        return Path(told)
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home) / "anamnesis" / PACKAGE


def llama_cpp() -> Path:
    """The tree of llama.cpp, fetched if need be; its `models` has headers of real vocabularies."""
    tree = home() / PACKAGE / "vendor" / "llama.cpp"
    with _lock():
        if not tree.exists():
            _fetch()
    return tree


def _fetch() -> None:
    """Download and unpack the source package."""
    told = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary=llama-cpp-python"]
    _run([sys.executable, "-m", "pip", "download", *told, f"llama-cpp-python=={VERSION}"], home())
    archive = home() / f"{PACKAGE}.tar.gz"
    unpacked = home() / "unpacking"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    (unpacked / PACKAGE).rename(home() / PACKAGE)
    unpacked.rmdir()
    archive.unlink()


def library(build: str = "plain") -> Path:
    """The shared library of one of `BUILDS`, built if need be."""
    tree = llama_cpp()
    place = home() / build
    with _lock():
        if not (place / "done").exists():
            place.mkdir(exist_ok=True)
            (place / "CMakeLists.txt").write_text(PROJECT)
            options = [
                f"-DLLAMA={tree}",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DBUILD_SHARED_LIBS=ON",
                "-DGGML_CPU=OFF",
                *BUILDS[build],
            ]
            _run(["cmake", "-S", ".", "-B", "build", *options], place)
            _run(["cmake", "--build", "build", "--target", "ggml-base", "--parallel"], place)
            (place / "done").touch()
    names = ("libggml-base.so", "libggml-base.dylib", "ggml-base.dll")
    return next(path for name in names for path in place.rglob(name))


# What gguf-split says of its own build, which the rest of llama.cpp would be built for.
_SHIM = """\
#include "build-info.h"
#include "llama.h"
#include <algorithm>
#include <cstdio>
#include <string>
const char * llama_version(void) { return ""; }
int llama_build_number(void) { return 0; }
const char * llama_commit(void) { return ""; }
const char * llama_compiler(void) { return ""; }
const char * llama_build_target(void) { return ""; }
"""


def gguf_split() -> Path:
    """The program gguf-split, built if need be: `llama-gguf-split --split-max-size 1G IN PREFIX`.

    Its source is whole; of llama.cpp's library only the two functions that it calls are taken.
    """
    tree, ggml = llama_cpp(), library()
    program = home() / "plain" / "gguf-split"
    with _lock():
        if not program.exists():
            text = (tree / "src" / "llama.cpp").read_text()
            names = re.search(
                r"^int32_t llama_split_path\(.*?^}\n\nint32_t llama_split_prefix\(.*?^}\n",
                text,
                re.MULTILINE | re.DOTALL,
            )
            assert names, "llama.cpp has its functions for names of parts elsewhere"
            shim = program.with_name("gguf-split-shim.cpp")
            shim.write_text(_SHIM + names[0])
            headers = ("include", "common", "ggml/include", "vendor")
            sources = [tree / "tools" / "gguf-split" / "gguf-split.cpp", shim]
            command = [os.environ.get("CXX", "c++"), "-std=c++17", "-w"]
            command += [f"-I{tree / folder}" for folder in headers] + list(map(str, sources))
            command += [str(ggml), f"-Wl,-rpath,{ggml.parent}", "-o", str(program) + ".new"]
            _run(command, program.parent)
            program.with_name(program.name + ".new").rename(program)
    return program


def llama_quantize() -> Path:
    """The program llama-quantize, built if need be: a quarter of an hour on one CPU."""
    return next(path for path in _llama().rglob("llama-quantize*"))


def libllama() -> Path:
    """The folder with libllama, built with llama-quantize if need be."""
    names = ("libllama.so", "libllama.dylib", "llama.dll")
    return next(path.parent for name in names for path in _llama().rglob(name))


def built_libllama() -> Path | None:
    """The folder with libllama, or None where it is not built."""
    return libllama() if (home() / "llama" / "done").exists() else None


def _llama() -> Path:
    """The folder of programs and libraries; of ggml what they call is as in the plain build."""
    tree = llama_cpp()
    place = home() / "llama"
    with _lock("llama.lock"):  # others need not wait for so long
        if not (place / "done").exists():
            place.mkdir(exist_ok=True)
            less: tuple[str, ...] = (
                "LLAMA_CURL",
                "LLAMA_OPENSSL",
                "LLAMA_BUILD_TESTS",
                "LLAMA_BUILD_EXAMPLES",
            )
            less += ("LLAMA_BUILD_SERVER", "GGML_NATIVE", "GGML_OPENMP")
            options = [f"-D{name}=OFF" for name in less]
            options += ["-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_TYPE=Release", *BUILDS["plain"]]
            _run(["cmake", "-S", str(tree), "-B", "build", *options], place)
            target = ["--target", "llama-quantize", "llama", "--parallel"]
            _run(["cmake", "--build", "build", *target], place)
            (place / "done").touch()
    return place / "build" / "bin"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


@contextmanager
def _lock(name: str = "lock") -> Iterator[None]:
    """One process at a time: parallel tests all come here first."""
    home().mkdir(parents=True, exist_ok=True)
    with (home() / name).open("w") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class _Traits(ctypes.Structure):
    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_elements", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("block_bytes", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", _ToFloat),
        ("from_float_ref", _ToFloat),
    )


class Traits(NamedTuple):
    """What ggml says of a type; the name is its own, such as `q4_K`."""

    name: str
    elements: int
    bytes: int
    is_quantized: bool


class Ggml:
    """The library. Types are ggml's ids."""

    def __init__(self, build: str = "plain") -> None:
        lib = self._lib = ctypes.CDLL(str(library(build)))
        lib.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
        lib.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
        lib.ggml_quantize_chunk.restype = ctypes.c_size_t
        lib.ggml_quantize_chunk.argtypes = (
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
        )
        for name in ("dequantize_row_q8_0", "dequantize_row_q8_K"):
            getattr(lib, name).argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
            getattr(lib, name).restype = None
        for name in ("quantize_row_q8_1_ref", "quantize_row_q8_K_ref"):
            getattr(lib, name).argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
            getattr(lib, name).restype = None

    def traits(self, type_id: int) -> Traits:
        """Name and sizes of a type below `type_count`; a removed one holds no elements."""
        found = self._lib.ggml_get_type_traits(type_id).contents
        name = (found.type_name or b"").decode()
        return Traits(name, found.block_elements, found.block_bytes, found.is_quantized)

    def to_float(self, type_id: int, blocks: Bytes, out: Floats | None = None) -> Floats:
        """float32 values of whole blocks, by ggml's `to_float` of the type."""
        found = self._lib.ggml_get_type_traits(type_id).contents
        src = np.ascontiguousarray(blocks).reshape(-1)
        n = src.size // found.block_bytes * found.block_elements
        dst = np.empty(n, np.float32) if out is None else out
        decode = found.to_float
        if found.type_name == b"q8_K":  # has a decoder, but no place in the table of them
            decode = self._lib.dequantize_row_q8_K
        elif found.type_name == b"q8_1":  # has none: it is q8_0 with a sum after the scale
            decode = self._lib.dequantize_row_q8_0
            rows = src.reshape(-1, found.block_bytes)
            src = np.concatenate([rows[:, :2], rows[:, 4:]], axis=1)
        decode(src.ctypes.data, dst.ctypes.data, n)
        return dst

    def quantize(
        self, type_id: int, values: Floats, importance: Floats | Literal["ones"] | None = "ones"
    ) -> Bytes:
        """Blocks made of a matrix of float32 by ggml's quantiser, with so important columns."""
        found = self._lib.ggml_get_type_traits(type_id).contents
        values = np.ascontiguousarray(values, np.float32)
        rows, cols = values.shape
        row_bytes = cols // found.block_elements * found.block_bytes
        out = np.zeros((rows, row_bytes), np.uint8)
        reference = {
            b"q8_1": self._lib.quantize_row_q8_1_ref,
            b"q8_K": self._lib.quantize_row_q8_K_ref,
        }.get(found.type_name)
        if reference is not None:
            reference(values.ctypes.data, out.ctypes.data, values.size)
            return out
        if isinstance(importance, str):
            importance = np.ones(cols, np.float32)
        weights = None if importance is None else importance.ctypes.data
        args = (values.ctypes.data, out.ctypes.data, 0, rows, cols, weights)
        written = self._lib.ggml_quantize_chunk(type_id, *args)
        assert written == out.nbytes
        return out

    def requires_importance(self, type_id: int) -> bool:
        """Whether the quantiser of a type refuses to work without importance."""
        return bool(self._lib.ggml_quantize_requires_imatrix(type_id))


def type_count() -> int:
    """One more than ggml's last type id."""
    header = (llama_cpp() / "ggml" / "include" / "ggml.h").read_text()
    found = re.search(r"GGML_TYPE_COUNT\s*=\s*(\d+)", header)
    assert found is not None
    return int(found[1])


@cache
def ggml(build: str = "plain") -> Ggml:
    """The library of a build, loaded once."""
    return Ggml(build)


def main() -> None:
    """Fetch and build."""
    print(llama_cpp())
    for build in BUILDS:
        print(library(build))
    if sys.argv[1:] == ["llama"]:
        print(libllama())


if __name__ == "__main__":
    main()
