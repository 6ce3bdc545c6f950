"""`--math`: which of two decodings is written, on each command that decodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from helpers.cli_runs import amn
from helpers.handmade import write_safetensors

SCALE = np.float32(1.005859375).tobytes()  # of which bfloat16 makes 1.0078125
# 1.5 times either, rounded to bfloat16, as float32
VALUES = {"float32": 1.5078125, "reference": 1.515625}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """FP8 as ComfyUI has it, whose decoder rounds the scale."""
    marker = json.dumps({"format": "float8_e4m3fn"}).encode()
    tensors = {
        "a.weight": ("F8_E4M3", (128, 128), b"\x3c" * 128 * 128),
        "a.weight_scale": ("F32", (), SCALE),
        "a.comfy_quant": ("U8", (len(marker),), marker),
    }
    return write_safetensors(tmp_path / "model.safetensors", tensors)


def run(*args: Any, code: int = 0) -> Any:
    done = amn(*args)
    assert done.returncode == code, done.stderr
    return done


def values(path: Path) -> set[float]:
    with safe_open(path, "np") as file:
        return set(file.get_tensor("a.weight").astype(np.float32).flat)


@pytest.mark.parametrize("math", VALUES)
def test_remember_and_convert(model: Path, math: str, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    run("remember", model, "-o", out, "--math", math)
    assert values(out) == {VALUES[math]}
    run("convert", model, "--to", "bf16", "-o", out, "--math", math, "--force")
    assert values(out) == {VALUES[math]}


def test_float32_is_the_default(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    run("remember", model, "-o", out)
    assert values(out) == {VALUES["float32"]}


@pytest.mark.slow
def test_forget_takes_what_comes_out(model: Path, tmp_path: Path) -> None:
    plain, encoded = tmp_path / "plain.safetensors", []
    for math in VALUES:
        run("remember", model, "-o", plain, "--math", math, "--force")
        run("forget", plain, "--to", "int8", "-o", tmp_path / f"{math}-by-way.safetensors")
        run(
            "forget",
            model,
            "--to",
            "int8",
            "-o",
            tmp_path / f"{math}.safetensors",
            "--math",
            math,
        )
        encoded.append((tmp_path / f"{math}.safetensors").read_bytes())
        assert encoded[-1] == (tmp_path / f"{math}-by-way.safetensors").read_bytes()
    assert encoded[0] != encoded[1]


@pytest.mark.parametrize("math", VALUES)
def test_plan_says_which(model: Path, math: str) -> None:
    done = run("plan", model, "--to", "bf16", "--math", math, "--json")
    assert json.loads(done.stdout)["math"] == math


def test_inspect_says_that_they_differ(model: Path) -> None:
    assert "Math:        float32 and reference differ in 1 tensor" in run("inspect", model).stdout
    assert run("inspect", model, "--to", "f32").stdout.count("Math") == 0


def test_there_is_no_other(model: Path) -> None:
    done = run("remember", model, "--math", "fast", code=2)
    assert "'fast' is not one of 'float32', 'reference'" in done.stderr
