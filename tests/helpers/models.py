"""Small quantised models, written by hand, and torch's word on what they must become."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import Entry, write_index, write_safetensors

PROJECT = Path(__file__).parents[2]
TESTS = PROJECT / "tests"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
SIDECARS = {
    "tokenizer.json": b'{"version": "1.0"}\n',
    "generation_config.json": b'{"bos_token_id":1}',
    "modeling_x.py": b"print('x')\r\n",
    "empty.txt": b"",
    "assets/deep/er/picture.bin": bytes(range(256)),
    "onnx/.hidden": b"h",
}


def f32(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


def codes(rows: int, cols: int, seed: int = 0) -> Entry:
    """Codes without NaN."""
    raw = np.random.default_rng(seed).integers(0, 0x7F, rows * cols, np.uint8)
    return "F8_E4M3", (rows, cols), raw.tobytes()


def block_scales(rows: int, cols: int, seed: int = 1) -> Entry:
    grid = (-(-rows // 128), -(-cols // 128))
    values = np.random.default_rng(seed).uniform(1e-4, 1e-2, grid).astype(np.float32)
    return "F32", grid, values.tobytes()


def small_model() -> dict[str, Entry]:
    """Two quantised weights, one of each other kind."""
    return {
        "a.weight": codes(256, 384),
        "a.weight_scale_inv": block_scales(256, 384),
        "norm.weight": ("BF16", (7,), bytes(range(14))),
        "b.weight": codes(128, 256, 2),
        "b.weight_scale_inv": block_scales(128, 256, 3),
        "b.input_scale": ("F32", (), f32(1)),
        "ids": ("I64", (3,), bytes(24)),
    }


def write_directory(folder: Path, *, index: bool = True, config: bool = True) -> Path:
    """Two shards, the scales of one in the other, and all that lies beside."""
    model = small_model()
    first = ("a.weight", "norm.weight", "b.weight_scale_inv")
    shards = {
        "model-00001-of-00002.safetensors": {k: v for k, v in model.items() if k in first},
        "model-00002-of-00002.safetensors": {k: v for k, v in model.items() if k not in first},
    }
    for name, tensors in shards.items():
        write_safetensors(folder / name, tensors, {"format": "pt", "made": name})
    if index:
        write_index(folder, {t: name for name, tensors in shards.items() for t in tensors})
    if config:
        (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8_PB_WO"}}')
    for name, data in SIDECARS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def tree(path: Path) -> dict[str, bytes]:
    """Every file of a directory, or the one file."""
    if path.is_file():
        return {"": path.read_bytes()}
    files = [p for p in path.rglob("*") if p.is_file()]
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in files}


def partials(folder: Path) -> list[Path]:
    """What is left of runs that did not finish."""
    return [p for p in folder.rglob("*") if p.name.endswith(".amn-partial")]


def start(script: str, *args: object, **how: Any) -> subprocess.Popen[str]:
    """Start an interpreter of its own on a script."""
    command = [sys.executable, "-c", script, *map(str, args)]
    paths = os.pathsep.join(map(str, (PROJECT, TESTS)))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(command, text=True, env=environment, **{**pipes, **how})


def finish(process: subprocess.Popen[str], code: int = 0, timeout: float = 120) -> str:
    """Wait for it; return what it printed."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == code, err
    return out


class Stop(Exception):
    """What a test raises amid a run."""


def stopping(after: int, error: BaseException) -> Callable[[int, int], None]:
    """Return a progress callback that raises once so many bytes are done."""

    def progress(done: int, _: int) -> None:
        if done >= after:
            raise error

    return progress


def interrupt(model: an.Model, out: Path, after: int = 50_000, **how: Any) -> None:
    """Begin to remember, and stop amid it."""
    with pytest.raises(Stop):
        model.remember(out, threads=1, progress=stopping(after, Stop()), **how)
