"""Which files of a directory are its model, and which are copies, by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from anamnesis.checkpoint.file_names import ADAPTER_NAMES, EXTENSION, HQQ_NAME
from anamnesis.checkpoint.indexes import Index, Kind

_NUMBER = r"(-[0-9]{5}-of-[0-9]{5})?"
_TORCH_SHARD = re.compile(rf"pytorch_model{_NUMBER}\.bin")
# Those of diffusers, and of variants, too: pytorch_model.fp16.bin; and what HQQ writes.
_TORCH = re.compile(rf"(diffusion_)?pytorch_model{_NUMBER}(\.[\w-]+)?\.bin|{re.escape(HQQ_NAME)}")
_MISTRAL_COPY = re.compile(rf"consolidated{_NUMBER}\.safetensors")
_USUAL = re.compile(
    rf"((diffusion_pytorch_)?model{_NUMBER}\.safetensors)|(diffusion_)?{_TORCH_SHARD.pattern}"
)


def is_weights(name: str) -> bool:
    """Return whether a file at the top of a directory is one of its model's, by its name."""
    return name.endswith(EXTENSION) or bool(_TORCH.fullmatch(name))


def grouped(
    files: Collection[str], top: Iterable[str], indexes: list[Index]
) -> dict[Kind, set[str]]:
    """Return the weights by kind; the first kind that is not empty is the model."""
    indexed: dict[Kind, set[str]] = {"safetensors": set(), "torch": set(), "mistral": set()}
    for index in indexes:
        indexed[index.kind] |= {shard for shard in index.shards() if shard in files}
    safetensors = {f for f in top if f.endswith(EXTENSION)}
    mistral = {f for f in safetensors if _MISTRAL_COPY.fullmatch(f)} | indexed["mistral"]
    torch = {f for f in top if _TORCH.fullmatch(f)} | indexed["torch"]
    adapters = {f for f in ADAPTER_NAMES if f in files}
    mistral -= indexed["safetensors"]
    adapters -= indexed["safetensors"] | indexed["torch"]
    safetensors = (safetensors | indexed["safetensors"]) - mistral - adapters
    groups = {"safetensors": safetensors, "torch": torch - safetensors, "mistral": mistral}
    if not any(groups.values()):
        groups["safetensors"] = {f for f in adapters if f.endswith(EXTENSION)}
    return groups


def is_usual(names: set[str], indexes: list[Index]) -> bool:
    """Return whether these are the weights that transformers and diffusers would load."""
    return any(map(_USUAL.fullmatch, names)) or any(
        not names.isdisjoint(index.shards()) for index in indexes
    )


def may_differ(name: str) -> bool:
    """Return whether weights in PyTorch's format are such that nobody loads beside others."""
    return bool(_TORCH.fullmatch(name)) and not _TORCH_SHARD.fullmatch(name)


def strays(names: set[str], indexes: list[Index]) -> set[str]:
    """Return files by the name of a whole model, beside the shards of one that an index names."""
    live = [index for index in indexes if not names.isdisjoint(index.shards())]
    whole = {index.name.partition(".index.")[0] for index in live} & names
    return whole.difference(*(index.shards() for index in live))
