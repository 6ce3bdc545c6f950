"""A directory as publishers put it on the hub: shards, and what lies beside them.

That is `model.safetensors`, else `pytorch_model.bin`, or shards with an index, which may be stale
(left over from the model before it was quantised), with config.json, the tokenizer and other files.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.shard_names import Shard, numbered_names
from anamnesis.base.stored import Dropped, StoredTensor
from anamnesis.checkpoint import file_names
from anamnesis.checkpoint.folder import Folder
from anamnesis.checkpoint.indexes import Index, Kind, read_index
from anamnesis.checkpoint.json_file import read_json, read_quant_files
from anamnesis.checkpoint.model_files import (
    first_without_twin,
    grouped,
    is_renamed_copy,
    is_usual,
    may_differ,
    of_variant,
    strays,
    variants,
)
from anamnesis.checkpoint.trainers.optimizer import is_file_of_states
from anamnesis.formats.base import Container, Opening

_SINGLE = (
    ".gguf",
    ".pth",
    ".pt",
    ".npz",
    ".ckpt",
    *file_names.ADAPTER_NAMES,
    "pytorch_model_fsdp.bin",
)  # of models that are in one file

_COPIES = {
    "torch": "a second copy of the model in PyTorch's format",
    "mistral": "a second copy of the model under Mistral's names",
    "variant": "a second copy of the model in another precision",
}
_OTHER_WEIGHTS = "other weights than the model's"
_SAME_NAMES = "weights of the same names, shapes and dtypes"
_ANOTHER_VARIANT = "another variant was asked for"


class Found(NamedTuple):
    """What a directory holds, in the fields that `Checkpoint` has."""

    shards: dict[str, Container]
    stored: dict[str, StoredTensor]
    config: dict[str, Any]
    quant_config: dict[str, Any]
    sidecars: list[str]
    left_out: list[Dropped]
    indexes: list[Index]
    has_config: bool
    variant: str | None
    notes: list[str]


class Directory:
    """One directory on its way to a checkpoint."""

    def __init__(
        self, folder: Folder, budget: Budget, opening: Opening, variant: str | None
    ) -> None:
        self.folder = folder
        self.root = folder.root
        self.budget = budget
        self.opening = opening
        self.variant = variant
        self.found = folder.files
        self.files = self.found.names
        self.left_out = self.found.left_out
        self.notes: list[str] = []

    def read(self) -> Found:
        top = [f for f in self.files if "/" not in f]
        indexes = [read_index(self.root, f, self.budget) for f in top if file_names.is_index(f)]
        groups = grouped(self.files, top, indexes)
        weights = set().union(*groups.values())
        if self.variant is not None:
            groups = self.of_variant(groups, self.variant)
        twins = variants(weights - groups["mistral"], [index.shards for index in indexes])
        twins = {} if self.variant is not None else twins
        kind = self.kind(groups, twins)
        names = groups.pop(kind)
        shards: dict[str, Container] = {}
        try:
            own = [index for index in indexes if index.kind == kind]
            self.parse_shards(names, twins, own, shards)
            names = set(shards)
            # One whose files are there, and are not the model's, is of another model.
            own = [i for i in own if i.shards & names or not i.shards <= self.files.keys()]
            stored = self.merge(shards, self.shard_of_tensors(own, shards))
            usual = is_usual(names, own)
            for index in own if usual else [i for i in indexes if i in own or i.kind != kind]:
                self.check_index(index, names, stored)
            self.check_numbering(names, {s for index in own for s in index.shards})
            self.leave_out_copies(groups, twins, stored, usual)
            has_config = file_names.CONFIG_NAME in self.files
            config = (
                read_json(self.root / file_names.CONFIG_NAME, self.budget) if has_config else {}
            )
            quant_config = self.quant_config()
        except BaseException:
            for container in shards.values():
                container.source.close()
            raise
        live = [index for index in own if not names.isdisjoint(index.shards)]
        kept = live or own[:1]  # those to rewrite
        why = "an index of files that are left out or missing"
        self.left_out += [Dropped(index.name, why) for index in indexes if index not in kept]
        rewritten = {file_names.CONFIG_NAME, *weights, *(index.name for index in indexes)}
        sidecars = self.found.regular([f for f in self.files if f not in rewritten])
        return Found(
            shards,
            stored,
            config,
            quant_config,
            sidecars,
            self.left_out,
            kept,
            has_config,
            self.variant,
            self.notes,
        )

    # --- which files are the model ----------------------------------------------------------------

    def of_variant(self, groups: dict[Kind, set[str]], variant: str) -> dict[Kind, set[str]]:
        """Return the weights of one variant, and those that have none; refuse if there are none."""
        taken: dict[Kind, set[str]] = {}
        for kind, names in groups.items():
            wanted, others = of_variant(names, variant)
            self.left_out += [Dropped(name, _ANOTHER_VARIANT) for name in sorted(others)]
            taken[kind] = names - others if wanted else set()
        if not any(taken.values()):
            raise self.error(f"has no weights of variant {variant!r}, such as model.{variant}.…")
        return taken

    def kind(self, groups: dict[Kind, set[str]], twins: Collection[str]) -> Kind:
        """Return whose weights are the model: the first that are no variant, if there are any."""
        kinds = [kind for kind, names in groups.items() if names]
        if not kinds:
            raise self.no_weights()
        return next((kind for kind in kinds if not groups[kind] <= set(twins)), kinds[0])

    def parse_shards(
        self,
        names: set[str],
        twins: dict[str, str],
        indexes: list[Index],
        shards: dict[str, Container],
    ) -> None:
        """Parse the model's files; leave out what is a variant of it, or no part of it."""
        # A variant that shares no tensor with the others is a part of the model by another name.
        stray = strays(names, indexes)
        self.folder.ready(names | twins.keys(), self.budget)
        for name in sorted(names - stray - twins.keys()):
            shards[name] = self.parse(name)
        if not (stray or twins):
            return
        stored = {name: t for shard in shards.values() for name, t in shard.tensors.items()}
        for name in sorted(stray):
            self.leave_out(name, stored, "an index names other files as the model")
        for name, variant in sorted(twins.items()):
            why = f"variant={variant!r} takes it"
            container = self.leave_out(name, stored, why, may_be_part=name in names)
            if container is not None:
                shards[name] = container

    def leave_out(
        self, name: str, stored: dict[str, StoredTensor], why: str, *, may_be_part: bool = False
    ) -> Container | None:
        """Leave out a file that is not of the model; return it if it is a part of it."""
        try:
            container = self.parse(name)
        except LimitExceeded:
            raise
        except (AnamnesisError, OSError) as error:
            self.left_out.append(Dropped(name, f"cannot be read: {error}"))
            return None
        if may_be_part and stored.keys().isdisjoint(container.tensors):
            return container
        other = first_without_twin(container, stored)
        container.source.close()
        dtypes = {t.dtype for t in container.tensors.values()} ^ {t.dtype for t in stored.values()}
        what = _OTHER_WEIGHTS if other is not None else _SAME_NAMES
        if other is None and dtypes:
            self.left_out.append(Dropped(name, f"{_COPIES['variant']}; {why}"))
        else:
            self.left_out.append(Dropped(name, f"{what}; {why}"))
            self.notes.append(f"{name} is left out, and holds {what}: {why}")
        return None

    def quant_config(self) -> dict[str, Any]:
        """Read the files beside config.json that describe a quantisation."""
        # params.json is the name of other programs' files too: one that is no object is left out.
        names = [name for name in file_names.QUANT_FILES if name in self.files]
        found = read_quant_files(self.root, names, self.budget)
        if file_names.PARAMS_NAME in self.files:
            try:
                found |= read_quant_files(self.root, [file_names.PARAMS_NAME], self.budget)
            except ParseError:
                del self.files[file_names.PARAMS_NAME]
                self.left_out.append(Dropped(file_names.PARAMS_NAME, "not a JSON object"))
        return found

    def no_weights(self) -> ParseError:
        ends = (file_names.EXTENSION, f"/{file_names.DCP_METADATA_NAME}", file_names.ZERO_ENDING)
        folders = [f.rpartition("/")[0] for f in self.files if "/" in f and f.endswith(ends)]
        others = [f for f in self.files if f.lower().endswith(_SINGLE)]
        others.sort(key=is_file_of_states)
        which = None
        for gone in (left for left in self.left_out if left.name.endswith(file_names.EXTENSION)):
            return self.error(f"{gone.name} is {gone.reason}; put the file itself there")
        if any(f.endswith(file_names.DCP_EXTENSION) and "/" not in f for f in self.files):
            which = f"{file_names.DCP_METADATA_NAME} is missing, which is written last"
            if any(f.endswith(file_names.DCP_METADATA_NAME) for f in self.files):
                which = "save it with collectives, so that one .metadata is of all ranks"
        elif folders:
            which = f"pass one of its folders, such as {min(folders, key=lambda f: 'optim' in f)}"
        elif others:
            kind = "GGUF " if others[0].lower().endswith(".gguf") else ""
            which = f"name one of its {kind}files, such as {others[0]}"
        return ParseError(
            "no .safetensors file in this directory", source=str(self.root), remedy=which
        )

    def leave_out_copies(
        self,
        groups: dict[Kind, set[str]],
        twins: Collection[str],
        stored: dict[str, StoredTensor],
        is_usual: bool,
    ) -> None:
        """Leave out files that hold the model again; refuse others that hold weights."""
        # One that cannot be read is left out where transformers, too, would take the others.
        for kind, names in groups.items():
            copies: dict[str, Container] = {}
            self.folder.ready(names - set(twins), self.budget)
            try:
                for name in sorted(names - set(twins)):
                    try:
                        copies[name] = self.parse(name)
                    except LimitExceeded:
                        raise
                    except (AnamnesisError, OSError) as error:
                        if not is_usual:
                            raise
                        self.left_out.append(Dropped(name, f"cannot be read: {error}"))
                self.compare(kind, copies, stored)
            finally:
                for container in copies.values():
                    container.source.close()
            self.left_out += [Dropped(name, _COPIES[kind]) for name in copies]

    def compare(
        self, kind: Kind, copies: dict[str, Container], stored: dict[str, StoredTensor]
    ) -> None:
        alone = {name: first_without_twin(copy, stored) for name, copy in copies.items()}
        if kind == "mistral" and copies and is_renamed_copy(copies.values(), stored):
            return
        for name, tensor in alone.items():
            if tensor is not None and may_differ(name):
                self.notes.append(f"{name} is left out, and holds {_OTHER_WEIGHTS}")
            elif tensor is not None:
                raise self.error(
                    f"{name} is not a second copy of the model: the other weights lack {tensor!r}"
                    " in its shape; move away what is not to be converted"
                )

    # --- shards and indexes ----------------------------------------------------------------------

    def parse(self, name: str) -> Container:
        return self.folder.parse(name, self.budget, self.opening)

    def error(self, message: str) -> ParseError:
        return ParseError(message, source=str(self.root))

    def shard_of_tensors(
        self, indexes: list[Index], shards: dict[str, Container]
    ) -> dict[str, str]:
        if len(indexes) == 1:
            return indexes[0].weight_map
        told: dict[str, str] = {}
        for index in indexes:
            for tensor, shard in index.weight_map.items():
                if shard in shards and told.setdefault(tensor, shard) != shard:
                    raise self.error(
                        f"the indexes name two shards for tensor {tensor!r}: {told[tensor]} and"
                        f" {shard}"
                    )
        return told

    def merge(self, shards: dict[str, Container], index: dict[str, str]) -> dict[str, StoredTensor]:
        """Join the shards' tensors; where two have the same name, the index says which counts."""
        stored: dict[str, StoredTensor] = {}
        for container in shards.values():
            stored.update(container.tensors)
        if len(stored) == sum(len(container.tensors) for container in shards.values()):
            return stored
        holder: dict[str, str] = {}
        for shard, container in shards.items():
            for name, tensor in container.tensors.items():
                first = holder.get(name)
                if first is not None and index.get(name) not in (first, shard):
                    raise ParseError(
                        f"tensor {name!r} is in both {first} and {shard}; no index says which to"
                        " use: parse one of the files, or move away what is not to be converted",
                        source=str(self.root),
                    )
                if first is not None:
                    loser = first if index[name] == shard else shard
                    self.left_out.append(
                        Dropped(f"{name} in {loser}", "the index names another shard for it")
                    )
                if first is None or index[name] == shard:
                    stored[name] = tensor
                    holder[name] = shard
        return stored

    def check_index(self, index: Index, names: set[str], stored: dict[str, StoredTensor]) -> None:
        """Refuse a directory that misses a shard of an index."""
        # An index whose tensors are all in other shards is merely stale.
        lost = index.lost(stored)
        missing = [tensor for tensor in lost if index.weight_map[tensor] not in self.files]
        is_alien = names.isdisjoint(index.shards)
        # exllamav2 copies the index of its source, and takes fused layers apart.
        if is_alien and any(tensor.endswith(".q_weight") for tensor in stored):
            return
        if not missing:
            if lost and not is_alien:
                raise ParseError(
                    f"{index.weight_map[lost[0]]} has no tensor {lost[0]!r}, which {index.name}"
                    f" says it holds; {_tensors_are(len(lost))} missing",
                    source=str(self.root),
                    remedy="get the file anew, or remove the index if it is stale",
                )
            return
        shard = index.weight_map[missing[0]]
        alien = ""
        if is_alien:
            alien = f" (none of the shards in {index.name} is here; remove it if it is stale)"
        raise self.error(
            f"{shard} is missing: the index says that it holds {missing[0]!r};"
            f" {_tensors_are(len(missing))} missing in all{alien}"
        )

    def check_numbering(self, names: set[str], indexed: set[str]) -> None:
        """Refuse `model-00001-of-00003.safetensors` without its fellows, unless it is indexed."""
        numbered = map(Shard.read, sorted(names - indexed))
        for shard in {found._replace(number=1): None for found in numbered if found}:
            if shard.of != "-of-" or shard.ending not in (".safetensors", ".bin"):
                continue
            for name in numbered_names(shard.stem, shard.total, shard.ending):
                if name not in names:
                    raise ParseError(
                        f"{name} is missing; others of the {shard.total:,} are there",
                        source=str(self.root),
                    )


def _tensors_are(n: int) -> str:
    return "1 tensor is" if n == 1 else f"{n:,} tensors are"
