"""torchao's tensors from a fuzzer's bytes: in safetensors, as it flattens them, and in a pickle."""

from __future__ import annotations

import io
import json
import zipfile
from math import prod
from typing import Any, NamedTuple

from structured import Choices
from structured_parts import (
    E8M0,
    FP8,
    SCALES,
    Entry,
    Expected,
    Family,
    Tensors,
    bytes_of,
    module_of,
    tiled,
)
from structured_pickle import integer, named, text

from anamnesis.base.dtypes import DTYPES
from anamnesis.formats.torch.torchao import READ

__all__ = ["FAMILIES", "torchao_file"]

ROWS = (8, 1, 33, 130)
_MODULES = {path.rpartition(".")[2]: path.rpartition(".")[0] for path in READ}


class Dtype(NamedTuple):
    """A dtype among the attributes."""

    name: str


_LIES: tuple[Any, ...] = (
    *(None, 0, -1, 2**63, [], [1], [0, 0], [1, 1, 1], True, "x", Dtype("int4"), Dtype("float32")),
)


class Wrapped(NamedTuple):
    """A tensor of a class.

    Attributes
    ----------
    kind : str
    shape : list of int
        That of the weight.
    parts : dict of str to entry
    data : dict of str to anything
        Its other attributes: numbers, lists of them, flags, dtypes, None.
    """

    kind: str
    shape: list[int]
    parts: Tensors
    data: dict[str, Any]


def wrapped(choices: Choices) -> Wrapped:
    """Return a tensor of any class that is read, right but for a slip now and then."""
    kind = choices.pick(tuple(_MODULES))
    make = {"Int4Tensor": _int4, "MXTensor": _mx, "NVFP4Tensor": _nvfp4}.get(kind)
    made = make(choices) if make else _blocks(choices, kind)
    for _ in range(max(0, choices.below(8) - 6)):
        _slip(choices, made)
    return made


def _slip(choices: Choices, made: Wrapped) -> None:
    """Say something else of it."""
    key = choices.pick(sorted(made.data))
    made.data[key] = choices.pick(_LIES)


def _blocks(choices: Choices, kind: str) -> Wrapped:
    """Codes of a byte, with scales of whole blocks, and maybe zero points."""
    block = [choices.pick((1, 2)), choices.pick((16, 32, 7))]
    grid = [choices.pick((4, 1, 17)), choices.pick((1, 2, 3))]
    shape = [n * b for n, b in zip(grid, block, strict=True)]
    is_float = "Float8" in kind
    codes, scale = choices.pick(FP8[:3]) if is_float else "I8", choices.pick(SCALES)
    parts = {"qdata": bytes_of(choices, codes, shape), "scale": bytes_of(choices, scale, grid)}
    data: dict[str, Any] = {"block_size": block, "dtype": _dtype(scale)}
    if kind == "IntxUnpackedToInt8Tensor":
        data["target_dtype"] = Dtype(choices.pick(("int4", "int3", "int8")))
    if kind.startswith("Intx") or (not is_float and choices.below(2)):
        zeros = scale if kind.startswith("Intx") and choices.below(2) else "I8"
        parts["zero_point"] = bytes_of(choices, zeros, grid)
    if kind in ("Int8Tensor", "PrototypeFloat8Tensor") and choices.below(4) == 3:
        parts["act_quant_scale"] = bytes_of(choices, "F32", [1, 1])
    if kind == "Int8Tensor" and choices.below(8) == 7:
        parts["act_pre_scale"] = bytes_of(choices, "F32", [shape[1]])
    return Wrapped(kind, shape, parts, data)


