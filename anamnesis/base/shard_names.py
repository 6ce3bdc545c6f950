"""Names of numbered shards, `model-00001-of-00005.safetensors`, made and read."""

from __future__ import annotations

import re
from typing import NamedTuple

NUMBER = r"-[0-9]{5}-of-[0-9]{5}"  # a pattern of what stands between stem and ending
_NAME = re.compile(r"(.*)-([0-9]{5})(-of-)([0-9]{5})(\.\w+)", re.IGNORECASE | re.DOTALL)


class Shard(NamedTuple):
    """What the name of a shard says."""

    stem: str
    number: int
    of: str  # which a GGUF may have in capitals
    total: int
    ending: str

    @classmethod
    def read(cls, name: str) -> Shard | None:
        found = _NAME.fullmatch(name)
        return found and cls(found[1], int(found[2]), found[3], int(found[4]), found[5])


def numbered_names(stem: str, total: int, ending: str, of: str = "-of-") -> list[str]:
    """Return the names of so many shards, numbered from 1."""
    return [f"{stem}-{i:05d}{of}{total:05d}{ending}" for i in range(1, total + 1)]
