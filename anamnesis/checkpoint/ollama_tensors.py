"""A model of Ollama's MLX engine, as the folder that it was made of.

Each layer of the manifest is a blob: of safetensors, with one tensor or the experts of a layer, or
a file such as config.json, by its name. Codes are MLX's, by Ollama's names:

    NAME.weight U32    NAME.weight.scale    NAME.weight.bias    NAME.weight.global_scale

The metadata of a blob say `quant_type` and `group_size`, which MLX has in config.json.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.shard_names import numbered_names
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.directory import Directory, Found
from anamnesis.checkpoint.file_names import CONFIG_NAME, EXTENSION, MODEL_STEM
from anamnesis.checkpoint.remote import RemoteFolder
from anamnesis.formats.base import Container, Opening
from anamnesis.formats.registry import parse_file

_PARTS = {"scale": "scales", "bias": "biases", "global_scale": "global_scale"}
# What MLX's config says of each type: bits, the usual group, the mode.
_TYPES = {
    "int4": (4, 32, "affine"),
    "int8": (8, 64, "affine"),
    "nvfp4": (4, 16, "nvfp4"),
    "mxfp4": (4, 32, "mxfp4"),
    "mxfp8": (8, 32, "mxfp8"),
}


class Blobs(NamedTuple):
    """The layers of a model: tensors and files, each with its blob."""

    url: str
    tensors: list[tuple[str, Path]]
    files: dict[str, Path]


class OllamaFolder(RemoteFolder):
    """The folder of a model that lies in blobs; small files are copied to `root`."""

    def __init__(self, blobs: Blobs) -> None:
        names = numbered_names(MODEL_STEM, len(blobs.tensors), EXTENSION)
        self._layers = dict(zip(names, blobs.tensors, strict=True))
        self._blobs = blobs.files
        self.quantization: dict[str, Any] = {}
        super().__init__("", [*self._layers, *self._blobs], url=blobs.url)

    def _fetch(self, names: Iterable[str], most: int | None = None) -> None:
        for name in names:
            path, blob = self.root / name, self._blobs.get(name)
            if blob is None or path.exists():
                continue
            if most is not None and blob.stat().st_size > most:
                raise LimitExceeded("JSON_MAX_BYTES", f"{name}: {blob.stat().st_size:,} bytes")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob, path)

    def ready(self, names: Collection[str], budget: Budget) -> None:
        pass

    def parse(self, name: str, budget: Budget, opening: Opening) -> Container:
        layer, blob = self._layers[name]
        container = parse_file(blob, budget, opening)
        if container.id != "safetensors":
            container.source.close()
            raise ParseError(f"the blob of {layer!r} is no safetensors file", source=str(blob))
        component = layer.rpartition("/")[0]  # of a pipeline: transformer, vae, …
        names = {old: _called(old, container.tensors, component) for old in container.tensors}
        for old, tensor in container.tensors.items():
            if tensor.dtype.name == "U32":
                self._note(tensor, names[old], container.metadata)
        tensors = {
            names[old]: tensor._replace(name=names[old])
            for old, tensor in container.tensors.items()
        }
        return replace(container, tensors=tensors, metadata={})

    def _note(self, codes: StoredTensor, name: str, metadata: Mapping[str, Any]) -> None:
        """Keep what the metadata of a blob say of its codes, as MLX's config says it."""

        def said(what: str) -> Any:
            return metadata.get(f"{codes.name}.{what}", metadata.get(what))

        kind, group = said("quant_type"), said("group_size")
        if kind is None:
            return  # shapes alone tell, or do not
        if kind not in _TYPES:
            raise codes.malformed(f"{codes}: quant_type {kind!r:.40} is none of Ollama's")
        bits, usual, mode = _TYPES[kind]
        if group is not None and not (group.isdecimal() and len(group) < 5):
            raise codes.malformed(f"{codes}: group_size {group!r:.40} is no number")
        found = {"group_size": int(group or usual), "bits": bits, "mode": mode}
        self.quantization = self.quantization or dict(found)
        self.quantization[name.removesuffix(".weight")] = found


def _called(name: str, names: Collection[str], component: str) -> str:
    """Return a tensor's name in MLX's files."""
    whole, _, last = name.rpartition(".")
    if last in _PARTS and whole.endswith(".weight") and whole in names:
        name = f"{whole.removesuffix('weight')}{_PARTS[last]}"
    is_bare = component and not name.startswith(f"{component}/")
    return f"{component}/{name}" if is_bare else name


def read_blobs(
    blobs: Blobs, budget: Budget, opening: Opening, variant: str | None
) -> tuple[OllamaFolder, Found]:
    """Parse the headers of all blobs, and read the config."""
    folder = OllamaFolder(blobs)
    with folder.named():
        found = Directory(folder, budget, opening, variant).read()
    if folder.quantization:
        config = {**found.config, "quantization": folder.quantization}
        has_config = CONFIG_NAME in blobs.files
        found = found._replace(config=config, has_config=has_config)
    return folder, found
