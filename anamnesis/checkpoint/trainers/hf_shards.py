"""What torch's distributed writer of safetensors writes: each rank's boxes.

    shard-00001-model-00001-of-00002.safetensors   of the first rank, and so on

Each file has the boxes of one rank under the tensors' own names, and where they begin in the whole
in its metadata: DCP_SHARDING_INFO is JSON of {NAME: {"saved_offsets": [0, 128]}}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from anamnesis.base.errors import ParseError
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.base import Container
from anamnesis.sources.boxes import Box, BoxSource, Placed, check_boxes

_NAMED = re.compile(r"shard-[0-9]{5}-.+\.safetensors", re.DOTALL)
_KEY, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"


def find_hf_shards(names: Iterable[str]) -> list[str]:
    """Return the files of a folder that are called as the ranks' are."""
    return sorted(filter(_NAMED.fullmatch, names))


def join_hf_shards(shards: Mapping[str, Container]) -> dict[str, StoredTensor]:
    """Return the whole tensors."""
    boxes: dict[str, dict[tuple[int, ...], Box]] = {}
    first: dict[str, StoredTensor] = {}
    for container in shards.values():
        offsets = _offsets(container)
        for name, part in container.tensors.items():
            like = first.setdefault(name, part)
            begin = _begin(offsets.get(name), part)
            if part.dtype is not like.dtype or len(part.shape) != len(like.shape):
                raise part.malformed(f"{part} is a part of {like}, of another dtype or rank")
            box = Box(begin, part.shape, Placed(part.source, part.offset))
            boxes.setdefault(name, {}).setdefault(begin, box)
    return {name: _whole(like, list(boxes[name].values())) for name, like in first.items()}


def _offsets(container: Container) -> Mapping[str, Any]:
    try:
        told = json.loads(container.metadata.get(_KEY, ""))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ParseError(
            f"is called as a rank's part, and its metadata has no {_KEY} that says which",
            source=container.source.name,
        )
    return told


def _begin(told: Any, part: StoredTensor) -> tuple[int, ...]:
    found = told.get(_OFFSETS) if isinstance(told, dict) else None
    sizes = found if isinstance(found, list) else []
    if len(sizes) == len(part.shape) and all(type(n) is int and n >= 0 for n in sizes):
        return tuple(sizes)
    raise part.malformed(f"{part.name}: {_KEY} does not say where it begins in the whole")


def _whole(like: StoredTensor, boxes: list[Box]) -> StoredTensor:
    ends = [[o + n for o, n in zip(box.offsets, box.sizes, strict=True)] for box in boxes]
    shape = tuple(map(max, zip(*ends, strict=True)))
    what, file = f"tensor {like.name!r}", like.source.name
    check_boxes(shape, boxes, what, file)
    per = like.dtype.block_elements
    if per > 1:  # of values that share bytes, which boxes must not cut
        raise like.unsupported(f"{what}: parts of {like.dtype.name} are not joined")
    source = BoxSource(like.source, shape, like.dtype.n_bytes(1), boxes)
    return like._replace(shape=shape, n_bytes=source.size, offset=0, source=source)
