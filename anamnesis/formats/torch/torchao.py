"""torchao's tensors in a pickle, as the parts that its safetensors files have.

`torch.save` writes one as a call that makes an empty tensor of a class, and its attributes:

    torch._tensor._rebuild_from_type_v2(
        torch._utils._rebuild_wrapper_subclass, Float8Tensor,
        (Float8Tensor, dtype, shape, strides, offset, layout, device, requires_grad),
        {"qdata": tensor, "scale": tensor, "block_size": [1, 64], ...})

`flatten_tensor_state_dict` of torchao.prototype.safetensors makes of `layers.0.weight`

    layers.0._weight_qdata, layers.0._weight_scale  and, in the metadata, as JSON,
    layers.0.weight  {"_type": "Float8Tensor", "_data": {...}, "_tensor_data_names": [...]}

and so does `read`, which calls nothing of torchao. torchao.json has the rows of its classes: those
that are read; those of before torchao 0.14 that are plain, with the name of their codes and the
class as which they are read; those that are not, by the reason; enums, whose names in torchao's
metadata are their values in upper case, or listed by number; and settings (dataclasses, named
tuples, layouts, functions for activations), which are merely named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from anamnesis.base.plain_json import json_table
from anamnesis.base.printable import kind_of
from anamnesis.formats.pickle.nodes import SCALARS, Call, Global, in_words
from anamnesis.formats.torch.values import (
    PTH_MAX_DIMS,
    DTypeGlobal,
    Refused,
    SubclassGlobal,
    TorchTensor,
    Wrapper,
)

_MAX_DEPTH = 8  # of settings in settings; torchao's have three
_LONGEST = 100  # characters of a text in them


def known(module: str, name: str) -> Global | None:
    """Return the stand-in for a global of torchao; None for one that no tensor needs."""
    path = f"{module}.{name}"
    if path in READ or path in WHY:
        return SubclassGlobal(module, name)
    return Global(module, name) if path in ENUMS or path in INERT else None


# --- tensors ------------------------------------------------------------------------------------


class Flat(NamedTuple):
    """What a tensor becomes."""

    tensors: dict[str, TorchTensor]
    described: dict[str, Any]
    text: str


class _Unfit(Exception):
    """Why a tensor is not read, in words that follow the name of its class."""


def read(made: Wrapper, visit: Callable[[int], None]) -> Flat | Refused:
    """Return what a tensor is made of."""
    try:
        made = _as_today(made)
        path = str(made.kind)
        if path in WHY:
            raise _Unfit(WHY[path])
        return _flat(made, READ[path], _attributes_of(made), visit)
    except _Unfit as why:
        what = f"torchao's {made.kind.name}, {why}"
        return Refused(what, made.shape, (made.state,))


def _as_today(made: Wrapper) -> Wrapper:
    """Return a tensor of torchao before 0.14 as one of a class of today, if its parts are plain."""
    state = made.state if type(made.state) is dict else {}
    inner = state.get("original_weight_tensor")  # beside how activations are quantised
    if type(inner) is Wrapper:
        return _as_today(inner)
    parts = state.get("tensor_impl")
    if type(parts) is not Wrapper or str(parts.kind) not in AFFINE or type(parts.state) is not dict:
        return made
    domain = state.get("zero_point_domain")
    if type(domain) is Call and _member(domain, ENUMS.get(str(domain.function), ())) == "FLOAT":
        raise _Unfit("whose zero points are added")
    codes, path = AFFINE[str(parts.kind)]
    own = {**parts.state, "qdata": parts.state.get(codes), "block_size": state.get("block_size")}
    if own.get("transposed"):
        raise _Unfit("which is stored transposed")
    grid = _grid(made.shape, own["block_size"])
    for name in ("scale", "zero_point"):
        if type(own.get(name)) is TorchTensor:
            own[name] = _in_grid(own[name], grid)
    row = READ[path]
    kept = {"block_size", *row.tensors, *row.optional_tensors}
    module, _, name = path.rpartition(".")
    given = {key: value for key, value in own.items() if key in kept}
    return Wrapper(SubclassGlobal(module, name), made.dtype, made.shape, given)


def _grid(shape: tuple[int, ...], block: Any) -> tuple[int, ...]:
    """Return how many blocks there are along each axis; nothing where that is no whole number."""
    is_right = type(block) in (list, tuple) and len(block) == len(shape)
    if not is_right or not all(type(b) is int and b > 0 for b in block):
        return ()
    return tuple(n // b for n, b in zip(shape, block, strict=True))


def _in_grid(tensor: TorchTensor, grid: tuple[int, ...]) -> TorchTensor:
    """Return scales in the shape of their blocks, which axes of one block may be missing in."""
    if tensor.shape == grid or [n for n in tensor.shape if n != 1] != [n for n in grid if n != 1]:
        return tensor
    strides = iter([s for n, s in zip(tensor.shape, tensor.strides, strict=True) if n != 1])
    return tensor._replace(shape=grid, strides=tuple(1 if n == 1 else next(strides) for n in grid))


def _attributes_of(made: Wrapper) -> dict[str, Any]:
    state = made.state
    if type(state) is tuple and len(state) == 2 and state[1] in (None, {}):  # and no slots
        state = state[0]
    if type(state) is not dict or not all(type(key) is str for key in state):
        raise _Unfit("which has no attributes")
    return state


def _flat(
    made: Wrapper, row: TensorClass, state: dict[str, Any], visit: Callable[[int], None]
) -> Flat:
    visit(len(state))
    tensors: dict[str, TorchTensor] = {}
    for name in (*row.optional_tensors, *row.tensors):
        tensor = state.get(name)
        if tensor is None and name in row.optional_tensors:
            continue
        if name not in state:
            raise _Unfit(f"which has no {name}, as those of other versions of torchao may have")
        if type(tensor) is not TorchTensor:
            raise _Unfit(f"whose {name} is {_called(tensor)}, not a tensor")
        tensors[name] = tensor
    given: dict[str, Any] = {}
    for name, value in state.items():
        if name in row.attributes and name not in OF_WRAPPERS:
            given[name] = value
        elif name not in tensors and not _says_nothing(name, value, row):
            raise _Unfit(f"which has {name[:_LONGEST]!r}, which is not known")
    given |= {"dtype": made.dtype, "shape": made.shape}
    data = {
        name: _checked(name, given[name], row, visit) for name in row.attributes if name in given
    }
    for name in row.needed:
        if data.get(name) is None:
            raise _Unfit(f"which has no {name}")
    codes = tensors["qdata"]
    is_matrix = len(codes.shape) > 1 and min(codes.shape[-2:]) > 1
    if row.is_row_major and is_matrix and codes.strides[-2] < codes.strides[-1]:
        raise _Unfit("which is stored transposed")  # column by column, which no shape shows
    text = {"_type": made.kind.name, "_data": data, "_tensor_data_names": [*tensors]}
    is_tiled = data.get("is_swizzled_scales") is True
    more = {"shape": list(made.shape), "is_swizzled_scales": is_tiled}
    described = {**text, "_data": {**data, **more}}
    parts = {n: tensors[n] for n in (*row.tensors, *tensors)}
    return Flat(parts, described, json.dumps(text))


def _says_nothing(name: str, value: Any, row: TensorClass) -> bool:
    """Return whether an attribute says nothing of values: `_is_param` and the like."""
    if name in row.optional_tensors:
        return value is None
    is_inert = type(value) in SCALARS or type(value) is Call
    return is_inert and (name.startswith("_") or name in OF_OTHER_VERSIONS)


def _called(value: Any) -> str:
    return "None" if value is None else kind_of(value)


# --- attributes ---------------------------------------------------------------------------------


def _checked(name: str, value: Any, row: TensorClass, visit: Callable[[int], None]) -> Any:
    """Return an attribute as torchao's metadata have it."""
    wanted = KINDS.get(name, SETTINGS)
    if value is None and name not in row.needed:
        return None
    sizes = value if type(value) in (list, tuple) else [value]
    fits = {
        SIZES: len(sizes) <= PTH_MAX_DIMS
        and all(type(n) is int and 0 <= n < 1 << 63 for n in sizes),
        FLAG: type(value) is bool,
        DTYPE: _dtype_name(value) is not None or (name == "elem_dtype" and type(value) is str),
        SETTINGS: type(value) in (Call, str),  # an enum's member, or its value
    }
    if not fits[wanted]:
        raise _Unfit(f"whose {name} is {_called(value)}, not {wanted}")
    return _told(value, visit)


