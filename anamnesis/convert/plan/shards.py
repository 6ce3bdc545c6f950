"""The shards of an output: how large they are, and what each is called."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable

from anamnesis.checkpoint.file_names import EXTENSION, HQQ_NAME, MODEL_STEM
from anamnesis.checkpoint.model_files import without_variant
from anamnesis.convert.plan.files import OutputWeight, case_folded

# Bytes, where the input has no shards: as transformers wrote them for long.
DEFAULT_SHARD_SIZE = 5 * 10**9
_TORCH_PREFIX = "pytorch_"


def split_by_size(weights: Iterable[OutputWeight], limit: int) -> list[list[OutputWeight]]:
    """Cut a sequence of weights into shards of at most `limit` bytes; a larger one gets its own."""
    shards: list[list[OutputWeight]] = [[]]
    size = 0
    for weight in weights:
        if shards[-1] and size + weight.n_bytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(weight)
        size += weight.n_bytes
    return shards


def shard_names(shards: Iterable[str], variant: str | None = None) -> dict[str, str]:
    """Return what each shard is called as safetensors: `pytorch_model.bin` is `model.safetensors`.

    So is `model.fp16.safetensors` where the variant `fp16` was asked for.

    Shards that would get one name keep all of their own before the new extension: `x.bin` and
    `x.pt` become `x.bin.safetensors` and `x.pt.safetensors`. So does `model.bin` that is one of
    several, for transformers takes a `model.safetensors` for the whole model.
    """
    short = {}
    for shard in shards:
        folder, name = posixpath.split(shard)
        stem = posixpath.splitext(name)[0].removeprefix(_TORCH_PREFIX)
        made = posixpath.join(folder, (MODEL_STEM if name == HQQ_NAME else stem) + EXTENSION)
        short[shard] = without_variant(shard if name.endswith(EXTENSION) else made, variant)
    taken = Counter(case_folded(name) for name in short.values())
    if len(short) > 1:
        taken.update(
            case_folded(name)
            for shard, name in short.items()
            if name == MODEL_STEM + EXTENSION and shard not in (name, "pytorch_model.bin")
        )
    return {
        shard: name if shard == name or taken[case_folded(name)] == 1 else shard + EXTENSION
        for shard, name in short.items()
    }
