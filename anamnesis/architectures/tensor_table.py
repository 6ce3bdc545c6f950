"""The tensors of GGUFs: their shapes by keys, and the layers that have them.

llama.cpp reads a file so, and both directions are checked by it. Rows of `arch` name the tensors,
and say what differs; tensor_table.json has what all have in common.
"""

from __future__ import annotations

from collections.abc import Mapping

from anamnesis.base.plain_json import json_table

HEADS = "attention.head_count"
VOCABULARY, TYPES = "vocab", "types"  # which no key says

_TABLE = json_table(__file__)
# What stands for the value of a key behind the architecture's name.
KEYS: Mapping[str, str] = _TABLE["keys"]
# By a tensor's name without `blk.N.` and `.weight`, outermost first; `?` is any number. A bias has
# the shape of its weight without the columns.
SHAPES: Mapping[str, str] = _TABLE["shapes"]
# Which layers have a tensor, or whether the file has it at all; all by default. Those with `?` may
# have it.
GROUPS = {name: group for group, names in _TABLE["groups"].items() for name in names.split()}
# The keys that say which layers are of a group, for errors to name.
SWITCHED: Mapping[str, str] = _TABLE["switched"]
# Keys whose numbers are at most those of others.
AT_MOST: Mapping[str, str] = _TABLE["at_most"]
