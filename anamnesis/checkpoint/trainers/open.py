"""Which trainer has left a folder: its files as one model, and what goes along."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.printable import numbered
from anamnesis.base.stored import Dropped
from anamnesis.checkpoint.file_names import CONFIG_NAME, DCP_EXTENSION, DCP_METADATA_NAME, is_index
from anamnesis.checkpoint.json_file import read_json
from anamnesis.checkpoint.trainers.dcp import Dcp
from anamnesis.checkpoint.trainers.ranks import HF_NAMED, find_ranks, join_hf_shards, join_ranks
from anamnesis.checkpoint.trainers.zero import Zero, find_zero
from anamnesis.formats.base import Container, Opening
from anamnesis.formats.registry import parse_file

_CONFIG_FOLDERS = (os.curdir, "huggingface")  # the latter is verl's
_UNTOLD = "none of them says whether there were more"
_OF_TORCH, _UNREAD = (DCP_EXTENSION, ".pt", ".pth", ".bin"), "not part of this checkpoint"


def read_trainers(
    root: Path, budget: Budget, opening: Opening, select: str | None
) -> dict[str, Any] | None:
    """Return a trainer's folder in the fields that `Checkpoint` has; None if it is none."""
    names = set(os.listdir(root))
    left_out: list[Dropped] = []
    notes: list[str] = []
    with ExitStack() as opened:  # closed if the files make no model
        parsed = partial(_parsed, budget=budget, opened=opened, opening=opening)
        if DCP_METADATA_NAME in names:
            shards, left_out = Dcp(root, budget, opened).read(select)
            stored = next(iter(shards.values())).tensors
        elif (of_zero := find_zero(root)) is not None:
            # Classes of DeepSpeed's make no tensors.
            shards = parsed(*of_zero, opening=opening._replace(allow_foreign=True))
            stored = Zero(of_zero[0], shards).tensors()
        elif (ranks := find_ranks(names, str(root))) is not None:
            of_ranks, left_out = ranks
            shards = parsed(root, of_ranks)
            stored = join_ranks(list(shards.values()), left_out, select)
        elif hf_shards := sorted(filter(HF_NAMED.fullmatch, names)):
            shards = parsed(root, hf_shards)
            stored = join_hf_shards(shards, budget)
            n_ranks = len({name.split("-")[1] for name in hf_shards})
            notes = [f"the files are from {numbered(n_ranks, 'rank')}; {_UNTOLD}"]
        else:
            return None
        opened.pop_all()
    told = {*shards, *(dropped.name for dropped in left_out)}
    others = sorted(name for name in names - told if name.endswith(_OF_TORCH))
    left_out += [Dropped(name, _UNREAD) for name in others]
    files = {"root": root, "shards": shards, "stored": stored}
    found = {**files, "left_out": left_out, "notes": notes}
    folder = next((root / n for n in _CONFIG_FOLDERS if (root / n / CONFIG_NAME).is_file()), None)
    return found if folder is None else found | beside(str(folder), budget)


def _parsed(
    root: Path, names: list[str], budget: Budget, opened: ExitStack, opening: Opening
) -> dict[str, Container]:
    shards = {}
    for name in names:
        shards[name] = parse_file(root / name, budget, opening)
        opened.callback(shards[name].source.close)
    return shards


_ENDINGS = (".json", ".txt", ".model", ".jinja", ".md")


def beside(folder: str, budget: Budget) -> dict[str, Any]:
    """Return a folder's config and other files, in the fields that `Checkpoint` has."""
    root = Path(folder)
    if not (root / CONFIG_NAME).is_file():
        raise ParseError(f"has no {CONFIG_NAME}", source=folder)
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_file())
    others = [name for name in names if name.endswith(_ENDINGS) and not is_index(name)]
    return {
        "root": root,
        "config": read_json(root / CONFIG_NAME, budget),
        "has_config": True,
        "sidecars": [name for name in others if name != CONFIG_NAME],
    }
