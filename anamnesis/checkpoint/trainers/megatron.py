"""Megatron's tensors under Hugging Face's names, as Megatron-Bridge maps them.

    decoder.layers.mlp.linear_fc2.weight       of all layers [layers, out, in], or
    decoder.layers.3.mlp.linear_fc2.weight     of one [out, in]
    …mlp.experts.experts.linear_fc2.weight     of all experts [layers, experts, out, in], or
    …mlp.experts.experts.7.linear_fc2.weight   of one

The rows of linear_qkv are those of each group: of its query heads, its key and its value. Those of
linear_fc1 are the gate's and then the up projection's; apart they are weight_w and weight_v.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import Dropped, StoredTensor
from anamnesis.checkpoint.file_names import CONFIG_NAME
from anamnesis.schemes.libraries.tied_heads import says_tied
from anamnesis.sources.gathered import RowOrder

Renamed = tuple[dict[str, StoredTensor], list[Dropped]]
Numbers = dict[str, int]  # of a layer and an expert

_MOST_PADDING = 1 << 14  # rows: Megatron pads to a multiple of 128 for each rank
_PADDING = "pads the vocabulary"
_HEAD = "lm_head.weight"
_NUMBER = re.compile(
    r"(?<=^decoder\.layers\.)(?P<layer>[0-9]{1,6})\."
    r"|(?<=\.experts\.experts\.)(?P<expert>[0-9]{1,6})\."
)
_LAYER = ".decoder.layers."
_OF_WORDS = ("embedding.word_embeddings.weight", "output_layer.weight")
_TABLE = json_table(__file__)
# What a tensor is called in any layer and for any expert, and which ones it is at Hugging Face.
_NAMES = {own: tuple(names) for own, names in _TABLE["names"].items()}


def renamed(
    stored: Mapping[str, StoredTensor], config: Mapping[str, Any], select: str | None
) -> Renamed:
    """Return Megatron's tensors by Hugging Face's names if a map is known, and what is left out."""
    if config.get("model_type") not in _TABLE["types"]:
        return dict(stored), []
    for name in stored:
        below = name.partition("decoder.")[0] if _LAYER in f".{name}" else ""
        if _NUMBER.sub("", name.removeprefix(below)) not in _NAMES:
            continue
        if below:
            below = f"{select}.{below}" if select else below
            raise ParseError(
                "Megatron's tensors are under a prefix",
                source=stored[name].source.name,
                remedy=f"select={below[:-1]!r} takes them",
            )
        return _Renamed(config).all(stored)
    return dict(stored), []


class _Renamed:
    """Tensors of Megatron's on their way to Hugging Face's names, by sizes of config.json."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.n_layers = self._number("num_hidden_layers")
        self.n_experts = self._number("num_experts", config.get("num_local_experts") or 1)
        self.n_heads = self._number("num_attention_heads")
        self.n_groups = self._number("num_key_value_heads", self.n_heads)
        if self.n_heads % self.n_groups:
            what = f"{self.n_heads:,} heads do not divide into {self.n_groups:,} groups"
            raise ParseError(what, source=CONFIG_NAME)
        self.head_dim = self._number("head_dim", self._number("hidden_size") // self.n_heads)

    def _number(self, key: str, default: Any = None) -> int:
        value = self.config.get(key)
        value = default if value is None else value
        if type(value) is int and value > 0:
            return value
        raise ParseError(f"{key} is {value!r}, not a positive integer", source=CONFIG_NAME)

    def all(self, stored: Mapping[str, StoredTensor]) -> Renamed:
        """Return all tensors under Hugging Face names, and the rows that are left out."""
        made, left, layers = dict[str, StoredTensor](), list[Dropped](), set[int]()
        for name, tensor in stored.items():
            names = _NAMES.get(_NUMBER.sub("", name))
            if names is None:
                raise UnsupportedError(
                    f"{tensor.source.name}: no Hugging Face name is known for {name!r}",
                    remedy="without a config, all tensors keep Megatron's names",
                )
            if name in _OF_WORDS:
                tensor = self._of_words(tensor, left)
            for part, at in self._singles(tensor, names[0]):
                if at:
                    layers.add(at["layer"])
                for new, piece in zip(names, self._apart(part, len(names)), strict=True):
                    called = new.format_map(at)
                    if called in made:
                        raise tensor.malformed(f"{name!r} and another tensor become {called!r}")
                    made[called] = piece._replace(name=called)
        n, highest = len(layers), max(layers, default=-1) + 1
        if not n == highest == self.n_layers:
            said = f"num_hidden_layers is {self.n_layers:,}"
            raise ParseError(f"{said}, but {n:,} of {highest:,} are there", source=CONFIG_NAME)
        is_tied = says_tied(self.config) is True
        if is_tied == (_HEAD in made):
            has = f"the checkpoint has {'a' if is_tied else 'no'} head of its own"
            raise ParseError(f"tie_word_embeddings is {is_tied}, but {has}", source=CONFIG_NAME)
        return made, left

    def _of_words(self, tensor: StoredTensor, left: list[Dropped]) -> StoredTensor:
        """Return the rows of the vocabulary, without those that pad it."""
        n, rows = self._number("vocab_size"), tensor.shape[0] if tensor.shape else 0
        if not n <= rows < n + _MOST_PADDING:
            raise tensor.malformed(f"{tensor} has {rows:,} rows, but vocab_size is {n:,}")
        if rows > n:
            left.append(Dropped(f"{tensor.name} from row {n:,} on", _PADDING))
        return _rows(tensor, 0, n)

    def _singles(self, tensor: StoredTensor, like: str) -> list[tuple[StoredTensor, Numbers]]:
        """Return the tensor of each layer and expert, and their numbers."""
        found = {str(one.lastgroup): int(one[0][:-1]) for one in _NUMBER.finditer(tensor.name)}
        singles = [(tensor, found)]
        for hole, n in (("layer", self.n_layers), ("expert", self.n_experts)):
            if hole in found or f"{{{hole}}}" not in like:
                continue
            if singles[0][0].shape[:1] != (n,) or not tensor.n_bytes:
                raise tensor.malformed(f"{tensor} is not a stack of {n:,} {hole}s ({CONFIG_NAME})")
            apart = [(_rows(one, i), {**at, hole: i}) for one, at in singles for i in range(n)]
            singles = [(one._replace(shape=one.shape[1:]), at) for one, at in apart]
        return singles

    def _apart(self, tensor: StoredTensor, n: int) -> Iterator[StoredTensor]:
        """Yield the n tensors whose rows lie one behind the other, in each group if it has any."""
        rows = tensor.shape[0] if tensor.shape and tensor.n_bytes else 0
        sizes, n_groups, unit = (1,) * n, 1, rows // n
        if n == len("qkv"):
            sizes = (self.n_heads // self.n_groups, 1, 1)
            n_groups, unit = self.n_groups, self.head_dim
        period = sum(sizes) * unit
        if not rows or rows != n_groups * period:
            raise tensor.malformed(
                f"{tensor} does not split into {n} tensors of the sizes in {CONFIG_NAME}"
            )
        for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
            order = RowOrder.of(range(first * unit, (first + size) * unit), period, n_groups)
            made = order.taken([tensor], tensor.n_bytes // rows)
            yield made._replace(shape=(order.n_rows, *tensor.shape[1:]))


def _rows(tensor: StoredTensor, first: int, n: int = 1) -> StoredTensor:
    """Return some that follow each other along the first dimension."""
    one, shape = tensor.n_bytes // tensor.shape[0], (n, *tensor.shape[1:])
    return tensor._replace(shape=shape, n_bytes=n * one, offset=tensor.offset + first * one)
