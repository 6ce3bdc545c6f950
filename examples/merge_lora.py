"""Merge a LoRA adapter of peft into a model: W + B @ A * alpha / r, one weight in memory at a time.

python examples/merge_lora.py Qwen3-8B-FP8 adapter Qwen3-8B-merged
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import anamnesis as an

PREFIX = "base_model.model."  # before what the model calls its layers
ENDINGS = (".lora_A.weight", ".lora_B.weight")
OTHER_KINDS = ("use_dora", "use_rslora", "fan_in_fan_out", "rank_pattern", "alpha_pattern")


def scale_of(folder: str) -> np.float32:
    """Return what B @ A is multiplied by."""
    config = json.loads(Path(folder, "adapter_config.json").read_text(encoding="utf-8"))
    for key in OTHER_KINDS:
        if config.get(key):
            sys.exit(f"refused: {folder}: {key} is set, and this script merges plain LoRA alone")
    return np.float32(config["lora_alpha"] / config["r"])


def layers_of(adapter: an.Model) -> set[str]:
    """Return the names of the layers that an adapter changes."""
    layers = {name.removesuffix(end) for name in adapter for end in ENDINGS if name.endswith(end)}
    unknown = set(adapter) - {layer + end for layer in layers for end in ENDINGS}
    if unknown:
        sys.exit(f"refused: {min(unknown)} is none of {' and '.join(ENDINGS)}")
    return {layer.removeprefix(PREFIX) for layer in layers}


def main(base: str, folder: str, out: str) -> None:
    """Write the merged model, with the config, index and tokenizer of `base`."""
    scale = scale_of(folder)
    with an.parse(folder) as adapter, an.parse(base) as model:

        def merged(weight: an.Tensor) -> Any:
            layer = PREFIX + weight.name.removesuffix(".weight")
            a, b = (adapter[layer + end].numpy() for end in ENDINGS)
            return weight.numpy() + b @ a * scale

        edit = {f"{layer}.weight": merged for layer in layers_of(adapter)}
        print(model.remember(out, edit=edit))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except (an.AnamnesisError, KeyError, ValueError) as error:
        sys.exit(f"refused: {error}")
