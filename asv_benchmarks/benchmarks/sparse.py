"""Directories of a published model's tensors, in sparse files: names, dtypes and shapes, no data.

They are as long as the model and take a few megabytes on a disk that knows holes: the headers are
there, the weights are zeros that nobody wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from .models import Stored, header


def write_directory(
    folder: Path, tensors: Iterable[Stored], shard_bytes: int, config: object
) -> None:
    """Write shards of at most so many bytes, their index and config.json."""
    shards: list[list[Stored]] = [[]]
    size = 0
    for tensor in tensors:
        if size and size + tensor[3] > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor[3]
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        weight_map.update(dict.fromkeys((tensor[0] for tensor in shard), name))
        with open(folder / name, "wb") as file:
            file.write(header(shard))
            os.truncate(file.fileno(), file.tell() + sum(tensor[3] for tensor in shard))
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
