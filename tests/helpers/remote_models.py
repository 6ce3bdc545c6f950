"""Models to be served, and what is compared of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

import anamnesis as an
from anamnesis.base.errors import AnamnesisError

N_TENSORS = 24
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def model(root: Path, name: str, n: int = N_TENSORS, columns: int = 256) -> Path:
    """Write a model of plain tensors."""
    rng = np.random.default_rng(0)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(n)]
    arrays = {name: rng.standard_normal((128, columns), np.float32) for name in names}
    an.save(arrays, root / name)
    return root / name


def fp8(root: Path) -> Path:
    """Write a file of FP8 and its scales."""
    plain = model(root, "plain.safetensors")
    an.forget(plain, root / "fp8.safetensors", "fp8-block", loss=False)
    plain.unlink()
    return root / "fp8.safetensors"


def directory(root: Path) -> Path:
    """Write a directory of shards of FP8, and what lies beside them."""
    root.mkdir(parents=True)
    whole = model(root, "plain.safetensors")
    with an.parse(whole) as plain:
        plain.convert(root / "made", "fp8-block", max_shard_size=300_000, loss=False)
    whole.unlink()
    for path in (root / "made").iterdir():
        path.rename(root / path.name)
    (root / "made").rmdir()
    (root / "config.json").write_text(json.dumps(CONFIG))
    (root / "README.md").write_text("---\nlicense: mit\n---\n")
    (root / "tokenizer.json").write_text("{}")
    (root / "inner").mkdir()
    (root / "inner" / "words.txt").write_text("one")
    return root


def failure(do: Callable[[], object]) -> Exception | None:
    """Return the error of an input that something raises."""
    try:
        do()
    except (AnamnesisError, OSError) as error:
        return error
    return None


def same_files(one: Path, other: Path) -> bool:
    """Tell whether two folders hold the same files."""
    files = [
        {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        for root in (one, other)
    ]
    return bool(files[0]) and files[0] == files[1]