def _dtype_name(value: Any) -> str | None:
    dtype = value.dtype if type(value) is DTypeGlobal else value
    return getattr(dtype, "torch_name", None)


def _told(value: Any, visit: Callable[[int], None], depth: int = 0) -> Any:
    """Return a value as torchao's metadata have it: dtypes, enums and settings with their types."""
    visit(1)
    if depth > _MAX_DEPTH:
        raise _Unfit(f"whose settings are more than {_MAX_DEPTH} deep")
    if value is None or type(value) in (bool, float):
        return value
    if (type(value) is str and len(value) <= _LONGEST) or (
        type(value) is int and value.bit_length() < 64
    ):
        return value
    if type(value) in (list, tuple):
        visit(len(value))
        return [_told(item, visit, depth + 1) for item in value]
    name = _dtype_name(value)
    if name is not None:
        return {"_type": "torch.dtype", "_data": name}
    if type(value) is not Call or not isinstance(value.function, Global):
        raise _Unfit(f"which has {in_words(value)} among its settings")
    path = str(value.function)
    if path in ENUMS:
        return {"_type": value.function.name, "_data": _member(value, ENUMS[path])}
    if path not in INERT:
        raise _Unfit(f"which has {in_words(value.function)} among its settings")
    return {
        "_type": value.function.name,
        "_data": {
            key: _told(item, visit, depth + 1) for key, item in _fields(value, path, visit).items()
        },
    }


