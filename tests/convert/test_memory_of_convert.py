"""Peak memory does not grow with the model, nor with what an encoding wants at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest

from helpers.scripts import environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/status"),
]

PEAK = """
import sys, anamnesis as an
from anamnesis.schemes import encodings
encodings.ENCODINGS["toy-rows"] = encodings.Row(encodings.Maker("helpers.toys", "in_rows"))
encodings.ENCODINGS["toy-whole"] = encodings.Row(encodings.Maker("helpers.toys", "in_whole"))
from helpers import toys
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10
with an.parse(sys.argv[1], conv1d=True) as model:
    model.convert(sys.argv[2], sys.argv[3], threads=int(sys.argv[4]))
print(peak())
"""


def peak(
    folder: Path, shape: tuple[int, int], to: str, threads: int, name: str = "a.weight"
) -> int:
    """Return the megabytes that a conversion of zeros takes."""
    return peak_of(folder, {name: shape}, to, threads)


def peak_of(
    folder: Path, shapes: dict[str, tuple[int, ...]], to: str, threads: int, model_type: str = ""
) -> int:
    """Return the same of several weights; of a directory whose config.json says the type."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    source, out = folder / "in.safetensors", folder / "out"
    if model_type:
        (folder / "in").mkdir()
        source = folder / "in" / "model.safetensors"
        (folder / "in" / "config.json").write_text(json.dumps({"model_type": model_type}))
    with open(source, "wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    given = source.parent if model_type else source
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(given), str(out), to, str(threads)],
        env=environment(),
        capture_output=True,
        check=True,
    )
    shutil.rmtree(out) if model_type else out.unlink()
    shutil.rmtree(folder / "in", ignore_errors=True)
    return int(done.stdout)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["gguf", "npz", "pth", "toy-rows"])
def test_models_of_any_size(to: str, tmp_path: Path) -> None:
    """Two threads take at most 16 MiB each; the heap of the interpreter moves by some, too."""
    small = peak(tmp_path, (2, 512), to, 2)
    assert peak(tmp_path, (1 << 17, 512), to, 2) - small <= 2 * 16 + 3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("to", ["bnb-nf4", "bnb-nf4-nested", "bnb-int8"])
def test_layers_that_are_turned(to: str, tmp_path: Path) -> None:
    name = "h.0.mlp.c_fc.weight"
    small = peak(tmp_path, (8, 64), to, 2, name)
    assert peak(tmp_path, (1 << 13, 1 << 13), to, 2, name) - small <= 2 * 16
    assert peak(tmp_path, (100, 1 << 18), to, 2, name) - small <= 2 * 16
    assert peak(tmp_path, (1 << 18, 100), to, 2, name) - small <= 2 * 16


def test_encodings_that_want_much_at_once(tmp_path: Path) -> None:
    """A band is 40 MB here, so that of four threads one works at a time."""
    small = peak(tmp_path, (128, 8), "toy-whole", 4)
    assert peak(tmp_path, (128 * 12, 1 << 16), "toy-whole", 4) - small <= 4 * 16


@pytest.mark.sampled(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("to", ["fp8-block", "fp8-tensor", "int4", "int4-asym", "int8"])
def test_rows_of_millions_of_values(to: str, threads: int, tmp_path: Path) -> None:
    """The rows of a block would be 1 GB."""
    small = peak(tmp_path, (128, 128), to, threads)
    rows = 128 if to == "fp8-block" else 16
    assert peak(tmp_path, (rows, 1 << 21), to, threads) - small <= threads * 16


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["int8", "int4-asym", "nvfp4", "fp8-block-ct"])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_stacks_that_are_taken_apart(to: str, is_transposed: bool, tmp_path: Path) -> None:
    """A stack is 400 MB here, and the half of an expert 100 MB."""

    def stacks(experts: int, inner: int, outer: int) -> dict[str, tuple[int, ...]]:
        shapes = {"gate_up_proj": (2 * inner, outer), "down_proj": (outer, inner)}
        step = -1 if is_transposed else 1
        return {f"mlp.experts.{name}": (experts, *s[::step]) for name, s in shapes.items()}

    small = peak_of(tmp_path, stacks(2, 128, 256), to, 2)
    assert peak_of(tmp_path, stacks(2, 4096, 6144), to, 2) - small <= 2 * 16


@pytest.mark.parametrize("model_type", ["gpt_oss", "llama4_text", "gemma4_text"])
def test_stacks_that_are_put_together(model_type: str, tmp_path: Path) -> None:
    """A stack is 200 MB here, and a piece of it 50 or 100 MB."""

    def pieces(inner: int, outer: int) -> dict[str, tuple[int, ...]]:
        shapes = {"gate": (inner, outer), "up": (inner, outer), "down": (outer, inner)}
        return {
            f"mlp.experts.{i}.{name}_proj.weight": shape
            for i in range(2)
            for name, shape in shapes.items()
        }

    small = peak_of(tmp_path, pieces(64, 96), "f16", 2, model_type)
    large = peak_of(tmp_path, pieces(3072, 4096), "f16", 2, model_type)
    assert large - small <= 2 * 16
