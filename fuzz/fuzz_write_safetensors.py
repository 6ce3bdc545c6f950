"""A safetensors file that is written, and read back; see structured_write.py."""

from __future__ import annotations

from safetensors import deserialize
from structured import Choices
from structured_write import check_written, model
from traced import fuzz

METADATA: tuple[dict[str, str], ...] = ({}, {"format": "pt"}, {"é\n": "", "": '"'})


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    choices = Choices(data)
    parts, metadata = model(choices, "safetensors"), choices.pick(METADATA)
    raw = check_written("safetensors", parts, metadata)
    if raw is not None:
        read = dict(deserialize(raw))
        assert {name: bytes(found["data"]) for name, found in read.items()} == {
            made.part.name: made.data for made in parts
        }


if __name__ == "__main__":
    fuzz(check)
