"""Two models that are to be compared: a small Llama, written otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli

BF16 = ml_dtypes.bfloat16
Arrays = dict[str, np.ndarray[Any, Any]]


@cache
def _llama() -> tuple[Mapping[str, bytes], Arrays]:
    """Return the files of a small Llama, and its weights."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert CliRunner().invoke(cli, ["demo", "llama", folder]).exit_code == 0
        (root,) = Path(folder).iterdir()
        files = {path.name: path.read_bytes() for path in root.iterdir()}
        with an.parse(root) as model:
            return files, model.state_dict("bf16")


def weights() -> Arrays:
    """Return the weights of the Llama, to be changed."""
    return {name: array.copy() for name, array in _llama()[1].items()}


def llama(
    folder: Path,
    arrays: Arrays | None = None,
    config: Callable[[dict[str, Any]], None] = lambda config: None,
) -> Path:
    """Write the Llama to a folder, with other weights or another config."""
    folder.mkdir()
    for name, raw in _llama()[0].items():
        if name == "config.json":
            said = json.loads(raw)
            config(said)
            raw = json.dumps(said).encode()
        if not name.endswith(".safetensors"):
            (folder / name).write_bytes(raw)
    an.save(weights() if arrays is None else arrays, folder / "model.safetensors")
    return folder


def mixture(folder: Path, *, stacked: bool | str) -> Path:
    """Write a small model with experts: one by one, or as transformers 5 or mlx-lm stacks them."""
    rng = np.random.default_rng(0)
    arrays: Arrays = {"model.embed_tokens.weight": rng.standard_normal((32, 16))}
    for layer in range(2):
        at = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (rng.standard_normal(s) for s in ((4, 32, 16), (4, 32, 16), (4, 16, 32)))
        if stacked == "mlx":
            of_mlx = at.replace("experts", "switch_mlp")
            named = {"gate_proj": gate, "up_proj": up, "down_proj": down}
            arrays |= {f"{of_mlx}.{name}.weight": stack for name, stack in named.items()}
            continue
        if stacked:
            arrays[f"{at}.gate_up_proj"] = np.concatenate([gate, up], axis=1)
            arrays[f"{at}.down_proj"] = down
            continue
        for i in range(4):
            arrays[f"{at}.{i}.gate_proj.weight"] = gate[i]
            arrays[f"{at}.{i}.up_proj.weight"] = up[i]
            arrays[f"{at}.{i}.down_proj.weight"] = down[i]
    folder.mkdir()
    said = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}
    (folder / "config.json").write_text(json.dumps(said))
    an.save({n: a.astype(BF16) for n, a in arrays.items()}, folder / "model.safetensors")
    return folder
