"""Whether a folder may be what a trainer has left, by its names alone."""

from __future__ import annotations

from collections.abc import Collection

from anamnesis.checkpoint.file_names import DCP_METADATA_NAME, EXTENSION

_MODELS = (EXTENSION, ".gguf", "pytorch_model.bin", ".index.json")
_SHARD = "shard-"  # of torch's distributed writer of safetensors
_LEFT = (DCP_METADATA_NAME, "latest", ".pt", ".pth", ".bin")  # endings


def may_be_trainers(names: Collection[str]) -> bool:
    """Tell whether there are such files, and no model beside them, which would be meant."""
    if any(name.endswith(_MODELS) and not name.startswith(_SHARD) for name in names):
        return False
    return any(name.endswith(_LEFT) or name.startswith(_SHARD) for name in names)
