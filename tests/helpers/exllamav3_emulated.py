"""exllamav3's own kernels for weights, as GPTQModel's wheel has their source, run on a CPU.

exllamav3 itself is for GPUs alone. What is compiled here is text of its files: the codebooks
(codebook.cuh), the trellis (exl3_dq.cuh), `reconstruct_kernel` and `had_ff_r_128_inner`, in its
branch without PTX; `tests/c/cuda_warps.h` stands for CUDA.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import gptqmodel_ext
import numpy as np
from numpy.typing import NDArray

from helpers.kernel_calls import PROJECT

__all__ = ["CODEBOOKS", "inner", "transformed", "weight"]

SOURCES = Path(next(iter(gptqmodel_ext.__path__))) / "exllamav3"
CODEBOOKS = ("3inst", "mcg", "mul1")  # in the order of the kernels' `cb`

_TYPES = ("half4", "half2_uint32", "half_uint16")  # of util.cuh, whose rest is of CUDA's libraries
_CALLS = """
extern "C" void reconstruct(int bits, int cb, half *out, const uint16_t *packed, unsigned tiles_k,
                            unsigned tiles_n) {
  launch_warps({tiles_n / 8, tiles_k}, 256,
               [=] { reconstruct_kernel_instances[bits - 1 + 8 * cb](out, packed); });
}

extern "C" void had_r_128(const float *input, float *output, const half *scale, unsigned rows,
                          unsigned cols) {
  launch_warps({rows, cols / 128}, 32, [=] {
    const unsigned at = gridDim.y * 128 * blockIdx.x + blockIdx.y * 128;
    had_ff_r_128_inner(input + at, output + at, nullptr, scale, 0.088388347648f);
  });
}
"""


def _type(name: str, text: str) -> str:
    """A type of util.cuh."""
    pattern = rf"typedef struct \S+ {name}\n.*?\n{name};|union {name}\n.*?\n}};"
    found = re.search(pattern, text, re.DOTALL)
    assert found, f"util.cuh has {name} otherwise"
    return found[0]


def _program() -> str:
    """The kernels up to what launches them, and what calls them."""
    util = (SOURCES / "util.cuh").read_text()
    reconstruct = (SOURCES / "quant" / "reconstruct.cu").read_text()
    kernels, instances = reconstruct.partition("template <int K, int cb>")[1:]
    return "\n".join(
        [
            '#include "cuda_warps.h"',
            *(_type(name, util) for name in _TYPES),
            '#include "quant/exl3_dq.cuh"',
            '#include "quant/hadamard_inner.cuh"',
            kernels + instances.partition("/*\nReconstruct encoded")[0],
            _CALLS,
        ]
    )


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        source.write_text(_program())
        # As for AMD's GPUs, where no PTX is. No strict aliasing: the kernels do not keep to it.
        flags = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-ffp-contract=off"]
        flags += ["-fno-strict-aliasing", "-DUSE_ROCM", f"-I{PROJECT / 'tests/c'}", f"-I{SOURCES}"]
        command = [
            *shlex.split(os.environ.get("CXX", "c++")),
            *flags,
            str(source),
            "-o",
            str(library),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(library))


def _at(array: NDArray[Any] | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def inner(trellis: NDArray[Any], codebook: str) -> NDArray[Any]:
    """What `reconstruct` gives: half floats [in, out]."""
    packed = np.ascontiguousarray(trellis)
    tiles_k, tiles_n, words = packed.shape
    out = np.empty((tiles_k * 16, tiles_n * 16), np.float16)
    cb = CODEBOOKS.index(codebook)
    _library().reconstruct(words // 16, cb, _at(out), _at(packed), tiles_k, tiles_n)
    return out


def transformed(values: NDArray[Any], scales: NDArray[Any]) -> NDArray[Any]:
    """What `had_r_128` gives of float32, with scales behind it."""
    values, scales = np.ascontiguousarray(values, np.float32), np.ascontiguousarray(scales)
    assert scales.dtype == np.float16
    out = np.empty_like(values)
    _library().had_r_128(_at(values), _at(out), _at(scales), *values.shape)
    return out


def weight(
    codebook: str, trellis: NDArray[Any], suh: NDArray[Any], svh: NDArray[Any]
) -> NDArray[Any]:
    """A weight in float32, [out, in]: both sides transformed, the in features first."""
    of_in = transformed(inner(trellis, codebook).T, suh)
    return np.ascontiguousarray(transformed(of_in.T, svh).T)
