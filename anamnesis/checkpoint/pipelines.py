"""A pipeline as diffusers saves it: a folder for each of its components.

    model_index.json  unet/  vae/  text_encoder/  tokenizer/  scheduler/

Each component that has weights is a model of its own; all else goes with them as it is, or is
listed as left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from anamnesis.base.errors import AnamnesisError, ParseError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.base.stored import Dropped
from anamnesis.checkpoint.file_names import CONFIG_NAME, UNFINISHED

INDEX_NAME = "model_index.json"
# Of files that are read here, and of those that only other programs read.
_WEIGHTS = (".safetensors", ".sft", ".bin", ".ckpt", ".pt", ".pth", ".gguf", ".npz")
_FOREIGN = (".onnx", ".onnx_data", ".msgpack", ".h5", ".tflite", ".pb", ".engine", ".mlmodel")
_ADAPTERS = ("lora_", "lora.", ".alpha", "hada_w", "lokr_", "oft_")  # in names of their tensors


class Pipeline(NamedTuple):
    """What a pipeline's folder holds."""

    root: str
    models: tuple[str, ...]
    copied: tuple[str, ...]
    left_out: tuple[Dropped, ...]

    def opening(self, model: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return how to open the model in a folder: in the variant asked for, if it has that."""
        variant = asked.get("variant")
        if variant is None:
            return dict(asked)
        lacking = self.lacking(variant)
        if len(lacking) == len(self.models):
            raise ParseError(f"no model has weights of variant {variant!r}", source=self.root)
        return {**asked, "variant": None if os.path.basename(model) in lacking else variant}

    def lacking(self, variant: str) -> list[str]:
        from anamnesis.checkpoint.model_files import of_variant

        names = {model: os.listdir(os.path.join(self.root, model)) for model in self.models}
        return [model for model in names if not of_variant(names[model], variant)[0]]


def is_pipeline(path: str) -> bool:
    """Return whether a folder has the index of a pipeline, and models beside it."""
    # One whose index is malformed is a pipeline as well, which `components` refuses.
    try:
        return bool(components(path))
    except AnamnesisError:
        return True


def components(path: str) -> list[str]:
    """Return the folders of a pipeline's models, by name; none if it is no pipeline."""
    index = os.path.join(path, INDEX_NAME)
    if not os.path.isfile(index):
        return []
    from pathlib import Path

    from anamnesis.checkpoint.json_file import read_json

    told = read_json(Path(index), Budget(ParseLimits()))
    with os.scandir(path) as entries:
        folders = sorted(entry.name for entry in entries if _may_be_model(entry, path))
    return [name for name in folders if _is_model(os.path.join(path, name), told.get(name))]


def _may_be_model(entry: os.DirEntry[str], root: str) -> bool:
    """Return whether something is a folder; a link to one must stay below the pipeline's."""
    from pathlib import Path

    from anamnesis.checkpoint.folder import is_inside

    try:
        is_folder = entry.is_dir() and entry.name[:1] not in "_."
    except OSError:  # a link in a circle
        return False
    if not (is_folder and entry.is_symlink()):
        return is_folder
    return is_inside(entry.path, Path(root)) and not is_inside(root, Path(entry.path))


def _is_model(folder: str, named: Any) -> bool:
    from anamnesis.checkpoint.model_files import is_weights

    files = os.listdir(folder)
    is_named = isinstance(named, list) or CONFIG_NAME in files
    return (
        is_named
        and not folder.endswith(UNFINISHED)
        and any(is_weights(name) and os.path.isfile(os.path.join(folder, name)) for name in files)
    )


def read_pipeline(path: str) -> Pipeline | None:
    """Return what a pipeline's folder holds; None if it is no pipeline."""
    models = components(path)
    if not models:
        return None
    from pathlib import Path

    from anamnesis.checkpoint.folder import files_below

    found = files_below(Path(path))
    links = [left for left in found.left_out if left.name in models]  # to folders inside
    left_out = [left for left in found.left_out if left not in links and not _in(left.name, models)]
    found.left_out[:] = left_out
    beside = found.regular([name for name in found.names if not _in(name, models)])
    copied = []
    for name in beside:
        why = _why_left(os.path.join(path, name))
        if why is not None:
            found.left_out.append(Dropped(name, why))
        elif name != INDEX_NAME:
            copied.append(name)
    return Pipeline(path, tuple(models), (*copied, INDEX_NAME), tuple(found.left_out))


def is_read(name: str) -> bool:
    """Return whether a file is one of weights that are read here, by its name."""
    return name.lower().endswith(_WEIGHTS)


def is_foreign(name: str) -> bool:
    """Tell whether a file is one of weights that only other programs read, by its name."""
    return name.lower().endswith(_FOREIGN)


def _in(name: str, models: list[str]) -> bool:
    return "/" in name and name.partition("/")[0] in models


def _why_left(path: str) -> str | None:
    """Return why a file beside the models is not copied: its weights are not converted, either.

    Adapters are: they are small, and are loaded onto the pipeline as they are. So is what is empty.
    """
    if is_foreign(path):
        return "weights in another program's format"
    if not is_read(path):
        return None
    from anamnesis.formats.base import Opening
    from anamnesis.formats.registry import parse_file

    try:
        container = parse_file(path, Budget(ParseLimits()), Opening())
    except (AnamnesisError, OSError) as error:
        told = error.message if isinstance(error, AnamnesisError) else error.strerror
        return f"weights that cannot be read: {told}"
    with container.source:
        names = container.tensors
        is_small = not names or any(mark in name for name in names for mark in _ADAPTERS)
    return None if is_small else "a checkpoint in one file; convert it by itself"


def refuse_pipeline(path: str) -> None:
    """Refuse a pipeline where one model is wanted."""
    names = components(path)
    if names:
        raise ParseError(
            "is a pipeline, whose models lie in folders of their own",
            source=path,
            remedy=f"name one of them: {', '.join(names)}",
        )