def _member(made: Call, names: Sequence[str]) -> str:
    """Return the name of an enum's member, which is pickled by its value."""
    value = made.args[0] if len(made.args) == 1 else None
    if type(value) is str and len(value) <= _LONGEST:
        return value.upper()
    if type(value) is int and 0 < value < len(names):
        return names[value]
    raise _Unfit(f"which has no member of {made.function} among its settings")


def _fields(made: Call, path: str, visit: Callable[[int], None]) -> dict[str, Any]:
    """Return what a dataclass or a named tuple holds."""
    fields = dict(zip(FIELDS.get(path, ()), made.args, strict=False))
    for state in made.states:
        if type(state) is dict:
            visit(len(state))
            fields.update(state)
    if len(made.args) > len(FIELDS.get(path, ())) or not all(type(key) is str for key in fields):
        raise _Unfit(f"which has no {made.function} as torchao writes it among its settings")
    return fields


# What attributes may be, in words, which errors have; all others are settings.
_TABLE = json_table(__file__)
SIZES, FLAG, DTYPE = "a size or a list of sizes", "True or False", "a dtype"
SETTINGS = "settings of torchao"
KINDS = {
    name: kind
    for key, kind in {"sizes": SIZES, "flag": FLAG, "dtype": DTYPE}.items()
    for name in _TABLE["kinds"][key].split()
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

AFFINE: Mapping[str, tuple[str, str]] = {k: tuple(v) for k, v in _TABLE["affine"].items()}
READ = {path: _class(row) for path, row in _TABLE["read"].items()}
WHY = {path: why for why, rows in _TABLE["unread"].items() for path in _paths(rows)}
ENUMS: Mapping[str, list[str]] = _TABLE["enums"]
INERT = _paths(_TABLE["settings"])
