"""torchao's tensors in a pickle, as the parts and the metadata that its safetensors files have.

`torch.save` writes one as a call that makes an empty tensor of a class, and its attributes:

    torch._tensor._rebuild_from_type_v2(
        torch._utils._rebuild_wrapper_subclass, Float8Tensor,
        (Float8Tensor, dtype, shape, strides, offset, layout, device, requires_grad),
        {"qdata": tensor, "scale": tensor, "block_size": [1, 64], ...})

`flatten_tensor_state_dict` of torchao.prototype.safetensors makes of `layers.0.weight`

    layers.0._weight_qdata, layers.0._weight_scale  and, in the metadata, as JSON,
    layers.0.weight  {"_type": "Float8Tensor", "_data": {...}, "_tensor_data_names": [...]}

and so does `read`, which calls nothing of torchao. Its classes are rows of data here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

from anamnesis.formats.pickle.nodes import SCALARS, Call, Global, in_words
from anamnesis.formats.torch.globals import (
    DTypeGlobal,
    Refused,
    SubclassGlobal,
    TorchTensor,
    Wrapper,
)

__all__ = ["Flat", "known", "read"]

_MAX_DEPTH = 8  # of settings in settings; torchao's have three
_LONGEST = 100  # characters of a text in them

# What an attribute may be: its name in words, which errors have.
_SIZES, _SIZE, _DTYPE, _FLAG = "a list of sizes", "a size", "a dtype", "True or False"
_SETTINGS = "settings of torchao"


class _Class(NamedTuple):
    """A class that is read.

    Attributes
    ----------
    module : str
    tensors, optional_tensors : tuple of str
        What it is made of; the latter may be None or missing.
    attributes : dict of str to str
        What else it has in the metadata, in torchao's order, and what each may be.
    needed : tuple of str
        Those without which it is not understood.
    per_byte : int
        Codes in an item of `qdata`; of MXTensor that follows from `elem_dtype`.
    """

    module: str
    tensors: tuple[str, ...]
    optional_tensors: tuple[str, ...]
    attributes: dict[str, str]
    needed: tuple[str, ...] = ()
    per_byte: int = 1


_FLOAT8 = {
    "block_size": _SIZES,
    "mm_config": _SETTINGS,
    "act_quant_kwargs": _SETTINGS,
    "kernel_preference": _SETTINGS,
}
_CLASSES = {
    "Float8Tensor": _Class(
        "torchao.quantization", ("qdata", "scale"), (), {**_FLOAT8, "dtype": _DTYPE}
    ),
    "PrototypeFloat8Tensor": _Class(
        "torchao.prototype.quantization.float8_static_quant.prototype_float8_tensor",
        ("qdata", "scale"),
        ("act_quant_scale", "output_act_quant_scale"),
        {**_FLOAT8, "dtype": _DTYPE, "output_act_quant_kwargs": _SETTINGS},
    ),
    "Int4Tensor": _Class(
        "torchao.quantization",
        ("qdata", "scale", "zero_point"),
        ("act_pre_scale",),
        {"activation_dtype": _DTYPE, "block_size": _SIZES, "shape": _SIZES},
        ("block_size",),
        2,
    ),
    "Int8Tensor": _Class(
        "torchao.quantization",
        ("qdata", "scale"),
        ("zero_point", "act_quant_scale", "act_quant_zero_point", "act_pre_scale"),
        {
            "act_quant_kwargs": _SETTINGS,
            "reduce_range": _FLAG,
            "block_size": _SIZES,
            "dtype": _DTYPE,
        },
        ("block_size",),
    ),
    "IntxUnpackedToInt8Tensor": _Class(
        "torchao.quantization",
        ("qdata", "scale", "zero_point"),
        (),
        {
            "target_dtype": _DTYPE,
            "block_size": _SIZES,
            "dtype": _DTYPE,
            "activation_quantization": _SETTINGS,
        },
        ("block_size",),
    ),
    "MXTensor": _Class(
        "torchao.prototype.mx_formats.mx_tensor",
        ("qdata", "scale"),
        (),
        {
            "elem_dtype": _DTYPE,
            "block_size": _SIZE,
            "orig_dtype": _DTYPE,
            "kernel_preference": _SETTINGS,
            "act_quant_kwargs": _SETTINGS,
            "is_swizzled_scales": _FLAG,
        },
        ("elem_dtype", "block_size"),
    ),
    "NVFP4Tensor": _Class(
        "torchao.prototype.mx_formats.nvfp4_tensor",
        ("qdata", "scale"),
        ("per_tensor_scale", "act_per_tensor_scale"),
        {
            "is_swizzled_scales": _FLAG,
            "use_triton_kernel": _FLAG,
            "act_quant_kwargs": _SETTINGS,
            "block_size": _SIZE,
            "orig_dtype": _DTYPE,
        },
        ("block_size",),
        2,
    ),
}
_OF_WRAPPERS = ("dtype", "shape")  # attributes that every tensor has, and no state
_OF_OTHER_VERSIONS = frozenset(  # of how to multiply with a weight, or how it was made
    ("hp_value_lb", "hp_value_ub", "mm_config", "gemm_kernel_choice", "pack_fp6", "granularity")
)
_ROW_MAJOR = ("MXTensor", "NVFP4Tensor", "Int4Tensor")  # whose codes and scales lie along rows

# Classes that are named and not read, and why.
_PACKED = "whose codes lie as one kind of processor wants them, which only its own kernels undo"
_SPARSE = "a sparse matrix in the layout of a GPU's kernels"
_GONE = "which torchao no longer has; quantise the model with torchao 0.14 or later"
_RARE = "which is not decoded"
_UNREAD = {
    _PACKED: {
        "torchao.quantization": "Int4PlainInt32Tensor Int4PreshuffledTensor IntxOpaqueTensor "
        "Int4TilePackedTo4dTensor Int4MarlinSparseTensor Int4OpaqueTensor",
        "torchao.prototype.quantization.int4": "Int4OpaqueTensor",
        "torchao.prototype.float8_opaque_tensor": "Float8OpaqueTensor",
        "torchao.prototype.quantization.int8_lut_tensor.int8_lut_tensor": "Int8LutTensor",
        "torchao.prototype.quantization.uintx.uintx_bit_packed_tensor": "UIntxBitPackedTensor",
    },
    _SPARSE: {
        "torchao.quantization.quantize_.workflows.float8."
        "float8_sparse_2x4_1d_data_1d_metadata_tensor": "Float8Sparse2x4_1DData1DMetadataTensor",
        "torchao.quantization.quantize_.workflows.float8."
        "float8_sparse_2x4_2d_data_2d_metadata_tensor": "Float8Sparse2x4_2DData2DMetadataTensor",
        "torchao.sparsity.blocksparse": "BlockSparseTensor",
        "torchao.prototype.sparsity.superblock.blocksparse": "BlockSparseTensor",
    },
    _GONE: {
        "torchao.dtypes.affine_quantized_tensor": "AffineQuantizedTensor",
        "torchao.quantization.linear_activation_quantized_tensor": (
            "LinearActivationQuantizedTensor"
        ),
        "torchao.quantization.linear_activation_scale": (
            "WeightTensorWithLinearActivationScaleMetadata"
        ),
        "torchao.quantization.weight_tensor_linear_activation_quantization": (
            "WeightTensorWithLinearActivationQuantizationMetadata"
        ),
        "torchao.quantization.linear_activation_weight_observed_tensor": (
            "LinearActivationWeightObservedTensor"
        ),
        "torchao.dtypes.floatx.float8_layout": "Float8AQTTensorImpl",
        "torchao.dtypes.floatx.floatx_tensor_core_layout": "FloatxTensorCoreAQTTensorImpl",
        "torchao.dtypes.floatx.cutlass_semi_sparse_layout": "CutlassSemiSparseTensorImpl",
        "torchao.dtypes.uintx.plain_layout": "PlainAQTTensorImpl",
        "torchao.dtypes.uintx.tensor_core_tiled_layout": (
            "TensorCoreTiledAQTTensorImpl Int4CPUAQTTensorImpl"
        ),
        "torchao.dtypes.uintx.int4_cpu_layout": "Int4CPUAQTTensorImpl",
        "torchao.dtypes.uintx.int4_xpu_layout": "Int4XPUAQTTensorImpl",
        "torchao.dtypes.uintx.dyn_int8_act_int4_wei_cpu_layout": "DA8W4CPUAQTTensorImpl",
        "torchao.dtypes.uintx.uintx_layout": "UintxTensor UintxAQTTensorImpl",
        "torchao.dtypes.uintx.uint4_layout": "UInt4Tensor",
        "torchao.dtypes.uintx.marlin_qqq_layout": "MarlinQQQTensor MarlinQQQAQTTensorImpl",
        "torchao.dtypes.uintx.marlin_qqq_tensor": "MarlinQQQTensor MarlinQQQAQTTensorImpl",
        "torchao.dtypes.uintx.marlin_sparse_layout": "MarlinSparseAQTTensorImpl",
        "torchao.dtypes.uintx.semi_sparse_layout": "SemiSparseAQTTensorImpl",
        "torchao.dtypes.uintx.block_sparse_layout": "BlockSparseAQTTensorImpl",
        "torchao.dtypes.uintx.cutlass_int4_packed_layout": "Int4PackedTensorImpl",
        "torchao.dtypes.uintx.gemlite_layout": "GemliteAQTTensorImpl",
        "torchao.dtypes.uintx.q_dq_layout": "QDQTensorImpl",
        "torchao.dtypes.uintx.packed_linear_int8_dynamic_activation_intx_weight_layout": (
            "PackedLinearInt8DynamicActivationIntxWeightAQTTensorImpl"
        ),
        "torchao.dtypes.fbgemm_fp8_tensor": "FbgemmFp8Tensor",
        "torchao.dtypes.fbgemm_int4_tensor": "FbgemmInt4Tensor",
        "torchao.quantization.quantize_.int4_groupwise_preshuffle_tensor": (
            "Int4GroupwisePreshuffleTensor"
        ),
    },
    _RARE: {
        "torchao.dtypes.nf4tensor": "NF4Tensor",
        "torchao.quantization.quantize_.workflows.nf4.nf4_tensor": "NF4Tensor",
        "torchao.float8.float8_tensor": "Float8Tensor",
        "torchao.float8.float8_training_tensor": "Float8TrainingTensor",
        "torchao.prototype.quantization.gguf.gguf_quantized_tensor": "GGUFQuantizedTensor",
        "torchao.prototype.quantization.codebook.codebook_quantized_tensor": (
            "CodebookQuantizedTensor"
        ),
        "torchao.prototype.quantization.codebook_coreml.codebook_quantized_tensor": (
            "CodebookQuantizedTensor"
        ),
        "torchao.prototype.quantization.codebook_groupwise.codebook_quantized_tensor": (
            "CodebookQuantizedPackedTensor"
        ),
        "torchao.prototype.quantized_training.int8": "Int8QuantizedTrainingLinearWeight",
        "torchao.prototype.quantized_training.int8_mixed_precision": (
            "Int8MixedPrecisionTrainingLinearWeight"
        ),
        "torchao.prototype.quantized_training.bitnet": (
            "BitNetTrainingLinearWeight BitNetPacked2bitLinearWeight"
        ),
        **{
            f"torchao.{where}.subclass_{kind}": f"OptimState{kind.capitalize()}"
            for where in ("optim", "prototype.low_bit_optim")
            for kind in ("8bit", "4bit", "fp8")
        },
    },
}

# Enums, by their values: the names that torchao's metadata have are these in upper case, or listed.
_ENUMS: dict[str, tuple[str, ...]] = {
    "torchao.quantization.quantize_.common.kernel_preference.KernelPreference": (),
    "torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor."
    "IntxUnpackedToInt8TensorActivationQuantization": (),
    "torchao.quantization.quantize_.workflows.float8.float8_packing_format.Float8PackingFormat": (),
    "torchao.quantization.quantize_.workflows.intx.intx_packing_format.IntxPackingFormat": (),
    "torchao.prototype.mx_formats.config.ScaleCalculationMode": (),
    "torchao.prototype.mx_formats.mx_tensor.ScaleCalculationMode": (),
    "torchao.prototype.mx_formats.config.MXGemmKernelChoice": (),
    "torchao.prototype.mx_formats.nvfp4_tensor.NVFP4MMConfig": (),
    "torchao.quantization.quant_primitives.MappingType": (
        *("", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"),
    ),
    "torchao.quantization.quant_primitives.ZeroPointDomain": ("", "INT", "FLOAT", "NONE"),
}

# Dataclasses and named tuples of settings, with the fields of the latter; layouts; and functions
# that quantise activations, which are merely named.
_SETTINGS_OF = {
    "torchao.float8.inference": "Float8MMConfig",
    "torchao.quantization.granularity": "PerTensor PerRow PerBlock PerGroup PerAxis PerToken",
    "torchao.quantization.quantize_.workflows.float8.float8_tensor": "QuantizeTensorToFloat8Kwargs",
    "torchao.quantization.quantize_.workflows.int8.int8_tensor": "QuantizeTensorToInt8Kwargs",
    "torchao.prototype.mx_formats.mx_tensor": "QuantizeTensorToMXKwargs",
    "torchao.prototype.mx_formats.nvfp4_tensor": "QuantizeTensorToNVFP4Kwargs",
    "torchao.dtypes.utils": "PlainLayout Layout",
    "torchao.dtypes.floatx.float8_layout": "Float8Layout",
    "torchao.dtypes.floatx.floatx_tensor_core_layout": "FloatxTensorCoreLayout",
    "torchao.dtypes.floatx.cutlass_semi_sparse_layout": "CutlassSemiSparseLayout",
    "torchao.dtypes.uintx.tensor_core_tiled_layout": "TensorCoreTiledLayout Int4CPULayout",
    "torchao.dtypes.uintx.int4_cpu_layout": "Int4CPULayout",
    "torchao.dtypes.uintx.int4_xpu_layout": "Int4XPULayout",
    "torchao.dtypes.uintx.dyn_int8_act_int4_wei_cpu_layout": "Int8DynamicActInt4WeightCPULayout",
    "torchao.dtypes.uintx.uintx_layout": "UintxLayout",
    "torchao.dtypes.uintx.marlin_qqq_layout": "MarlinQQQLayout",
    "torchao.dtypes.uintx.marlin_qqq_tensor": "MarlinQQQLayout",
    "torchao.dtypes.uintx.marlin_sparse_layout": "MarlinSparseLayout",
    "torchao.dtypes.uintx.semi_sparse_layout": "SemiSparseLayout",
    "torchao.dtypes.uintx.block_sparse_layout": "BlockSparseLayout",
    "torchao.dtypes.uintx.cutlass_int4_packed_layout": "CutlassInt4PackedLayout",
    "torchao.dtypes.uintx.gemlite_layout": "GemlitePackedLayout",
    "torchao.dtypes.uintx.q_dq_layout": "QDQLayout",
    "torchao.dtypes.uintx.packed_linear_int8_dynamic_activation_intx_weight_layout": (
        "PackedLinearInt8DynamicActivationIntxWeightLayout Target"
    ),
    "torchao.quantization.quant_api": (
        "_int8_asymm_per_token_quant _int8_symm_per_token_quant _uint8_asymm_per_token_quant "
        "_int8_symm_per_token_reduced_range_quant _int8_symm_per_token_reduced_range_quant_cutlass "
        "_int8_symm_per_token_reduced_range_quant_noop_decode _int8_symm_cutlass_quant "
        "_int4_symm_cutlass_quant _int4_symm_per_token_quant_cutlass "
        "_input_activation_quant_func_fp8"
    ),
}
_FIELDS = {
    "torchao.float8.inference.Float8MMConfig": ("emulate", "use_fast_accum", "pad_inner_dim")
}


def _paths(rows: dict[str, str]) -> Iterator[str]:
    for module, names in rows.items():
        yield from (f"{module}.{name}" for name in names.split())


_READ = {f"{row.module}.{name}": row for name, row in _CLASSES.items()}
_WHY = {path: why for why, rows in _UNREAD.items() for path in _paths(rows)}
_INERT = frozenset(_paths(_SETTINGS_OF))


def known(module: str, name: str) -> Global | None:
    """Return the stand-in for a global of torchao; None for one that no tensor needs."""
    path = f"{module}.{name}"
    if path in _READ or path in _WHY:
        return SubclassGlobal(module, name)
    return Global(module, name) if path in _ENUMS or path in _INERT else None


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
        if path in _WHY:
            raise _Unfit(_WHY[path])
        return _flat(made, _READ[path], _attributes_of(made), visit)
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


def _flat(made: Wrapper, row: _Class, state: dict[str, Any], visit: Callable[[int], None]) -> Flat:
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
        if name in row.attributes and name not in _OF_WRAPPERS:
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


def _says_nothing(name: str, value: Any, row: _Class) -> bool:
    """Tell whether an attribute says nothing of values: `_is_param` and the like."""
    if name in row.optional_tensors:
        return value is None
    is_inert = type(value) in SCALARS or type(value) is Call
    return is_inert and (name.startswith("_") or name in _OF_OTHER_VERSIONS)


def _called(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


# --- attributes ---------------------------------------------------------------------------------


def _checked(name: str, value: Any, row: _Class, visit: Callable[[int], None]) -> Any:
    """Return an attribute as torchao's metadata have it."""
    wanted = row.attributes[name]
    if value is None and name not in row.needed:
        return None
    if wanted == _SIZES:
        if type(value) not in (list, tuple) or len(value) > 64 or not all(map(_is_size, value)):
            raise _Unfit(f"whose {name} is not {wanted}")
        return list(value)
    fits = {
        _SIZE: _is_size(value),
        _FLAG: type(value) is bool,
        _DTYPE: _dtype_name(value) is not None or (name == "elem_dtype" and type(value) is str),
        _SETTINGS: type(value) is Call,
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
    if path in _ENUMS:
        return {"_type": value.function.name, "_data": _member(value, _ENUMS[path])}
    if path not in _INERT:
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
    fields = dict(zip(_FIELDS.get(path, ()), made.args, strict=False))
    for state in made.states:
        if type(state) is dict:
            visit(len(state))
            fields.update(state)
    if len(made.args) > len(_FIELDS.get(path, ())) or not all(type(key) is str for key in fields):
        raise _Unfit(f"which has no {made.function} as torchao writes it among its settings")
    return fields


# --- shapes -------------------------------------------------------------------------------------


def _check_shapes(
    made: Wrapper, row: _Class, tensors: dict[str, TorchTensor], data: dict[str, Any]
) -> None:
    """Refuse what does not agree with what the tensor says of itself.

    torchao takes the shape from `qdata`, and most classes what shares a scale from `block_size`.
    """
    codes, scale = tensors["qdata"], tensors["scale"]
    name = made.kind.name
    if name in _ROW_MAJOR:
        if len(codes.shape) < 2:
            raise _Unfit(f"whose qdata has the shape {list(codes.shape)}")
        if codes.strides[-2] < codes.strides[-1] and min(codes.shape[-2:]) > 1:
            raise _Unfit("which is stored transposed")
    per_byte = row.per_byte
    if name == "MXTensor":
        element = data["elem_dtype"]
        element = element if type(element) is str else element["_data"]
        if "fp6" in element or "float6" in element:
            raise _Unfit(f"of {element}, one code to a byte, {_RARE}")
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
