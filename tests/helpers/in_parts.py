"""Models that several processes convert, and what one process makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import anamnesis as an
from helpers.handmade import Entry, write_safetensors

__all__ = ["KILLED", "KINDS", "alone", "as_one", "left", "make_all", "write_model"]

# Conversions of several files. Shards are so small that NVFP4's merged layers lie in several.
KINDS: dict[str, dict[str, Any]] = {
    "fp8": {"to": "fp8-block", "max_shard_size": 18_000},
    "nvfp4": {"to": "nvfp4", "max_shard_size": 20_000, "verify": True},
    "bnb": {"to": "bnb-nf4-nested", "max_shard_size": 20_000},
    "plain": {"to": "f16", "max_shard_size": 70_000},
    "edit": {"to": "fp8-block", "max_shard_size": 40_000, "edit": {"*.norm.weight": np.ones(128)}},
    "gguf": {"to": "gguf-q8_0", "names": "keep", "split_max_size": 40_000},
    "one": {"to": "gguf-q8_0", "names": "keep"},
}

# Converts a model as "fp8" does, and kills itself on the way.
KILLED = """
import os, signal, sys, anamnesis as an
def progress(done, total):
    if done > total * 0.7: os.kill(os.getpid(), signal.SIGKILL)
with an.parse(sys.argv[1]) as model:
    model.convert(sys.argv[2], to="fp8-block", max_shard_size=18_000, progress=progress)
"""


def write_model(folder: Path, layers: int = 3, width: int = 128) -> Path:
    """Write a directory of plain matrices, of which some overflow F16, and what lies beside."""
    rng = np.random.default_rng(7)
    tensors: dict[str, Entry] = {}
    for i in range(layers):
        for j, name in enumerate(("q_proj", "k_proj", "v_proj", "o_proj")):
            values = (rng.normal(size=(width, width)) * 10.0**j).astype(np.float32)
            values[0, 0] = 1e6 if (i, name) == (1, "v_proj") else 1
            shape = (width, width)
            tensors[f"model.layers.{i}.self_attn.{name}.weight"] = ("F32", shape, values.tobytes())
        norm = rng.normal(size=width).astype(np.float32)
        tensors[f"model.layers.{i}.norm.weight"] = ("F32", (width,), norm.tobytes())
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"torch_dtype": "float32"}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def as_one(source: Path | str, out: Path | str, options: Mapping[str, Any]) -> an.Report:
    """Convert by one process."""
    with an.parse(source) as model:
        return model.convert(out, **options)


def make_all(
    source: Path | str, out: Path | str, options: Mapping[str, Any], of: int = 3
) -> an.Report:
    """Convert in shares, the last first, and commit."""
    with an.parse(source) as model:
        for number in range(of, 0, -1):
            model.convert(out, part=f"{number}/{of}", **options)
        return model.convert(out, part="commit", **options)


def alone(report: an.Report) -> dict[str, Any]:
    """Return what a report says but for when and where."""
    return {k: v for k, v in report.to_dict().items() if k not in ("seconds", "path")}


def left(folder: Path) -> list[str]:
    """Return what is left of outputs that did not finish, and the files of those that did."""
    return sorted(path.name for path in folder.rglob("*.amn-part*"))
