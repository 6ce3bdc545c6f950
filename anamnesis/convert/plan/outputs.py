"""The two kinds of output, as plans: one file, or a directory.

No file is touched here. What a plan says of the disk is seen to in `destination`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from anamnesis.base.errors import OutputError, ParseError, UnsupportedError
from anamnesis.base.shard_names import numbered_names
from anamnesis.base.stored import Dropped
from anamnesis.checkpoint import file_names
from anamnesis.checkpoint.hf_config import describes_quantization, edited_config
from anamnesis.checkpoint.metadata import carried_metadata
from anamnesis.checkpoint.model_files import without_variant
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.decide.decided import Decided, account_of
from anamnesis.convert.decide.keeping import check_kept
from anamnesis.convert.plan.files import (
    DEFAULT_SHARD_SIZE,
    DirectoryOutput,
    Named,
    OutputFile,
    OutputWeight,
    shard_names,
    split_by_size,
)
from anamnesis.convert.plan.plan import Plan
from anamnesis.formats.base import CARRIED_HEADER, Container
from anamnesis.schemes.detect.config_facts import GPTQ_METADATA_PREFIX, SETTINGS_KEY
from anamnesis.schemes.libraries.comfy_metadata import COMFY_METADATA_KEY
from anamnesis.schemes.libraries.torchao_metadata import describes_tensor

_NAMELESS = f"{file_names.MODEL_STEM}.gguf"  # parts of a plan that has no output yet
_WEIGHT = ".weight"


def make_plan(decided: Decided) -> Plan:
    """Plan the output of a model."""
    checkpoint, request = decided.seen.checkpoint, decided.request
    root = checkpoint.root
    if root is not None and not decided.fates and not decided.problems:
        raise ParseError(
            "its files hold no tensors, so there is nothing to write", source=str(root)
        )
    weights = [OutputWeight(piece) for piece in decided.pieces]
    form = request.form
    if not form.becomes_file(directory=root is not None):
        return _Directory(decided, weights).plan()
    beside = [*checkpoint.sidecars, *([file_names.CONFIG_NAME] if checkpoint.has_config else [])]
    beside = beside if root is not None else []
    left = [Dropped(file, "one file has no room for it") for file in beside]
    metadata = {**_metadata(checkpoint.shards.values(), decided), **_settings(decided)}
    check_kept(decided, {}, metadata)
    if request.split_max_size is not None or (request.mix is not None and request.mix.keep_split):
        files = _parts(decided, weights, metadata)
    else:
        files = [OutputFile(form.name, weights, request.writer, metadata)]
    return Plan(files, decided, account_of(decided, left))


def _parts(
    decided: Decided, weights: list[OutputWeight], metadata: Mapping[str, Any]
) -> list[OutputFile]:
    """Return the parts of a GGUF model: those of the input, or of a size; one is as if uncut."""
    from anamnesis.formats.gguf.split import split, split_as

    request = decided.request
    name = request.form.name or _NAMELESS
    if request.mix is not None and request.mix.keep_split:
        shards = decided.seen.checkpoint.shards.values()
        places = {id(container.source.base): i for i, container in enumerate(shards)}
        of_part = Counter(places[id(made.weight.parts[0].source.base)] for made in weights)
        n_tensors = sum([len(made.parts) for made in weights])
        parts = split_as(name, [of_part[i] for i in range(len(places))], n_tensors, metadata)
    else:
        sizes = [[part.n_bytes for part in weight.parts] for weight in weights]
        parts = split(name, sizes, metadata, request.split_max_size or 0)
    return [
        OutputFile(part.name, weights[part.start : part.stop], request.writer, part.metadata)
        for part in parts
    ]


class _Directory:
    """Shards, their index, and everything that lay beside the source's."""

    def __init__(self, decided: Decided, weights: list[OutputWeight]) -> None:
        self.decided = decided
        self.weights = weights
        self.checkpoint = decided.seen.checkpoint
        self.request = decided.request
        self.root = self.checkpoint.root  # None of one file, which has nothing beside it
        self.stem = _stem(self.checkpoint)
        sidecars = self.checkpoint.sidecars
        self.describing = [name for name in sidecars if name in file_names.QUANT_FILES]
        self.shard_of: dict[str, str] = {}  # the source's, by the name of the output's

    def plan(self) -> Plan:
        limit, decided = self.request.max_shard_size, self.decided
        if limit is None and self.checkpoint.is_joined:
            limit = DEFAULT_SHARD_SIZE
        files = self._same_shards() if limit is None else self._new_shards(limit)
        gone = self.describing if decided.dense else []
        directory = DirectoryOutput(
            None if self.checkpoint.made else self.root,
            sidecars=[name for name in self.checkpoint.sidecars if name not in gone],
        )
        if file_names.PARAMS_NAME in decided.declaration.config_names:
            if not self.checkpoint.is_mistral:
                has = "config.json" if self.checkpoint.has_config else "no params.json"
                raise UnsupportedError(
                    "Mistral's layout is for models that Mistral's params.json describes, and this"
                    f" one has {has}; fp8-tensor-ct has the same codes for config.json"
                )
            directory.params_sections = decided.declaration.sections()
        if decided.dense and file_names.PARAMS_NAME in directory.sidecars:
            directory.params = file_names.PARAMS_NAME
        directory.indexes = self._indexes(files)
        if self.checkpoint.has_config:
            is_recast = any(one.weight.own_dtype is None for one in self.weights)
            directory.config, directory.config_edits = edited_config(
                self.checkpoint.config,
                self.request.dtype if is_recast or self.request.cast_all else None,
                dense=decided.dense,
                quantization=decided.declaration.sections(),
                decoded=self._no_longer_quantised(),
            )
            directory.described = {
                name: json.dumps(told, indent=4).encode()
                for name, told in decided.declaration.files().items()
            }
        directory.described |= self.checkpoint.made
        self._check_kept(directory)
        directory.named = self._named(files, directory)
        left = [Dropped(name, "description of the quantisation") for name in gone]
        return Plan(files, decided, account_of(decided, left, self._still_describing()), directory)

    def _no_longer_quantised(self) -> list[str]:
        """Return the modules that are decoded, where others stay quantised as config.json says."""
        decided = self.decided
        if not decided.kept.codes:
            return []
        modules = [_module(made.name) for made in decided.decoded]
        kept = {_module(self.request.renamed(name)) for name in decided.kept.codes}
        config = self.checkpoint.config
        if decided.encoded and (self.describing or describes_quantization(config)):
            raise UnsupportedError(
                f"one config.json cannot describe {decided.encoded[0]!r} and what is kept as it is"
                " stored; write one of them, or one file instead of a directory"
            )
        if modules and (self.describing or not kept.isdisjoint(modules)):
            what = f"{self.describing[0]} cannot say" if self.describing else "no config.json says"
            raise UnsupportedError(
                f"{what} that {decided.decoded[0].name!r} is not quantised, while"
                f" {next(iter(decided.kept.codes))!r} is; keep all weights as they are stored, or"
                " none, or write one file"
            )
        return list(dict.fromkeys(modules))

    def _check_kept(self, directory: DirectoryOutput) -> None:
        """Refuse codes that are kept, and would be read as something else."""
        decided = self.decided
        if not (decided.decoded or decided.encoded or self.request.rename):
            return  # all is as it was
        told = {} if directory.config is None else json.loads(directory.config)
        containers = self.checkpoint.shards.values()
        config = {**self.checkpoint.quant_config, **told}
        check_kept(decided, config, self._metadata(containers))

    def _still_describing(self) -> list[str]:
        """Return the files that go on describing the quantisation, if some of it is left."""
        if self.decided.dense:
            return []
        own: dict[str, dict[str, Any]] = {
            file_names.CONFIG_NAME: self.checkpoint.config,
            file_names.PARAMS_NAME: self.checkpoint.quant_config.get(file_names.PARAMS_NAME, {}),
        }
        named = [name for name, told in own.items() if describes_quantization(told)]
        return [*named, *self.describing]

    # --- shards --------------------------------------------------------------------------------

    def _same_shards(self) -> list[OutputFile]:
        """Keep each weight in the shard that has its codes; a shard of scales alone goes."""
        by_source: dict[int, list[OutputWeight]] = {}
        for weight in self.weights:
            by_source.setdefault(id(weight.weight.parts[0].source.base), []).append(weight)
        shards = {
            name: container
            for name, container in self.checkpoint.shards.items()
            if id(container.source.base) in by_source
        }
        names = shard_names(shards, self.checkpoint.variant)
        self.shard_of = {new: old for old, new in names.items()}
        writer, files = self.request.writer, []
        for name, c in shards.items():
            weights = by_source[id(c.source.base)]
            files.append(OutputFile(names[name], weights, writer, self._metadata([c])))
        return files

    def _new_shards(self, limit: int) -> list[OutputFile]:
        if len(self.checkpoint.indexes) > 1:
            one, other = (index.name for index in self.checkpoint.indexes[:2])
            raise OutputError(
                f"{self.root}: has two indexes, {one} and {other}, so that its weights are not cut"
                " anew",
                remedy="leave max_shard_size=... out",
            )
        metadata = self._metadata(self.checkpoint.shards.values())
        pieces = split_by_size(self.weights, limit)
        n = len(pieces)
        names = [self.stem + file_names.EXTENSION]
        if n > 1:
            names = numbered_names(self.stem, n, file_names.EXTENSION)
        rest = {key: value for key, value in metadata.items() if key != CARRIED_HEADER}
        return [
            OutputFile(name, piece, self.request.writer, rest if i else metadata)
            for i, (name, piece) in enumerate(zip(names, pieces, strict=True))
        ]

    def _metadata(self, containers: Iterable[Container]) -> dict[str, Any]:
        """Merge the metadata of a shard; transformers refuses one that does not say its format."""
        told = {"format": "pt", **_metadata(containers, self.decided)}
        return told if self.checkpoint.has_config else {**told, **_settings(self.decided)}

    # --- what goes with them -------------------------------------------------------------------

    def _indexes(self, files: list[OutputFile]) -> list[tuple[str, list[OutputFile]]]:
        """Return the indexes, and the files each names; the first names what no other does."""
        old = self.checkpoint.indexes
        if not old:
            if [file.name for file in files] == [self.stem + file_names.EXTENSION]:
                return []
            return [(f"{self.stem}{file_names.EXTENSION}.index.json", files)]
        named = []
        for index in old:
            shards = index.shards
            named.append([file for file in files if self.shard_of.get(file.name) in shards])
        elsewhere = {id(file) for group in named[1:] for file in group}
        own = {id(file) for file in named[0]}
        named[0] = [file for file in files if id(file) in own or id(file) not in elsewhere]
        names = [without_variant(index.new_name, self.checkpoint.variant) for index in old]
        return list(zip(names, named, strict=True))

    def _named(self, files: list[OutputFile], directory: DirectoryOutput) -> list[Named]:
        names = [Named(f.name, self.shard_of.get(f.name, "a shard")) for f in files]
        names += [Named(name, name) for name in directory.sidecars]
        old = [index.name for index in self.checkpoint.indexes] or ["the index"]
        names += [Named(new, of) for (new, _), of in zip(directory.indexes, old, strict=False)]
        names += [Named(name, "the output's config") for name in directory.described]
        if self.checkpoint.has_config:
            names.append(Named(file_names.CONFIG_NAME, file_names.CONFIG_NAME))
        return names


