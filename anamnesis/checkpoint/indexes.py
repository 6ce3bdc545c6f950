"""Indexes of shards, `model.safetensors.index.json` and the like."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.file_names import SAFETENSORS_INDEX, TORCH_INDEX
from anamnesis.checkpoint.json_file import read_json

_MISTRAL = "consolidated"

Kind = str  # whose weights: "safetensors", "torch", or "mistral" for those under Mistral's names

# What a quantisation makes of a tensor that an index, left over from before, still names.
_CODES = (
    *("qweight", "weight_packed", "q_weight", "weight._data", "W_q", "codes", "indices"),
    *("trellis", "weight_fp4"),
)


class Index(NamedTuple):
    """An index and the shards that it names."""

    name: str
    weight_map: dict[str, str]
    shards: frozenset[str]

    @property
    def kind(self) -> Kind:
        """Whose weights it is of, by its name."""
        if self.name.startswith(_MISTRAL):
            return "mistral"
        return "torch" if TORCH_INDEX in self.name else "safetensors"

    @property
    def stem(self) -> str:
        """What the names of its shards begin with once they are safetensors: `model`."""
        return self.new_name.partition(SAFETENSORS_INDEX)[0]

    @property
    def new_name(self) -> str:
        """What it is called once its shards are safetensors."""
        if SAFETENSORS_INDEX in self.name:
            return self.name
        return self.name.replace(TORCH_INDEX, SAFETENSORS_INDEX, 1).removeprefix("pytorch_")

    def lost(self, stored: Mapping[str, object]) -> list[str]:
        """Return listed tensors without stored values or codes; buffers may be missing."""
        lost = []
        for tensor in sorted(self.weight_map.keys() - stored.keys()):
            module, dot, last = tensor.rpartition(".")
            codes = [f"{tensor}_blocks", f"{module}{dot}_{last}_qdata"]
            codes += [f"{module}{dot}{code}" for code in _CODES if last == "weight"]
            if not (is_buffer(tensor) or any(code in stored for code in codes)):
                lost.append(tensor)
        return lost


def is_buffer(tensor: str) -> bool:
    """Return whether a tensor is one that only older files have; newer code computes it."""
    return tensor.rpartition(".")[2] in ("position_ids", "inv_freq", "masked_bias")


def read_index(root: Path, name: str, budget: Budget) -> Index:
    """Read an index."""
    path = root / name
    mapping = read_json(path, budget, once=True).get("weight_map")
    if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
        raise ParseError("weight_map must map tensors to shards", source=str(path))
    budget.items(len(mapping), "the index")
    plain = {shard: posixpath.normpath(shard) for shard in set(mapping.values())}
    for shard in plain:
        if leads_out(shard):
            raise ParseError(f"shard {shard!r} leads out of the directory", source=str(path))
    if any(shard != told for told, shard in plain.items()):
        mapping = {tensor: plain[told] for tensor, told in mapping.items()}
    return Index(name, mapping, frozenset(plain.values()))


def leads_out(name: str) -> bool:
    """Tell whether a name is of no file below a folder, on some system or other."""
    return (
        not name
        or name.startswith("/")
        or not {"\\", ":", "\0"}.isdisjoint(name)
        or ".." in name.split("/")
    )
