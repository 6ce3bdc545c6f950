"""A small model of several dtypes, as one file and as a directory."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np

from helpers.handmade import Entry, write_index, write_safetensors


def tensors() -> dict[str, Entry]:
    """Weights of each kind: floats of three widths, a quantised one, and what is neither."""
    rng = np.random.default_rng(5)

    def floats(dtype: str, *shape: int) -> Entry:
        kinds = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
        return dtype, shape, rng.normal(size=shape).astype(kinds[dtype]).tobytes()

    codes = rng.integers(0, 0x7F, 128 * 256, np.uint8).tobytes()
    return {
        "a.weight": floats("F32", 64, 48),
        "b.weight": floats("BF16", 130, 100),
        "norm.weight": floats("BF16", 7),
        "q.weight": ("F8_E4M3", (128, 256), codes),
        "q.weight_scale_inv": ("F32", (1, 2), np.array([0.01, 0.02], np.float32).tobytes()),
        "lm_head.weight": floats("F16", 32, 48),
        "ids": ("I64", (3,), np.arange(3).tobytes()),
    }


def write_file(folder: Path) -> Path:
    """Write the model as one file."""
    return write_safetensors(folder / "in.safetensors", tensors(), {"made": "by hand"})


def write_shards(folder: Path) -> Path:
    """Write the model as a directory of two shards."""
    found = tensors()
    names = list(found)
    shards = {
        "model-00001-of-00002.safetensors": {name: found[name] for name in names[:5]},
        "model-00002-of-00002.safetensors": {name: found[name] for name in names[5:]},
    }
    root = folder / "in"
    for name, part in shards.items():
        write_safetensors(root / name, part, {"format": "pt"})
    write_index(root, {t: name for name, part in shards.items() for t in part})
    config = {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    (root / "config.json").write_text(json.dumps(config))
    (root / "tokenizer.json").write_text("{}")
    return root