def _stem(checkpoint: Checkpoint) -> str:
    """Return what the loaders look for that know this model: `model`, or a library's own."""
    if checkpoint.indexes:
        return without_variant(checkpoint.indexes[0].stem, checkpoint.variant)
    names = [PurePosixPath(shard).name for shard in checkpoint.shards]
    if checkpoint.is_mistral and all(name.startswith(file_names.MISTRAL_STEM) for name in names):
        return file_names.MISTRAL_STEM
    if set(checkpoint.shards) <= set(file_names.ADAPTER_NAMES):
        return file_names.ADAPTER_STEM
    is_diffusers = all(name.startswith(file_names.DIFFUSERS_STEM) for name in names)
    return file_names.DIFFUSERS_STEM if is_diffusers else file_names.MODEL_STEM


def _module(name: str) -> str:
    """Return the module of a weight, or of a stack of experts."""
    return name.removesuffix(_WEIGHT) if name.endswith(_WEIGHT) else name.rpartition(".")[0]


def _metadata(containers: Iterable[Container], decided: Decided) -> dict[str, Any]:
    """Return what a file says of itself: what the source does, as far as it has a place."""
    request, kind = decided.request, decided.request.form.container
    if kind == "gguf":
        from anamnesis.formats.gguf.values import check_own, merged, typed

        check_own(request.metadata)
        # Typed, which only metadata of the same format are.
        told = [c.metadata for c in containers if c.id == kind]
        values = dict(merged(*told, request.metadata))
        if decided.mix is not None:
            gone, new = decided.mix.header
            values = {key: value for key, value in values.items() if key not in gone}
            values |= {key: typed(value) for key, value in new.items()}
        return values
    if kind != "safetensors":
        return dict(request.metadata)
    return {**_carried(containers, decided, request.metadata), **request.metadata}


def _settings(decided: Decided) -> dict[str, str]:
    """Return what a header says of an encoding, where there is no config that would."""
    settings = decided.declaration.settings()
    return {SETTINGS_KEY: json.dumps(settings)} if settings else {}


def _carried(
    containers: Iterable[Container], decided: Decided, said: Mapping[str, Any]
) -> dict[str, str]:
    """Merge `__metadata__`, without what describes codes that there are none of any more."""
    merged: dict[str, str] = {}
    for container in containers:
        merged.update(carried_metadata(container, said))
    if decided.dense:
        return {
            key: text
            for key, text in merged.items()
            if key not in (COMFY_METADATA_KEY, SETTINGS_KEY)
            and not key.startswith(GPTQ_METADATA_PREFIX)
            and not describes_tensor(key, text)
        }
    decoded = {made.weight.name: made.name for made in decided.decoded}
    return decided.kept.metadata(merged, decoded, decided.encoded)
