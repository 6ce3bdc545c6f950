"""Peak memory does not grow with the model."""

from __future__ import annotations

import json
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch

from anamnesis.base.dtypes import DTYPES
from helpers.models import finish, start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/status")

PEAK = """
import os, sys, anamnesis as an
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10
with an.parse(sys.argv[1]) as model:
    model.remember(sys.argv[2], threads=2)
print(peak())
os.unlink(sys.argv[2])
"""


def sparse(path: Path, shapes: list[tuple[int, ...]], scale: tuple[int, ...] = (1,)) -> Path:
    """An FP8 model of zeros that takes no room on the disk."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for i, shape in enumerate(shapes):
        tensors[f"{i}.weight"] = "F8_E4M3", shape
        tensors[f"{i}.weight_scale"] = "F32", scale
    return zeros(path, tensors)


def zeros(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> Path:
    """A file of zeros that takes no room on the disk."""
    header: dict[str, object] = {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        n_bytes = prod(shape) * DTYPES[dtype].bits // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + n_bytes]}
        end += n_bytes
    raw = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    return path


def peak(source: Path) -> int:
    """Megabytes."""
    return int(finish(start(PEAK, source, source.with_name("out"))))


def test_small_and_large_models_take_the_same(fast_folder: Path) -> None:
    small = peak(sparse(fast_folder / "small", [(75, 1024, 1024)] * 4))
    large = peak(sparse(fast_folder / "large", [(75, 1024, 1024)] * 16))
    assert small <= 120
    assert abs(large - small) <= 10


@pytest.mark.parametrize(
    ("shape", "scale"),
    [
        ((1, 1 << 28), (1, 1)),
        ((1, 1 << 28), (1, 1 << 21)),
        ((1 << 28, 1), (1 << 21, 1)),
        ((2, 1 << 13, 1 << 14), (2, 64, 128)),
        ((2, 1, 1 << 27), (2, 1, 1 << 20)),
    ],
)
def test_huge_rows(shape: tuple[int, ...], scale: tuple[int, ...], fast_folder: Path) -> None:
    assert peak(sparse(fast_folder / "model", [shape], scale)) <= 120


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["gptq", "gptq in act-order", "awq"])
@pytest.mark.parametrize(
    ("out_features", "in_features"), [(8192, 28672), (57344, 8192), (64, 1 << 20), (1 << 20, 128)]
)
def test_columns(out_features: int, in_features: int, kind: str, fast_folder: Path) -> None:
    """A band of GPTQ or AWQ is some columns of what is stored: 16 MiB a thread hold all of it."""
    words = in_features // 8, out_features
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "a.qweight": ("I32", (in_features, out_features // 8) if kind == "awq" else words),
        "a.qzeros": ("I32", (in_features // 128, out_features // 8)),
        "a.scales": ("F16", (in_features // 128, out_features)),
    }
    if "act-order" in kind:  # zeros are no runs
        tensors["a.g_idx"] = "I32", (in_features,)
    nothing = peak(zeros(fast_folder / "nothing", {"norm.weight": ("BF16", (4,))}))
    assert peak(zeros(fast_folder / "model", tensors)) <= nothing + 2 * 16


@pytest.mark.parametrize("zipped", [True, False])
def test_transposed_tensors_share_what_is_kept(zipped: bool, fast_folder: Path) -> None:
    nothing = peak(zeros(fast_folder / "nothing", {"norm.weight": ("BF16", (4,))}))
    for n in (6, 20):  # of few the threads may see no two at once
        path = fast_folder / "model.pth"
        state = {f"{i}": torch.zeros(2048, 2048).T for i in range(n)}
        torch.save(state, path, _use_new_zipfile_serialization=zipped)
        assert peak(path) <= nothing + 2 * 16


def test_column_major_of_the_other_byte_order(fast_folder: Path) -> None:
    """Strips are turned, and their numbers too."""
    nothing = peak(zeros(fast_folder / "nothing", {"norm.weight": ("BF16", (4,))}))
    path = fast_folder / "model.npy"
    np.lib.format.open_memmap(path, "w+", ">f4", (10_000, 4096), fortran_order=True)
    assert peak(path) <= nothing + 2 * 16
