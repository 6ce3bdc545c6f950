"""The neighbours of points off the grids of the IQ types are those of ggml's own tables."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from pathlib import Path

import ggml_c
import numpy as np
import numpy.typing as npt
import pytest

from helpers.kernel_calls import PROJECT

# Its tables are static: a file that includes the source can see them.
GGML_SHIM = """\
#include "ggml-quants.c"
void tables(int is_iq3, int type, int **map, uint16_t **neighbours) {
    if (is_iq3) iq3xs_init_impl(type);
    else iq2xs_init_impl(type);
    *map = is_iq3 ? iq3_data[iq3_data_index(type)].map : iq2_data[iq2_data_index(type)].map;
    *neighbours = is_iq3 ? iq3_data[iq3_data_index(type)].neighbours
                         : iq2_data[iq2_data_index(type)].neighbours;
}
"""
# In the order of amn_iq_lists_id: whether ggml's table is of IQ3, and by what it is asked for.
TABLES = ((0, 16), (0, 17), (0, 22), (0, 19), (1, 256), (1, 512))


class Lists(ctypes.Structure):
    _fields_ = (
        ("places", ctypes.POINTER(ctypes.c_uint32)),
        ("neighbours", ctypes.POINTER(ctypes.c_uint16)),
        ("grid", ctypes.POINTER(ctypes.c_uint16)),
        ("n_entries", ctypes.c_int),
    )


def built(out: Path, *arguments: str | Path) -> ctypes.CDLL:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-w"]
    subprocess.run([*compiler, *flags, *arguments, "-o", out, "-lpthread"], check=True)
    return ctypes.CDLL(str(out))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    kernels = PROJECT / "csrc/kernels"
    sources = (kernels / "iq_lists.c", kernels / "iq_grids.c")
    out = tmp_path_factory.mktemp("ours") / "lists.so"
    library = built(out, f"-I{PROJECT / 'csrc'}", *sources)
    library.amn_iq_lists_of.restype = ctypes.POINTER(Lists)
    return library


@pytest.fixture(scope="module")
def ggmls(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("ggml")
    shim = folder / "shim.c"
    shim.write_text(GGML_SHIM)
    ggml, library = ggml_c.llama_cpp() / "ggml", ggml_c.library()
    found = [f"-I{ggml / 'src'}", f"-I{ggml / 'include'}", f"-Wl,-rpath,{library.parent}"]
    return built(folder / "shim.so", *found, shim, library, "-lm")


def points(is_iq3: int) -> npt.NDArray[np.int64]:
    """All that levels can be packed to: three of them in two bits, or eight in three."""
    elements, bits, levels = (4, 3, 8) if is_iq3 else (8, 2, 3)
    packed = np.zeros(1, np.int64)
    for k in range(elements):
        packed = (packed[:, None] | np.arange(levels) << bits * k).reshape(-1)
    return packed


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("i", range(len(TABLES)))
def test_lists_are_ggmls(ours: ctypes.CDLL, ggmls: ctypes.CDLL, i: int) -> None:
    is_iq3, type_id = TABLES[i]
    theirs = ctypes.POINTER(ctypes.c_int)(), ctypes.POINTER(ctypes.c_uint16)()
    ggmls.tables(is_iq3, type_id, ctypes.byref(theirs[0]), ctypes.byref(theirs[1]))
    map_, neighbours = theirs
    lists = ours.amn_iq_lists_of(i).contents
    longest = 0
    for point in points(is_iq3):
        place = lists.places[point]
        n, start = place & 511, place >> 9
        if map_[point] >= 0:
            assert (n, start) == (0, map_[point])
            assert lists.grid[start] == point
            continue
        at = -map_[point] - 1
        longest = max(longest, n)
        assert n == neighbours[at]
        entries = neighbours[at + 1 : at + 1 + n]
        assert lists.neighbours[start : start + n] == [lists.grid[entry] for entry in entries]
    assert 0 < longest <= 292  # AMN_IQ_NEIGHBOURS_MAX