def _int4(choices: Choices) -> Wrapped:
    rows, groups, size = choices.pick(ROWS), choices.pick((2, 1, 3)), choices.pick((32, 16, 2))
    scale = choices.pick(SCALES)
    parts = {
        "qdata": bytes_of(choices, "I8", [rows, groups * size // 2]),
        "scale": bytes_of(choices, scale, [groups, rows]),
        "zero_point": bytes_of(choices, scale, [groups, rows]),
    }
    return Wrapped("Int4Tensor", [rows, groups * size], parts, {"block_size": [1, size]})


def _mx(choices: Choices) -> Wrapped:
    rows, groups, is_tiled = choices.pick(ROWS), choices.pick((2, 1, 5)), choices.below(2) == 1
    element = choices.pick(("float4_e2m1fn_x2", "float8_e4m3fn", "float8_e5m2", "fp6_e2m3"))
    codes = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}.get(element, "U8")
    width = 32 * groups // (2 if element == "float4_e2m1fn_x2" else 1)
    grid = tiled(rows, groups) if is_tiled else [rows, groups]
    parts = {
        "qdata": bytes_of(choices, codes, [rows, width]),
        "scale": bytes_of(choices, choices.pick(E8M0[::-1]), grid),
    }
    told = element if element.startswith("fp6") else Dtype(element)
    data: dict[str, Any] = {"elem_dtype": told, "block_size": 32, "is_swizzled_scales": is_tiled}
    return Wrapped("MXTensor", [rows, 32 * groups], parts, data)


def _nvfp4(choices: Choices) -> Wrapped:
    rows, groups, is_tiled = choices.pick(ROWS), choices.pick((2, 1, 5)), choices.below(2) == 1
    parts = {
        "qdata": bytes_of(choices, "U8", [rows, 8 * groups]),
        "scale": bytes_of(choices, "F8_E4M3", tiled(rows, groups) if is_tiled else [rows, groups]),
    }
    if choices.below(2):
        parts["per_tensor_scale"] = bytes_of(choices, "F32", [])
    if choices.below(4) == 3:
        parts["act_per_tensor_scale"] = bytes_of(choices, "F32", [])
    data: dict[str, Any] = {"block_size": 16, "is_swizzled_scales": is_tiled}
    return Wrapped("NVFP4Tensor", [rows, 16 * groups], parts, data)


def _dtype(name: str) -> Dtype:
    return Dtype(str(DTYPES[name].torch_name))


# --- safetensors --------------------------------------------------------------------------------


def torchao(choices: Choices, name: str, told: Expected) -> Tensors:
    """A tensor as `flatten_tensor_state_dict` has it, described in the metadata or not."""
    made = wrapped(choices)
    if choices.below(8) != 7:
        data = {
            key: {"_type": "torch.dtype", "_data": value.name} if type(value) is Dtype else value
            for key, value in made.data.items()
        }
        told.metadata[name] = json.dumps({"_type": made.kind, "_data": data})
    head = f"{module_of(name)}_weight_"
    return {f"{head}{part}": entry for part, entry in made.parts.items()}


FAMILIES: tuple[Family, ...] = (torchao,)


# --- pickles ------------------------------------------------------------------------------------


def torchao_file(choices: Choices) -> bytes:
    """Return a torch file of a few of its tensors, as `torch.save` writes them."""
    storages: list[bytes] = []
    items = [
        text(f"{letter}.weight") + _pickled(wrapped(choices), storages)
        for letter in "abcd"[: 1 + choices.below(4)]
    ]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("m/data.pkl", b"\x80\x02}(" + b"".join(items) + b"u.")
        file.writestr("m/byteorder", "little")
        for key, raw in enumerate(storages):
            file.writestr(f"m/data/{key}", raw)
    return stream.getvalue()


def _pickled(made: Wrapped, storages: list[bytes]) -> bytes:
    kind = named(f"{_MODULES[made.kind]} {made.kind}")
    layout = named("torch.serialization _get_layout") + text("torch.strided") + b"\x85R"
    device = named("torch device") + text("cpu") + b"\x85R"
    dtype = made.data.get("dtype")
    args = (
        *(kind, named(f"torch {dtype.name if type(dtype) is Dtype else 'bfloat16'}")),
        *(_sizes(made.shape), _sizes(_strides(made.shape)), integer(0), layout, device, b"\x89"),
    )
    parts = {part: _tensor(entry, storages) for part, entry in made.parts.items()}
    rest = {key: _value(value) for key, value in made.data.items() if key != "dtype"}
    state = b"".join(text(key) + value for key, value in {**parts, **rest}.items())
    pieces = (
        *(named("torch._tensor _rebuild_from_type_v2"), b"("),
        *(named("torch._utils _rebuild_wrapper_subclass"), kind),
        *(b"(", *args, b"t}(", state, b"utR"),
    )
    return b"".join(pieces)


def _tensor(entry: Entry, storages: list[bytes]) -> bytes:
    dtype, shape, raw = entry
    key = text("storage") + named("torch.storage UntypedStorage") + text(str(len(storages)))
    storages.append(raw)
    pieces = (
        *(named("torch._utils _rebuild_tensor_v3"), b"((", key, text("cpu"), integer(len(raw))),
        *(b"tQ", integer(0), _sizes(shape), _sizes(_strides(shape)), b"\x89"),
        *(named("collections OrderedDict"), b")R", named(f"torch {DTYPES[dtype].torch_name}")),
        b"tR",
    )
    return b"".join(pieces)


def _strides(shape: list[int]) -> list[int]:
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def _sizes(values: list[int]) -> bytes:
    return b"(" + b"".join(map(integer, values)) + b"t"


def _value(value: Any) -> bytes:
    """Return an attribute, pickled."""
    if value is None or type(value) is bool:
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if type(value) is list:
        return b"](" + b"".join(map(_value, value)) + b"e"
    if type(value) is Dtype:
        return named(f"torch {value.name}")
    if type(value) is str:
        return text(value)
    return integer(value) if abs(value) < 2**31 else b"\x8a\x09" + value.to_bytes(9, "little")
