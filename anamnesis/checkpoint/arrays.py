"""Arrays of any library as stored tensors, which lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.base.arrays import array_of
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.formats.base import Container
from anamnesis.sources.memory import BufferSource, array_source

NAME = "<arrays>"


def in_memory(stored: Mapping[str, StoredTensor]) -> Checkpoint:
    """Return tensors of any sources as a model that was opened from no file."""
    # The files that some of them lie in are among its shards, so that none of these is written to.
    own = Container("arrays", "arrays in memory", BufferSource(b"", NAME), dict(stored))
    shards = {NAME: own}
    for source in {id(t.source.base): t.source.base for t in stored.values()}.values():
        if source.path is not None:
            shards.setdefault(source.name, Container("arrays", own.format, source, {}))
    return Checkpoint(None, shards, own.tensors)


def stored_array(name: str, given: Any) -> StoredTensor:
    """Return an array as a tensor that lies in memory; it is not copied."""
    array, dtype = array_of(name, given)
    shape = array.shape
    if dtype.bits < 8 and shape:  # several in a byte
        shape = (*shape[:-1], shape[-1] * 8 // dtype.bits)
    return StoredTensor(name, dtype, shape, array.nbytes, 0, array_source(array, NAME))
