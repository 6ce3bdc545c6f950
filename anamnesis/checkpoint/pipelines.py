"""A pipeline as diffusers saves it: a folder for each of its components.

    model_index.json  unet/  vae/  text_encoder/  tokenizer/  scheduler/

Each component that has weights is a model of its own; all else goes with them as it is.
"""

from __future__ import annotations

import os

from anamnesis.base.errors import AnamnesisError

INDEX_NAME = "model_index.json"
_WEIGHTS = (".safetensors", ".bin", ".ckpt", ".pt", ".pth", ".onnx", ".msgpack", ".gguf")


def is_pipeline(path: str) -> bool:
    """Tell whether a folder has the index of a pipeline, and models that it names.

    One whose index is malformed is a pipeline as well, which `components` refuses.
    """
    try:
        return bool(components(path))
    except AnamnesisError:
        return True


def components(path: str) -> list[str]:
    """Return the folders of a pipeline's models, by name; none if it is no pipeline."""
    index = os.path.join(path, INDEX_NAME)
    if not os.path.isfile(index):
        return []
    # Only here: most inputs are none.
    from pathlib import Path

    from anamnesis.base.limits import Budget, ParseLimits
    from anamnesis.checkpoint.json_file import read_json

    told = read_json(Path(index), Budget(ParseLimits()))
    names = [name for name, of in told.items() if isinstance(of, list) and name[:1] not in "_."]
    return sorted(name for name in names if _has_weights(path, name))


def _has_weights(path: str, name: str) -> bool:
    folder = os.path.join(path, name)
    if os.path.basename(name) != name or os.path.islink(folder) or not os.path.isdir(folder):
        return False
    return any(file.endswith((".safetensors", ".bin")) for file in os.listdir(folder))


def files_beside(path: str, inner: list[str]) -> tuple[list[str], list[str]]:
    """Return a pipeline's files that are in none of its models' folders, the index last."""
    from pathlib import Path

    from anamnesis.checkpoint.directory import files_of

    files = [name for name in files_of(Path(path)) if name.partition("/")[0] not in inner]
    left = [name for name in files if name.endswith(_WEIGHTS)]
    copied = [name for name in files if name not in left and name != INDEX_NAME]
    return [*copied, INDEX_NAME], left
