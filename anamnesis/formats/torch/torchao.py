"""torchao's tensors in a pickle, as the parts that its safetensors files have.

`torch.save` writes one as a call that makes an empty tensor of a class, and its attributes:

    torch._tensor._rebuild_from_type_v2(
        torch._utils._rebuild_wrapper_subclass, Float8Tensor,
        (Float8Tensor, dtype, shape, strides, offset, layout, device, requires_grad),
        {"qdata": tensor, "scale": tensor, "block_size": [1, 64], ...})

`flatten_tensor_state_dict` of torchao.prototype.safetensors makes of `layers.0.weight`

    layers.0._weight_qdata, layers.0._weight_scale  and, in the metadata, as JSON,
    layers.0.weight  {"_type": "Float8Tensor", "_data": {...}, "_tensor_data_names": [...]}

and so does `read`, which calls nothing of torchao. Its classes are rows of `torchao_classes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from anamnesis.formats.pickle.nodes import SCALARS, Call, Global, in_words
from anamnesis.formats.torch.torchao_classes import (
    DTYPE,
    ENUMS,
    FIELDS,
    FLAG,
    INERT,
    OF_OTHER_VERSIONS,
    OF_WRAPPERS,
    RARE,
    READ,
    ROW_MAJOR,
    SETTINGS,
    SIZE,
    SIZES,
    WHY,
    TensorClass,
)
from anamnesis.formats.torch.values import (
    DTypeGlobal,
    Refused,
    SubclassGlobal,
    TorchTensor,
    Wrapper,
)

__all__ = ["Flat", "known", "read"]

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
    """What a tensor becomes.

    Attributes
    ----------
    tensors : dict of str to TorchTensor
        Under the names of its attributes.
    told : str
        The rest of it, as JSON.
    """

    tensors: dict[str, TorchTensor]
    told: str


class _Unfit(Exception):
    """Why a tensor is not read, in words that follow the name of its class."""


def read(made: Wrapper, visit: Callable[[int], None]) -> Flat | Refused:
    """Return what a tensor is made of.

    Parameters
    ----------
    made : Wrapper
    visit : function
        Counts the values that are looked at, and raises if they are too many.

    Returns
    -------
    Flat or Refused
        The latter if it cannot be read: its class is not, or its attributes are not as they
        must be.
    """
    path = str(made.kind)
    try:
        if path in WHY:
            raise _Unfit(WHY[path])
        return _flat(made, READ[path], _attributes_of(made), visit)
    except _Unfit as why:
        what = f"torchao's {made.kind.name}, {why}"
        return Refused(what, made.shape, (made.state,))


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
    told: dict[str, Any] = {}
    for name, value in state.items():
        if name in row.attributes and name not in OF_WRAPPERS:
            told[name] = value
        elif name not in tensors and not _says_nothing(name, value, row):
            raise _Unfit(f"which has {name[:_LONGEST]!r}, which is not known")
    told |= {"dtype": made.dtype, "shape": made.shape}
    data = {name: _checked(name, told[name], row, visit) for name in row.attributes if name in told}
    for name in row.needed:
        if data.get(name) is None:
            raise _Unfit(f"which has no {name}")
    _check_shapes(made, row, tensors, data)
    text = {"_type": made.kind.name, "_data": data, "_tensor_data_names": [*tensors]}
    return Flat({n: tensors[n] for n in (*row.tensors, *tensors)}, json.dumps(text))


def _says_nothing(name: str, value: Any, row: TensorClass) -> bool:
    """Tell whether an attribute says nothing of values: `_is_param` and the like."""
    if name in row.optional_tensors:
        return value is None
    is_inert = type(value) in SCALARS or type(value) is Call
    return is_inert and (name.startswith("_") or name in OF_OTHER_VERSIONS)


def _called(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


# --- attributes ---------------------------------------------------------------------------------


def _checked(name: str, value: Any, row: TensorClass, visit: Callable[[int], None]) -> Any:
    """Return an attribute as torchao's metadata have it."""
    wanted = row.attributes[name]
    if value is None and name not in row.needed:
        return None
    if wanted == SIZES:
        if type(value) not in (list, tuple) or len(value) > 64 or not all(map(_is_size, value)):
            raise _Unfit(f"whose {name} is not {wanted}")
        return list(value)
    fits = {
        SIZE: _is_size(value),
        FLAG: type(value) is bool,
        DTYPE: _dtype_name(value) is not None or (name == "elem_dtype" and type(value) is str),
        SETTINGS: type(value) is Call,
    }
    if not fits[wanted]:
        raise _Unfit(f"whose {name} is {_called(value)}, not {wanted}")
    return _told(value, visit)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


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


