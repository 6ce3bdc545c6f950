"""The classes of torchao that pickles name: what each is made of.

torchao_classes.json has the rows: classes that are read; those of before torchao 0.14 that are
plain, with the name of their codes and the class as which they are read; classes that are not, by
the reason; enums, whose names in torchao's metadata are their values in upper case, or listed by
number; and settings (dataclasses, named tuples, layouts, functions for activations), which are
merely named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from anamnesis.base.json_table import json_table

# What attributes may be, in words, which errors have; all others are settings.
SIZES, DTYPE, FLAG, SETTINGS = (
    "a size or a list of sizes",
    "a dtype",
    "True or False",
    "settings of torchao",
)
KINDS = {
    **dict.fromkeys(("block_size", "shape"), SIZES),
    **dict.fromkeys(("reduce_range", "is_swizzled_scales", "use_triton_kernel"), FLAG),
    **dict.fromkeys(("dtype", "activation_dtype", "target_dtype", "elem_dtype"), DTYPE),
    "orig_dtype": DTYPE,
}


class TensorClass(NamedTuple):
    """A class that is read."""

    tensors: Sequence[str]
    attributes: Sequence[str]
    optional_tensors: Sequence[str] = ()
    needed: Sequence[str] = ()
    is_row_major: bool = False


def _class(row: Mapping[str, Any]) -> TensorClass:
    fields: dict[str, Any] = {k: v.split() if type(v) is str else v for k, v in row.items()}
    return TensorClass(**fields)


def _paths(rows: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for module, names in rows.items() for name in names.split())


OF_WRAPPERS = ("dtype", "shape")  # attributes that every tensor has, and no state
OF_OTHER_VERSIONS = frozenset(  # of how to multiply with a weight, or how it was made
    ("hp_value_lb", "hp_value_ub", "mm_config", "gemm_kernel_choice", "pack_fp6", "granularity")
)
FIELDS = {"torchao.float8.inference.Float8MMConfig": ("emulate", "use_fast_accum", "pad_inner_dim")}

_TABLE = json_table(__file__)
AFFINE: Mapping[str, tuple[str, str]] = {k: tuple(v) for k, v in _TABLE["affine"].items()}
READ = {path: _class(row) for path, row in _TABLE["read"].items()}
WHY = {path: why for why, rows in _TABLE["unread"].items() for path in _paths(rows)}
ENUMS: Mapping[str, list[str]] = _TABLE["enums"]
INERT = _paths(_TABLE["settings"])
