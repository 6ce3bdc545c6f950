"""What a model's files say of themselves: metadata in full and in short."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from anamnesis.base.dropped import Dropped
from anamnesis.formats.base import CARRIED_HEADER, Container, TypedMetadata
from anamnesis.formats.writers import WRITERS

if TYPE_CHECKING:
    from anamnesis.formats.gguf.metadata import GgufMetadata

_SPLIT_PREFIX = "split."  # of the keys that say which part of a model a GGUF file is


def all_metadata(containers: Iterable[Container]) -> Mapping[str, Any]:
    """Return the metadata of all files as one mapping; what is read when asked for stays so."""
    found = [container.metadata for container in containers]
    if len(found) == 1:
        return found[0]
    if not any(isinstance(metadata, TypedMetadata) for metadata in found):
        return {key: value for metadata in found for key, value in metadata.items()}
    # Looks into one after the other; the first part of a model has it all.
    return ChainMap(*cast("list[MutableMapping[str, Any]]", found))


def all_described(containers: Iterable[Container]) -> Mapping[str, Mapping[str, Any]]:
    """Return what the pickles among all files say of single weights."""
    return {name: said for container in containers for name, said in container.described.items()}


def metadata_summary(containers: Iterable[Container]) -> dict[str, Any]:
    """Return the metadata of all files, with types in words in place of what is not read yet."""
    summary: dict[str, Any] = {}
    for container in containers:
        metadata = container.metadata
        summary.update(metadata.summary() if isinstance(metadata, TypedMetadata) else metadata)
    if isinstance(summary.get(CARRIED_HEADER), str):
        summary[CARRIED_HEADER] = f"[a GGUF header, {len(summary[CARRIED_HEADER]):,} bytes]"
    return summary


def carried_metadata(container: Container, said: Mapping[str, Any]) -> dict[str, str]:
    """Return what goes into the `__metadata__` of an output: strings, scalars and short arrays."""
    # Of a GGUF all keys as they are, too, but for what is said of them instead.
    metadata = container.metadata
    if not isinstance(metadata, TypedMetadata):
        return dict(metadata)
    carried: dict[str, str] = {}
    for key in metadata:
        if metadata.is_carried(key) and not key.startswith(_SPLIT_PREFIX):
            name = _encodable(key)
            while name != key and (name in metadata or name in carried):
                name += "_"
            carried[name] = _encodable(metadata.text(key))
    if container.id == "gguf":
        from anamnesis.formats.gguf.carried import header_text

        carried |= header_text(cast("GgufMetadata", metadata), said)
    return {**carried, "format": "pt"} if carried else {}  # transformers asks for the latter


def _encodable(text: str) -> str:
    """Return text that UTF-8 has: half of a surrogate pair, which a pickle may hold, is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def left_behind(containers: Iterable[Container], written: str) -> list[Dropped]:
    """Return the metadata that an output of a format has no place for."""
    others = [container for container in containers if container.id != written]
    why = f"metadata that {WRITERS[written].title} has no place for"
    carried: set[str] = set()
    if written == "safetensors":
        why = "metadata too long for a header"
        others = [c for c in others if c.id != "gguf"]
        entries = [(c.metadata, key) for c in others for key in c.metadata]
        carried = {k for m, k in entries if not isinstance(m, TypedMetadata) or m.is_carried(k)}
    keys = dict.fromkeys(key for container in others for key in container.metadata)
    return [Dropped(key, why) for key in keys if key not in carried]
