"""Which files of a directory are its model, and which are copies and variants.

Publishers put `pytorch_model.bin` beside `model.safetensors`, and Mistral
`consolidated.safetensors` beside transformers' shards. `model.fp16.safetensors` is a copy in
another precision, or one of other weights (`non_ema`), which loaders take only where it is asked
for. Nothing is a variant by its name alone: what it is one of must lie beside it, in this format or
in PyTorch's. What only looks like a copy must not be left out.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from anamnesis.base.shard_names import NUMBER
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.file_names import ADAPTER_NAMES, EXTENSION, HQQ_NAME
from anamnesis.checkpoint.indexes import Index, Kind, is_buffer
from anamnesis.formats.base import Container

_NUMBER = f"({NUMBER})?"
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
        indexed[index.kind] |= {shard for shard in index.shards if shard in files}
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
        not names.isdisjoint(index.shards) for index in indexes
    )


def may_differ(name: str) -> bool:
    """Return whether weights in PyTorch's format are such that nobody loads beside others."""
    return bool(_TORCH.fullmatch(name)) and not _TORCH_SHARD.fullmatch(name)


def strays(names: set[str], indexes: list[Index]) -> set[str]:
    """Return files by the name of a whole model, beside the shards of one that an index names."""
    live = [index for index in indexes if not names.isdisjoint(index.shards)]
    whole = {index.name.partition(".index.")[0] for index in live} & names
    return whole.difference(*(index.shards for index in live))


# Before or behind the word: model.fp16-00001-of-00002.safetensors, model-00001-of-00002.fp16.….
_NUMBERED = re.compile(rf"{NUMBER}(?=\.|\Z)")


def _stem(name: str) -> str:
    """Return what shards of one model have in common, in either format."""
    return os.path.splitext(_NUMBERED.sub("", name))[0].removeprefix("pytorch_")


def _is_word(text: str) -> bool:
    """Return whether it may be a variant's name: `Qwen2.5` is none of `Qwen2`."""
    return text.isidentifier() or (text.isalnum() and not text.isdigit())


def variants(names: Iterable[str], indexed: Iterable[Collection[str]] = ()) -> dict[str, str]:
    """Return those of some files that are variants of others, and which."""
    stems = {name: _stem(name) for name in names}
    there = set(stems.values())
    heads = {name: stem.rpartition(".") for name, stem in stems.items()}
    found = {n: word for n, (head, _, word) in heads.items() if head in there and _is_word(word)}
    for shards in indexed:
        if not found.keys() >= stems.keys() & set(shards):
            found = {name: word for name, word in found.items() if name not in shards}
    return found


def of_variant(names: Iterable[str], variant: str) -> tuple[set[str], set[str]]:
    """Return the files of one variant, and those of others that it takes the place of."""
    stems = {name: _stem(name) for name in names}
    wanted = {name for name, stem in stems.items() if stem.endswith(f".{variant}")}
    heads = {stems[name].removesuffix(f".{variant}") for name in wanted}
    others = {n for n, stem in stems.items() if {stem, stem.rpartition(".")[0]} & heads}
    return wanted, others - wanted


def without_variant(name: str, variant: str | None) -> str:
    """Return what a file of a variant, or an index of such, is called without it."""
    if variant is None:
        return name
    return re.sub(rf"\.{re.escape(variant)}(?=[.-]|\Z)", "", name, count=1)


def first_without_twin(container: Container, stored: Mapping[str, StoredTensor]) -> str | None:
    """Return a tensor that is not among `stored` under its name, with its shape; None if all are.

    One that is tied to another is there if the other is, for safetensors writers keep one of them.
    """
    tied = {name: names for names in container.tied for name in names}
    for name, tensor in container.tensors.items():
        twins = (stored.get(other) for other in tied.get(name, [name]))
        if any(twin is not None and twin.shape == tensor.shape for twin in twins):
            continue
        if name in stored or not is_buffer(name):
            return name
    return None


def is_renamed_copy(containers: Iterable[Container], stored: Mapping[str, StoredTensor]) -> bool:
    """Return whether tensors could be `stored` ones under other names, by their shapes."""
    # Or by the number of their elements, where one stacks the experts that the other has singly.
    copies = [tensor for container in containers for tensor in container.tensors.values()]
    if _shapes(copies) <= _shapes(stored.values()):
        return True
    n_elements = _n_elements(copies)
    return n_elements > 0 and n_elements == _n_elements(stored.values())


def _shapes(tensors: Iterable[StoredTensor]) -> Counter[tuple[int, ...]]:
    """Count the shapes of matrices, of all tensors if there are none: scales differ by format."""
    shapes = Counter(t.shape for t in tensors)
    return Counter({s: n for s, n in shapes.items() if len(s) > 1}) or shapes


def _n_elements(tensors: Iterable[StoredTensor]) -> int:
    return sum(t.n_elements for t in tensors if len(t.shape) > 1)
