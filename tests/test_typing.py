"""What type checkers accept and refuse of uses of the package, as it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anamnesis import _core
from anamnesis.base.dtypes import OUTPUT_DTYPES, DTypeName, output_dtype
from anamnesis.base.levels import LevelName, supported_levels

# Each line that ends so must be refused, and no other.
REFUSED = "# refused"

USES = """
import io
import threading
from pathlib import Path
from typing import Any, assert_type

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.schemes import bnb, fp8, ggml, int8, mlx, nvfp4

model = an.parse("model.safetensors", limits=an.ParseLimits(), conv1d=True, strict=True)
an.parse(Path("a"))
an.parse(b"", mmap=True)
an.parse(io.BytesIO())
an.parse(3)  # refused
an.parse("a", limit=an.ParseLimits())  # refused
an.parse("a", select=3)  # refused
tensor = model["a"]
assert_type(tensor, an.Tensor)
assert_type(tensor.numpy(), NDArray[Any])
assert_type(tensor.torch(), torch.Tensor)
assert_type(tensor.shape, tuple[int, ...])
assert_type(tensor.dtype, np.dtype[Any])
tensor.numpy("bf16", threads=2, level="scalar")
tensor.numpy(np.float32)
tensor.numpy(np.dtype("f2"))
tensor.numpy(ml_dtypes.bfloat16)
tensor.torch(torch.bfloat16)
tensor.numpy("bf61")  # refused
tensor.numpy(level="avx9")  # refused
tensor.numpy(thread=3)  # refused
tensor.torch("int8")  # refused
tensor.weight  # refused
model.checkpoint  # refused
model.claim  # refused
for level in an.supported_levels():
    tensor.numpy(level=level)
array: NDArray[np.float32] = np.asarray(tensor, np.float32)
assert_type(model.state_dict(), dict[str, NDArray[Any]])
assert_type(model.state_dict("bf16", framework="torch"), dict[str, torch.Tensor])
assert_type(model.state_dict("bf16", "torch"), dict[str, torch.Tensor])
assert_type(model.state_dict(framework="torch"), dict[str, torch.Tensor])
model.state_dict(framework="mlx")  # refused
assert_type(model.state_dict("bf16", "pt", device="cuda:0"), dict[str, torch.Tensor])
assert_type(model.state_dict(framework="jax", device="gpu"), dict[str, Any])
model.state_dict(device="cuda")  # refused
assert_type(tensor.torch(device=torch.device("cpu")), torch.Tensor)
tensor.numpy(device="cpu")  # refused
model.remember("out", cancel=threading.Event())
model.remember("out", cancel=3)  # refused
model.convert("out", edit={"a": array, "b*": lambda t: t.numpy(), "c": None})
model.convert("out", edit=[array])  # refused
model.convert("out", **an.read_recipe("a.toml"))
an.convert("in", "out", **an.read_recipe("a.toml"))
an.read_recipe(3.5)  # refused
assert_type(model.select("*.mlp.*", exclude=["a", "b"]), an.Model)
model.select(exclude=3)  # refused
assert_type(model.inspect("f16"), an.Inspection)
model.inspect("fp16")  # refused
assert_type(model.remember("out", "bf16", threads=2, force=True), an.Report)
model.remember(io.BytesIO(), torch.bfloat16, progress=True)
model.remember(lambda name, array: print(name), progress=lambda done, total: None)
model.remember("out", thread=3)  # refused
model.remember("out", threads="3")  # refused
model.remember("out", dtype="bf61")  # refused
model.remember("out", progress=False)  # refused
assert_type(model.remember_to_bytes(resume=False), bytes)
model.remember_to_bytes(thread=3)  # refused
assert_type(an.inspect("in", "bf16", select="a"), an.Inspection)
an.inspect("in", thread=3)  # refused
assert_type(an.remember("in", "out", "f32", select="a", threads=2), an.Report)
an.remember("in", "out", thread=3)  # refused
an.remember("in", "out", "bf61")  # refused
assert_type(an.scan("in"), an.Scan)
fp8.dequantize(array, array, dtype="bf16", threads=None)
ggml.dequantize(array, "Q4_K", dtype=np.float16)
ggml.dequantize(array, "Q4_K", dtype="q8")  # refused
bnb.dequantize_int8(array, array, level="avx3")  # refused
nvfp4.dequantize(array, array, dtype=np.dtype("f2"), out=array)
nvfp4.dequantize(array, array, dtypes="f16")  # refused
nvfp4.dequantize(array, array, None, "f16")  # refused
int8.quantize(array, threads=None, level="scalar")
int8.quantize(array, out=array)  # refused
assert_type(mlx.quantize(array, threads=2), mlx.Quantized)
mlx.quantize(array, threads="2")  # refused
an.schemes.gptq.dequantize(array, array, array, dtype=ml_dtypes.bfloat16)
with model as same:
    assert_type(same, an.Model)
"""


@pytest.mark.oracle
@pytest.mark.slow
def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    sample = tmp_path / "uses.py"
    sample.write_text(USES)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", sample.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = [line.split(":") for line in done.stdout.splitlines() if ": error:" in line]
    assert {parts[0] for parts in told} == {sample.name}, done.stdout + done.stderr
    lines = USES.splitlines()
    refused = {lines[int(parts[1]) - 1] for parts in told}
    assert refused == {line for line in lines if line.endswith(REFUSED)}, done.stdout


def test_names_are_those_that_there_are() -> None:
    for name in DTypeName.__args__:  # type: ignore[attr-defined]
        assert output_dtype(name) in OUTPUT_DTYPES.values()
    assert set(_core.LEVELS) <= set(LevelName.__args__)  # type: ignore[attr-defined]
    assert set(supported_levels()) <= set(_core.LEVELS)
