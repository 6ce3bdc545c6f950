"""GGUF models in several files, as llama.cpp's gguf-split writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.shard_names import numbered_names
from anamnesis.formats.gguf.read import DEFAULT_ALIGNMENT

NUMBER_KEY, COUNT_KEY, TENSORS_KEY = "split.no", "split.count", "split.tensors.count"
SPLIT_KEYS = (NUMBER_KEY, COUNT_KEY, TENSORS_KEY)

_MOST_FILES = 0xFFFF  # what `split.count` can say
_ENDING = ".gguf"


class SplitFile(NamedTuple):
    """One file of a model."""

    name: str
    start: int
    stop: int
    metadata: dict[str, Any]


def split(
    name: str, sizes: Sequence[Sequence[int]], metadata: Mapping[str, Any], max_size: int
) -> list[SplitFile]:
    """Cut a model into files of at most `max_size` bytes of tensors; a larger weight gets its own.

    The names, the keys, their order and types and how sizes are counted are those of llama.cpp's
    `tools/gguf-split/gguf-split.cpp`. A first tensor that is larger than `max_size` is an error
    there; and one file that holds all is `NAME-00001-of-00001.gguf`, with the keys, where gguf-py
    writes what is written here.
    """
    runs: list[tuple[int, int]] = []
    start = n_bytes = 0
    for i, tensors in enumerate(sizes):
        padded = sum([size + -size % DEFAULT_ALIGNMENT for size in tensors])
        if i > start and n_bytes + padded > max_size:
            runs.append((start, i))
            start, n_bytes = i, 0
        n_bytes += padded
    runs.append((start, len(sizes)))
    return _files(name, runs, sum(map(len, sizes)), metadata, (NUMBER_KEY, TENSORS_KEY, COUNT_KEY))


def split_as(
    name: str, counts: Sequence[int], n_tensors: int, metadata: Mapping[str, Any]
) -> list[SplitFile]:
    """Cut a model into files of so many weights each, as llama-quantize's `--keep-split` does."""
    stops = list(accumulate(counts))
    runs = list(zip([0, *stops], stops, strict=False))
    return _files(name, runs, n_tensors, metadata, SPLIT_KEYS)


def _files(
    name: str,
    runs: Sequence[tuple[int, int]],
    n_tensors: int,
    metadata: Mapping[str, Any],
    keys: Sequence[str],
) -> list[SplitFile]:
    """Return files of runs of weights, with keys in an order."""
    n = len(runs)
    if n == 1:
        return [SplitFile(name, *runs[0], dict(metadata))]
    if n > _MOST_FILES:
        raise UnsupportedError(f"{n:,} parts, of which GGUF numbers {_MOST_FILES:,}; allow larger")
    stem = name[: -len(_ENDING)] if name.lower().endswith(_ENDING) else name
    names = numbered_names(stem, n, _ENDING)
    files = []
    for i, (start, stop) in enumerate(runs):
        given = {
            NUMBER_KEY: {"type": "uint16", "value": i},
            COUNT_KEY: {"type": "uint16", "value": n},
            TENSORS_KEY: {"type": "int32", "value": n_tensors},
        }
        own = {**(metadata if i == 0 else {}), **{key: given[key] for key in keys}}
        files.append(SplitFile(names[i], start, stop, own))
    return files
