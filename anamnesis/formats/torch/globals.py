"""The globals that a torch checkpoint may refer to, and what each call means.

They are those of `torch.load(weights_only=True)`, numpy's for scalars and arrays, and torchao's for
tensors, as `torchao.py` has them. Everything else is foreign.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeGuard

from anamnesis.base.dtypes import ALL_DTYPES, DTYPES, DType
from anamnesis.base.errors import DisallowedGlobal, LimitExceeded
from anamnesis.base.plain_json import json_table
from anamnesis.formats.pickle.machine import plain_key
from anamnesis.formats.pickle.nodes import Builder, Call, Global, PickledSet, in_words
from anamnesis.formats.torch.values import (
    PTH_MAX_DIMS,
    Attributed,
    DTypeGlobal,
    Refused,
    Storage,
    SubclassGlobal,
    TorchTensor,
    Wrapper,
    too_large,
)

_LONGEST_KEY = 256  # characters


_TABLE: Mapping[str, Any] = json_table(__file__)
# By torch's name; for storages by what precedes "Storage".
_OTHERS = {
    name: DType(name.upper(), int(bits), None, name, "unknown", 1, int(bits) // 8)
    for bits, names in _TABLE["dtypes_by_bits"].items()
    for name in names.split()
}
_TORCH_DTYPES = {**{dtype.torch_name: dtype for dtype in ALL_DTYPES.values()}, **_OTHERS}
STORAGES: Mapping[str, str] = _TABLE["storages"]
_BEYOND_NUMPY = [
    dtype.numpy_name
    for dtype in DTYPES.values()
    if dtype.numpy_name and dtype.numpy_name.startswith(("bfloat", "float8"))
]
_TYPED = [name for name in STORAGES if not name.startswith(("Q", "Complex"))]


# --- what the calls mean ------------------------------------------------------------------------


def _sizes(values: Any, what: str) -> tuple[int, ...]:
    if type(values) in (tuple, list) and len(values) > PTH_MAX_DIMS:  # many tensors may share it
        raise LimitExceeded(
            "PTH_MAX_DIMS", f"a tensor has {len(values):,} dims; {PTH_MAX_DIMS} are allowed"
        )
    if _is_shape(values):
        return values
    raise ValueError(f"{what} must be non-negative numbers")


def _at(storage: Any, dtype: DType | None, offset: Any, size: Any, stride: Any) -> TorchTensor:
    if type(storage) is not Storage:
        raise TypeError("a tensor needs a storage")
    if dtype is None:
        raise TypeError("a tensor needs a dtype")
    if type(offset) is not int or offset < 0:
        raise ValueError("a tensor's offset must be a non-negative number")
    shape, strides = _sizes(size, "sizes"), _sizes(stride, "strides")
    if too_large(shape):
        raise ValueError(f"{list(shape)} is larger than torch has a tensor")
    if len(shape) != len(strides):
        raise ValueError(f"{len(shape)} sizes, but {len(strides)} strides")
    return TorchTensor(storage, dtype, offset, shape, strides)


def _tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Any:
    """torch._utils._rebuild_tensor and _rebuild_tensor_v2."""
    dtype = storage.element if type(storage) is Storage else None
    made = _at(storage, dtype, offset, size, stride)
    return _with_metadata(made, rest[2:]) if len(rest) > 2 else made


def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> Any:
    """torch._utils._rebuild_tensor_v3."""
    if type(dtype) is not DTypeGlobal:
        raise TypeError("a tensor needs a dtype")
    return _with_metadata(_at(storage, dtype.dtype, offset, size, stride), rest)


def _with_metadata(made: TorchTensor, rest: tuple[Any, ...]) -> Any:
    """Look at what torch keeps beside a tensor: its bits may mean the conjugate or the negative."""
    for metadata in rest:
        for bit in ("conj", "neg"):
            if type(metadata) is dict and metadata.get(bit):
                what = f"stored with torch's {bit!r} bit set"
                return Refused(what, made.shape, (made,))
    return made


def _first(value: Any, *rest: Any) -> Any:
    """Return the tensor that a parameter is made of."""
    if type(value) not in (TorchTensor, Refused, Attributed, Wrapper):
        raise TypeError("a tensor is expected")
    return value


def _attributed(made: Any, state: Any) -> Any:
    return made if state is None or state == {} or state == () else Attributed(made, state)


def _with_state(value: Any, grad: Any, hooks: Any, state: Any = None) -> Any:
    """torch._utils._rebuild_parameter_with_state."""
    return _attributed(_first(value), state)


def _from_type(function: Any, kind: Any, args: Any, state: Any = None) -> Any:
    """torch._tensor._rebuild_from_type_v2."""
    if not isinstance(function, Global) or type(args) is not tuple:
        raise TypeError("a tensor of a subclass must be made by a function")
    if not isinstance(function, Builder) or function.build is _from_type:
        return _attributed(Refused(f"made by {function}", (), (args,)), state)
    made = _first(function.build(*args))
    if type(made) is not Wrapper:
        return _attributed(made, state)
    if str(kind) != str(made.kind):
        raise TypeError(f"a wrapper of {made.kind} as {in_words(kind)}")
    return made._replace(state=state)


def _wrapper(kind: Any = None, dtype: Any = None, shape: Any = (), *rest: Any) -> Any:
    """torch._utils._rebuild_wrapper_subclass."""
    if type(kind) is not SubclassGlobal:
        return Refused("a wrapper around other tensors", _sizes(shape, "sizes"), rest)
    if type(dtype) is not DTypeGlobal or dtype.dtype is None:
        raise TypeError("a tensor needs a dtype")
    return Wrapper(kind, dtype.dtype, _sizes(shape, "sizes"))


def _device_tensor(data: Any, dtype: Any, *rest: Any) -> Any:
    """torch._utils._rebuild_device_tensor_from_cpu_tensor."""
    _first(data)
    made = data.tensor if type(data) is Attributed else data
    wanted = dtype.dtype if type(dtype) is DTypeGlobal else None
    if type(made) is TorchTensor and wanted is not made.dtype:
        return Refused(f"{made.dtype.name} to be cast to {wanted}", made.shape, (data,))
    return data


def _refuse(what: str, shape_at: int | None = None) -> Any:
    """Return a builder for a kind of tensor that is not read."""

    def build(*args: Any) -> Refused:
        if shape_at is None or shape_at >= len(args):
            return Refused(what, (), args)
        return Refused(what, _sizes(args[shape_at], "sizes"), args)

    return build


def _sparse(layout: Any = None, data: Any = (), *rest: Any) -> Refused:
    """torch._utils._rebuild_sparse_tensor."""
    kind = layout.args[0] if type(layout) is Call and layout.args else "sparse"
    size = next((d for d in data if _is_shape(d)), ()) if type(data) is tuple else ()
    return Refused(f"a sparse tensor ({in_words(kind)})", size, (data,))


def _is_shape(value: Any) -> TypeGuard[tuple[int, ...]]:
    if type(value) is not tuple or len(value) > PTH_MAX_DIMS:
        return False
    for v in value:  # noqa: SIM110 -- `all` takes three times as long for the few that there are
        if type(v) is not int or v < 0:
            return False
    return True


def _dictionary(*args: Any) -> dict[Any, Any]:
    """collections.OrderedDict and Counter."""
    if not args:
        return {}
    (source,) = args
    if type(source) is dict:
        return dict(source)
    if type(source) is not list:
        raise TypeError("a dictionary or a list of pairs is expected")
    pairs = {}
    for pair in source:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise ValueError("something that is not a pair")
        pairs[plain_key(pair[0])] = pair[1]
    return pairs


def _encoded(text: Any, encoding: Any = "utf-8") -> bytes:
    """_codecs.encode, with which protocol 2 writes bytes."""
    if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8"):
        raise TypeError(
            f"text in latin1 is expected, not {type(text).__name__} in {in_words(encoding)}"
        )
    return text.encode(encoding)


def _no_bytes() -> bytes:
    """builtins.bytes, with which protocol 2 writes empty ones."""
    return b""


def _bytearray(*args: Any) -> bytes:
    match args:
        case ():
            return b""
        case (bytes(raw),):
            return raw
        case (str(text), "latin-1" | "latin1"):
            return text.encode("latin-1")
    raise TypeError("bytes are expected")


def _set(*args: Any) -> PickledSet:
    items = args[0] if args else []
    if type(items) is PickledSet:
        items = items.items
    if type(items) not in (list, tuple):
        raise TypeError("a list is expected")
    return PickledSet(list(items))


def _complex(real: Any = 0.0, imaginary: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imaginary) not in (int, float):
        raise TypeError("numbers are expected")
    return complex(real, imaginary)


def _size(values: Any = ()) -> tuple[int, ...]:
    if type(values) not in (list, tuple) or not all(type(v) is int for v in values):
        raise ValueError("sizes must be numbers")
    return tuple(values)


_BUILDERS: dict[str, Any] = {
    "collections.OrderedDict": _dictionary,
    "collections.Counter": _dictionary,
    "_codecs.encode": _encoded,
    "builtins.bytes": _no_bytes,
    "builtins.bytearray": _bytearray,
    "builtins.set": _set,
    "builtins.complex": _complex,
    "__builtin__.bytes": _no_bytes,
    "__builtin__.bytearray": _bytearray,
    "__builtin__.set": _set,
    "__builtin__.complex": _complex,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _tensor_v2,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _with_state,
    "torch.nn.parameter.Parameter": _first,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _device_tensor,
    "torch._utils._rebuild_device_tensor_from_numpy": _refuse("a tensor made of a numpy array"),
    "torch._utils._rebuild_qtensor": _refuse("a quantised tensor of torch's own", 2),
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_nested_tensor": _refuse("a nested tensor"),
    "torch._utils._rebuild_meta_tensor_no_storage": _refuse("on the device 'meta': no data", 1),
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
}

# What is merely named, or whose calls are kept as they are.
_INERT = frozenset(
    (
        *" ".join(_TABLE["inert"]).split(),
        *(f"torch.{where}{t}Tensor" for where in ("", "cuda.", "sparse.") for t in _TYPED),
        *(f"torch.cuda.sparse.{t}Tensor" for t in _TYPED),
        *(f"ml_dtypes.{name}" for name in _BEYOND_NUMPY),
    )
)


@lru_cache(1024)  # the names are the file's
def _known(module: str, name: str) -> Global | None:
    """Return the stand-in for an allowed global; None for a foreign one."""
    path = f"{module}.{name}"
    if path in _BUILDERS:
        return Builder(module, name, _BUILDERS[path])
    if path in _INERT:
        return Global(module, name)
    if module in ("torch", "torch.cuda") and name.endswith("Storage"):
        kind = STORAGES.get(name.removesuffix("Storage"))
        return None if kind is None else DTypeGlobal(module, name, _TORCH_DTYPES[kind])
    if path in ("torch.storage.UntypedStorage", "torch.storage.TypedStorage"):
        return DTypeGlobal(module, name, None)
    if module == "torch" and name in _TORCH_DTYPES:
        return DTypeGlobal(module, name, _TORCH_DTYPES[name])
    if module.startswith("torchao."):
        from anamnesis.formats.torch.torchao import known

        return known(module, name)
    if module.startswith("torch.distributed."):
        from anamnesis.formats.torch.dtensor import known as known_distributed

        return known_distributed(module, name)
    return None


def is_allowed(module: str, name: str) -> bool:
    """Return whether a global serves to rebuild tensors, and does nothing else."""
    return _allowed(module, name) is not None


def _allowed(module: str, name: str) -> Global | None:
    return _known(module, name) if len(module) + len(name) < 200 else None


def find_torch_global(module: str, name: str, *, allow_foreign: bool = False) -> Global:
    """Return the stand-in for a global."""
    known = _allowed(module, name)
    if known is not None:
        return known
    if allow_foreign:
        return Global(module, name)
    raise DisallowedGlobal(module, name)


def storage_from(kind: Any, key: Any, n_elements: Any, folder: str = "") -> Storage:
    """Return the storage that a persistent id names; TypeError or ValueError if it names none."""
    # `folder` precedes the key where there are several.
    if type(kind) is not DTypeGlobal or type(n_elements) is not int or n_elements < 0:
        raise TypeError("not the id of a storage")
    if type(key) not in (bytes, str) or len(key) > _LONGEST_KEY:
        raise TypeError("the key of a storage must be a short text")
    if type(key) is bytes:
        key = key.decode("ascii")
    return Storage(folder + key, kind.dtype, n_elements * kind.item_bytes)
