"""Directories of tiny models from a list of their tensors, the same bytes everywhere.

A tensor's values come from whole numbers of a hash that its name seeds, so that no library's
version changes them and no torch is needed; their sizes are such that a model computes something.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from helpers.handmade import Entry, safetensors_bytes, write_index
from helpers.whole_gguf import splitmix

__all__ = ["Tensor", "entry", "write"]

Tensor = tuple[str, str, list[int]]  # name, dtype as safetensors spells it, shape
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def values(name: str, shape: Sequence[int]) -> Floats:
    """Return values of a weight: near 1/2 of a norm, small of a bias, else as training starts."""
    n = math.prod(shape)
    parts = splitmix(zlib.crc32(name.encode()), n).view(np.uint16).reshape(n, 4).astype(np.int32)
    bell = ((parts.sum(axis=1) - 2 * 65535) * 2.0**-16).astype(np.float32).reshape(shape)
    if name.endswith("A_log"):
        return np.log(np.float32(2) + bell)
    if len(shape) == 1 and "norm" in name.lower() and name.endswith("weight"):
        return np.float32(0.5) + bell * np.float32(0.25)
    if len(shape) == 1 or name.endswith("bias"):
        return bell * np.float32(0.125)
    return bell * np.float32(2.0 ** -round(math.log2(math.sqrt(shape[-1])) - 0.75))


def entry(tensor: Tensor) -> Entry:
    """Return a tensor as `handmade` writes it."""
    name, dtype, shape = tensor
    if dtype == "U8":
        raw = splitmix(zlib.crc32(name.encode()), math.prod(shape)).astype(np.uint8)
        if name.endswith("_scales"):  # of MXFP4: powers of 2 near 1/32
            raw = raw % np.uint8(4) + np.uint8(120)
        return dtype, shape, raw.tobytes()
    found = values(name, shape)
    if dtype == "BF16":
        return dtype, shape, (found.view(np.uint32) >> np.uint32(16)).astype(np.uint16).tobytes()
    if dtype == "F32":
        return dtype, shape, found.tobytes()
    raise ValueError(f"{name}: no values of {dtype} are made here")


def write(
    folder: Path, files: Mapping[str, str | bytes], tensors: Sequence[Tensor], n_shards: int = 1
) -> Path:
    """Write a model's directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        raw = text.encode() if isinstance(text, str) else text
        (folder / name).write_bytes(raw)
    if n_shards == 1:
        (folder / "model.safetensors").write_bytes(_shard(tensors))
        return folder
    where = {}
    for name, part in _shards(tensors, n_shards):
        (folder / name).write_bytes(_shard(part))
        where.update({tensor[0]: name for tensor in part})
    write_index(folder, where)
    return folder


def _shard(tensors: Sequence[Tensor]) -> bytes:
    return safetensors_bytes({t[0]: entry(t) for t in tensors}, {"format": "pt"})


def _shards(tensors: Sequence[Tensor], n: int) -> Iterator[tuple[str, Sequence[Tensor]]]:
    step = -(-len(tensors) // n)
    for i in range(n):
        yield f"model-{i + 1:05}-of-{n:05}.safetensors", tensors[i * step : (i + 1) * step]
