"""What a model's files say of themselves: metadata in full, in short, three facts."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from anamnesis.base.stored import Dropped
from anamnesis.formats.base import CARRIED_HEADER, Container, TypedMetadata
from anamnesis.formats.written import WRITERS

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


# In config.json, by llama.cpp's converter's order of preference.
CONTEXT_LENGTH = (
    *("max_position_embeddings", "n_ctx", "n_positions", "max_length"),
    *("max_sequence_length", "model_max_length"),
)
_TOKENS = "tokenizer.ggml.tokens"


class About(NamedTuple):
    """Three facts of a header or a config.json, each None where it is not said."""

    architecture: str | None = None
    context_length: int | None = None
    n_vocabulary: int | None = None


def about(containers: Iterable[Container], config: Mapping[str, Any]) -> About:
    """Return what the header of a GGUF says, or what config.json does; no array is read."""
    first = next(iter(containers))
    if first.id == "gguf":
        metadata = first.metadata
        name = _text(metadata.get("general.architecture"))
        n_tokens = metadata.n_items(_TOKENS) if isinstance(metadata, TypedMetadata) else None
        return About(
            name,
            _count(metadata.get(f"{name}.context_length")),
            n_tokens or _count(metadata.get(f"{name}.vocab_size")),
        )
    classes = config.get("architectures")
    name = _text(classes[0]) if isinstance(classes, list) and classes else None
    text = config.get("text_config")
    told = {**config, **text} if isinstance(text, Mapping) else config
    lengths = (_count(told.get(fact)) for fact in CONTEXT_LENGTH)
    return About(
        name or _text(config.get("model_type")),
        next(filter(None, lengths), None),
        _count(told.get("vocab_size")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