def _member(made: Call, names: tuple[str, ...]) -> str:
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


# --- shapes -------------------------------------------------------------------------------------


def _check_shapes(
    made: Wrapper, row: TensorClass, tensors: dict[str, TorchTensor], data: dict[str, Any]
) -> None:
    """Refuse what does not agree with what the tensor says of itself.

    torchao takes the shape from `qdata`, and most classes what shares a scale from `block_size`.
    """
    codes, scale = tensors["qdata"], tensors["scale"]
    name = made.kind.name
    if name in ROW_MAJOR:
        if len(codes.shape) < 2:
            raise _Unfit(f"whose qdata has the shape {list(codes.shape)}")
        if codes.strides[-2] < codes.strides[-1] and min(codes.shape[-2:]) > 1:
            raise _Unfit("which is stored transposed")
    per_byte = row.per_byte
    if name == "MXTensor":
        element = data["elem_dtype"]
        element = element if type(element) is str else element["_data"]
        if "fp6" in element or "float6" in element:
            raise _Unfit(f"of {element}, one code to a byte, {RARE}")
        per_byte = 2 if element == "float4_e2m1fn_x2" else 1
        if per_byte == 1 and element != codes.dtype.torch_name:
            raise _Unfit(f"of {element}, whose qdata is {codes.dtype.torch_name}")
    shape = (*codes.shape[:-1], codes.shape[-1] * per_byte) if codes.shape else ()
    if shape != made.shape:
        raise _Unfit(f"of the shape {list(made.shape)}, whose qdata is of {list(shape)}")
    if name in ("MXTensor", "NVFP4Tensor"):
        _check_groups(shape, scale, data)
    elif "block_size" in row.needed:
        _check_blocks(name, shape, tensors, data["block_size"])


def _check_groups(shape: tuple[int, ...], scale: TorchTensor, data: dict[str, Any]) -> None:
    """Compare scales of groups of a row, in tiles of 128 x 4 or not, with the values."""
    size = data["block_size"]
    if size == 0 or shape[-1] % size:
        raise _Unfit(f"whose rows of {shape[-1]:,} are no whole blocks of {size:,}")
    rows, groups = prod(shape[:-1]), shape[-1] // size
    if data.get("is_swizzled_scales"):
        wanted = -(-rows // 128) * -(-groups // 4) * 512
        if prod(scale.shape) != wanted:
            raise _Unfit(f"whose {prod(scale.shape):,} scales in tiles must be {wanted:,}")
    elif scale.shape != (*shape[:-1], groups):
        raise _Unfit(f"whose scale is of {list(scale.shape)}, not {[*shape[:-1], groups]}")


def _check_blocks(
    name: str, shape: tuple[int, ...], tensors: dict[str, TorchTensor], block: list[int]
) -> None:
    """Compare scales and zero points with whole blocks."""
    if len(block) != len(shape) or not all(
        b > 0 and n % b == 0 for n, b in zip(shape, block, strict=True)
    ):
        raise _Unfit(f"of the shape {list(shape)}, which is no whole blocks of {block}")
    grid = tuple(n // b for n, b in zip(shape, block, strict=True))
    if name == "Int4Tensor":
        grid = (*grid[:-2], grid[-1], grid[-2])
    for part in ("scale", "zero_point"):
        tensor = tensors.get(part)
        if tensor is not None and tensor.shape != grid:
            raise _Unfit(f"whose {part} is of {list(tensor.shape)}, not {list(grid)}")
