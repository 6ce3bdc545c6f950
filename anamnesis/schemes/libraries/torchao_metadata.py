"""What torchao calls the parts of a weight, and what its files say of one.

Of `layers.0.weight` its `flatten_tensor_state_dict` makes `layers.0._weight_qdata`, codes, with
`layers.0._weight_scale` and others beside; and an entry of the metadata, under the weight's own
name, of JSON: `{"_type": "Int8Tensor", "_data": {"block_size": [1, 64], ...}, ...}`. A pickle of
its tensors is read as the same. There are files without these entries.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

CODES, SCALE, ZEROS = "qdata", "scale", "zero_point"
# Scales of activations, with which only a runtime that quantises those does anything.
ACTIVATIONS = (
    *("act_quant_scale", "act_quant_zero_point", "act_per_tensor_scale"),
    "output_act_quant_scale",
)

_START = '{"_type": '
_LONGEST = 1 << 16  # characters of what is said of a weight
_NAMES_KEY = "tensor_names"
_PLAIN = '{"_type": "Tensor"}'  # what its files say of a tensor that is none of its own


def weight_of(codes: str) -> str | None:
    """Return the weight whose codes have a name; None for a name of something else."""
    head, dot, last = codes.rpartition(".")
    name = last.removesuffix(f"_{CODES}").removeprefix("_")
    return f"{head}{dot}{name}" if name and last == f"_{name}_{CODES}" else None


class Described(NamedTuple):
    """A tensor of a class of torchao's."""

    kind: str
    shape: tuple[int, ...] | None = None
    block: tuple[int, ...] = ()
    element: str = ""
    dtype: str = ""
    is_tiled: bool | None = None
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Described:
        """Read an entry; values in any other form than torchao's are ignored."""
        kind, data, names = map(given.get, ("_type", "_data", "_tensor_data_names"))
        data = data if isinstance(data, dict) else {}
        block, element, is_tiled = map(data.get, ("block_size", "elem_dtype", "is_swizzled_scales"))
        return cls(
            kind if isinstance(kind, str) else "",
            _sizes(data.get("shape")),
            _sizes([block] if type(block) is int else block) or (),
            element if isinstance(element, str) else _dtype(element),
            _dtype(data.get("dtype")),
            is_tiled if isinstance(is_tiled, bool) else None,
            tuple(str(name) for name in names) if isinstance(names, list) else (),
        )


def _sizes(value: Any) -> tuple[int, ...] | None:
    is_list = isinstance(value, list) and all(type(n) is int for n in value)
    return tuple(value) if is_list else None


def _dtype(value: Any) -> str:
    given = value.get("_data") if isinstance(value, dict) else None
    return "" if given is None else str(given)


def described_in(
    metadata: Mapping[str, Any], pickled: Mapping[str, Mapping[str, Any]]
) -> dict[str, Described]:
    """Return what metadata say of weights, by their names, and what pickles say of others."""
    found = {name: Described.of(entry) for name, entry in pickled.items()}
    for key, text in metadata.items():
        is_given = type(text) is str and text.startswith(_START) and len(text) <= _LONGEST
        if is_given and key not in found:
            try:
                found[key] = Described.of(json.loads(text))
            except (ValueError, RecursionError):
                continue
    return found


def describes_tensor(key: str, text: str) -> bool:
    """Return whether an entry of metadata describes a tensor as torchao does, or lists them all."""
    return text.startswith("[" if key == _NAMES_KEY else _START)


def metadata_without(
    metadata: Mapping[str, str], decoded: Mapping[str, str], gone: Collection[str]
) -> dict[str, str]:
    """Return metadata that say of `decoded` weights that they are plain, and of others nothing."""
    given: dict[str, str] = {}
    for key, text in metadata.items():
        is_given = (key in decoded or key in gone) and describes_tensor(key, text)
        if key == _NAMES_KEY and describes_tensor(key, text):
            with suppress(ValueError, RecursionError):
                names = json.loads(text)
                if all(type(name) is str for name in names):
                    left = [decoded.get(name, name) for name in names if name not in gone]
                    text = json.dumps(left)
            given[key] = text
        elif not is_given:
            given[key] = text
        elif key in decoded:
            given[decoded[key]] = _PLAIN
    return given
