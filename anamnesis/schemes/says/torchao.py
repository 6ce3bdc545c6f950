"""What torchao calls the parts of a weight, and what its files say of one.

Of `layers.0.weight` its `flatten_tensor_state_dict` makes `layers.0._weight_qdata`, codes, with
`layers.0._weight_scale` and others beside; and an entry of the metadata, under the weight's own
name, of JSON: `{"_type": "Int8Tensor", "_data": {"block_size": [1, 64], ...}, ...}`. A pickle of
its tensors is read as the same. There are files without these entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from anamnesis.base.stored import StoredTensor
    from anamnesis.schemes.claim.facts import QuantFacts
    from anamnesis.schemes.claim.ledger import Ledger

__all__ = ["Parts", "describes_tensor", "metadata_without", "parts_of", "told_parts"]

_START = '{"_type": '
_NAMES_KEY = "tensor_names"
_PLAIN = '{"_type": "Tensor"}'  # what its files say of a tensor that is none of its own
_CODES = "_qdata"

# Scales of activations, with which only a runtime that quantises those does anything.
_ACTIVATIONS = (
    *("act_quant_scale", "act_quant_zero_point", "act_per_tensor_scale"),
    "output_act_quant_scale",
)
# What inputs are multiplied by, and so a part of the weight.
_INPUT_SCALE = "act_pre_scale"


class Parts(NamedTuple):
    """The names of a weight and of what it is made of.

    Attributes
    ----------
    weight : str
    prefix : str
        What all names of parts begin with.
    kind : str
        Its class; empty where the file does not say it.
    data : dict of str to anything
        What else the file says.
    """

    weight: str
    prefix: str
    kind: str
    data: dict[str, Any]

    def is_one_of(self, *kinds: str) -> bool:
        """Tell whether it may be of one of these classes."""
        return not self.kind or self.kind in kinds

    def has_input_scale(self, ledger: Ledger) -> bool:
        """Tell whether inputs are to be multiplied by something."""
        return self.prefix + _INPUT_SCALE in ledger.stored

    def check_blocks(self, codes: StoredTensor, scale: StoredTensor) -> None:
        """Compare scales with the blocks that the file tells of, if it does.

        Raises
        ------
        ParseError
            If there are others.
        """
        block = self.data.get("block_size")
        if type(block) is not list or not all(type(b) is int and b > 0 for b in block):
            return
        fits = len(block) == len(codes.shape)
        grid = tuple(-(-n // b) for n, b in zip(codes.shape, block, strict=True)) if fits else ()
        if not fits or (scale.shape != grid and not prod(scale.shape) == prod(grid) == 1):
            raise ParseError(
                f"{scale.name} ({scale.describe()}) has no scale for each block of {block} of "
                f"{codes.name} ({codes.describe()})",
                offset=scale.offset,
                source=scale.source.name,
            )

    def drop_activation_scales(self, ledger: Ledger) -> None:
        """Drop what only quantised activations need."""
        for name in _ACTIVATIONS:
            if ledger.find(self.prefix + name) is not None:
                ledger.drop(self.prefix + name, "scale of activations")


def parts_of(codes: str, facts: QuantFacts) -> Parts | None:
    """Return what a weight's parts are called, if that is the name of its codes."""
    head, dot, last = codes.rpartition(".")
    name = last.removesuffix(_CODES).removeprefix("_")
    if not name or last != f"_{name}{_CODES}":
        return None
    weight = f"{head}{dot}{name}"
    kind, data = _told(facts.metadata.get(weight))
    return Parts(weight, f"{head}{dot}_{name}_", kind, data)


def _told(text: Any) -> tuple[str, dict[str, Any]]:
    if type(text) is not str or not text.startswith(_START):
        return "", {}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return "", {}
    kind, data = told.get("_type"), told.get("_data")
    return (kind if type(kind) is str else ""), (data if type(data) is dict else {})


def told_parts(weight: str, metadata: Mapping[str, Any]) -> list[str]:
    """Return what the parts of a weight are called, by the end, if a file says it."""
    text = metadata.get(weight)
    if type(text) is not str or not text.startswith(_START):
        return []
    try:
        names = json.loads(text).get("_tensor_data_names")
    except (ValueError, RecursionError):
        return []
    last = weight.rpartition(".")[2]
    named = [name for name in names if name not in _ACTIVATIONS] if type(names) is list else []
    return [f"_{last}_{name}" for name in named]


def describes_tensor(key: str, text: str) -> bool:
    """Tell whether an entry of metadata describes a tensor as torchao does, or lists them all."""
    return text.startswith("[" if key == _NAMES_KEY else _START)


def metadata_without(
    metadata: Mapping[str, str], decoded: Mapping[str, str], gone: Collection[str]
) -> dict[str, str]:
    """Return metadata that say of `decoded` weights that they are plain, and of others nothing.

    Parameters
    ----------
    metadata : mapping of str to str
    decoded : mapping of str to str
        New names by old ones.
    gone : collection of str
        Names of weights that are written otherwise.
    """
    told: dict[str, str] = {}
    for key, text in metadata.items():
        is_told = (key in decoded or key in gone) and describes_tensor(key, text)
        if key == _NAMES_KEY and describes_tensor(key, text):
            told[key] = _names_without(text, decoded, gone)
        elif not is_told:
            told[key] = text
        elif key in decoded:
            told[decoded[key]] = _PLAIN
    return told


def _names_without(text: str, decoded: Mapping[str, str], gone: Collection[str]) -> str:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not all(type(name) is str for name in names):
        return text
    return json.dumps([decoded.get(name, name) for name in names if name not in gone])
