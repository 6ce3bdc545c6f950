"""GGUF models in several files, as llama.cpp's gguf-split writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from anamnesis.base.errors import UnsupportedError
from anamnesis.formats.gguf.read import DEFAULT_ALIGNMENT

__all__ = ["COUNT_KEY", "NUMBER_KEY", "SPLIT_KEYS", "TENSORS_KEY", "SplitFile", "split"]

NUMBER_KEY, COUNT_KEY, TENSORS_KEY = "split.no", "split.count", "split.tensors.count"
SPLIT_KEYS = (NUMBER_KEY, COUNT_KEY, TENSORS_KEY)

_MOST_FILES = 0xFFFF  # what `split.count` can say
_ENDING = ".gguf"


class SplitFile(NamedTuple):
    """One file of a model.

    Attributes
    ----------
    name : str
    start, stop : int
        Which of the model's tensors it holds.
    metadata : dict of str to anything
        The model's in the first file, and in each which part it is.
    """

    name: str
    start: int
    stop: int
    metadata: dict[str, Any]


def split(
    stem: str, sizes: Sequence[int], metadata: Mapping[str, Any], max_size: int
) -> list[SplitFile]:
    """Cut a model into files of at most `max_size` bytes of tensors; a larger tensor gets its own.

    Parameters
    ----------
    stem : str
        What the files' names begin with. One that holds all is called `STEM.gguf`, and says nothing
        of parts.
    sizes : sequence of int
        Bytes of each tensor.
    metadata : mapping
    max_size : int
        Bytes of tensors, padded to 32, and without the header.

    Raises
    ------
    UnsupportedError
        If there would be more files than the format can number.
    """
    runs = list(_runs(sizes, max_size))
    n = len(runs)
    if n == 1:
        return [SplitFile(stem + _ENDING, 0, len(sizes), dict(metadata))]
    if n > _MOST_FILES:
        raise UnsupportedError(f"{n:,} parts, of which GGUF numbers {_MOST_FILES:,}; allow larger")
    return [
        SplitFile(
            f"{stem}-{i + 1:05d}-of-{n:05d}{_ENDING}",
            start,
            stop,
            {
                **(metadata if i == 0 else {}),
                NUMBER_KEY: {"type": "uint16", "value": i},
                COUNT_KEY: {"type": "uint16", "value": n},
                TENSORS_KEY: {"type": "int32", "value": len(sizes)},
            },
        )
        for i, (start, stop) in enumerate(runs)
    ]


def _runs(sizes: Sequence[int], max_size: int) -> Iterator[tuple[int, int]]:
    start = n_bytes = 0
    for i, size in enumerate(sizes):
        padded = size + -size % DEFAULT_ALIGNMENT
        if i > start and n_bytes + padded > max_size:
            yield start, i
            start, n_bytes = i, 0
        n_bytes += padded
    yield start, len(sizes)
