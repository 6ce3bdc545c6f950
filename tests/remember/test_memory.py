"""Peak memory does not grow with the model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from models import finish, start

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
    """A model of zeros that takes no room on the disk."""
    header: dict[str, object] = {}
    end = 0

    def add(name: str, dtype: str, shape: tuple[int, ...], n_bytes: int) -> None:
        nonlocal end
        offsets = [end, end + n_bytes]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        end += n_bytes

    for i, shape in enumerate(shapes):
        n = 1
        for dim in shape:
            n *= dim
        add(f"{i}.weight", "F8_E4M3", shape, n)
        n_scales = 1
        for dim in scale:
            n_scales *= dim
        add(f"{i}.weight_scale", "F32", scale, 4 * n_scales)
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
