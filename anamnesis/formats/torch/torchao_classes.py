"""The classes of torchao that pickles name: what each is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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

    module: str
    tensors: tuple[str, ...]
    optional_tensors: tuple[str, ...]
    attributes: tuple[str, ...]
    needed: tuple[str, ...] = ()
    is_row_major: bool = False


_FLOAT8 = ("block_size", "mm_config", "act_quant_kwargs", "kernel_preference", "dtype")
_CLASSES = {
    "Float8Tensor": TensorClass("torchao.quantization", ("qdata", "scale"), (), _FLOAT8),
    "PrototypeFloat8Tensor": TensorClass(
        "torchao.prototype.quantization.float8_static_quant.prototype_float8_tensor",
        ("qdata", "scale"),
        ("act_quant_scale", "output_act_quant_scale"),
        (*_FLOAT8, "output_act_quant_kwargs"),
    ),
    "Int4Tensor": TensorClass(
        "torchao.quantization",
        ("qdata", "scale", "zero_point"),
        ("act_pre_scale",),
        ("activation_dtype", "block_size", "shape"),
        ("block_size",),
        is_row_major=True,
    ),
    "Int8Tensor": TensorClass(
        "torchao.quantization",
        ("qdata", "scale"),
        ("zero_point", "act_quant_scale", "act_quant_zero_point", "act_pre_scale"),
        ("act_quant_kwargs", "reduce_range", "block_size", "dtype"),
        ("block_size",),
    ),
    "IntxUnpackedToInt8Tensor": TensorClass(
        "torchao.quantization",
        ("qdata", "scale", "zero_point"),
        (),
        ("target_dtype", "block_size", "dtype", "activation_quantization"),
        ("block_size",),
    ),
    "MXTensor": TensorClass(
        "torchao.prototype.mx_formats.mx_tensor",
        ("qdata", "scale"),
        (),
        (
            *("elem_dtype", "block_size", "orig_dtype"),
            *("kernel_preference", "act_quant_kwargs", "is_swizzled_scales"),
        ),
        ("elem_dtype", "block_size"),
        is_row_major=True,
    ),
    "NVFP4Tensor": TensorClass(
        "torchao.prototype.mx_formats.nvfp4_tensor",
        ("qdata", "scale"),
        ("per_tensor_scale", "act_per_tensor_scale"),
        (
            *("is_swizzled_scales", "use_triton_kernel"),
            *("act_quant_kwargs", "block_size", "orig_dtype"),
        ),
        ("block_size",),
        is_row_major=True,
    ),
}
OF_WRAPPERS = ("dtype", "shape")  # attributes that every tensor has, and no state
OF_OTHER_VERSIONS = frozenset(  # of how to multiply with a weight, or how it was made
    ("hp_value_lb", "hp_value_ub", "mm_config", "gemm_kernel_choice", "pack_fp6", "granularity")
)

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
ENUMS: dict[str, tuple[str, ...]] = {
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
FIELDS = {"torchao.float8.inference.Float8MMConfig": ("emulate", "use_fast_accum", "pad_inner_dim")}


def _paths(rows: dict[str, str]) -> Iterator[str]:
    for module, names in rows.items():
        yield from (f"{module}.{name}" for name in names.split())


READ = {f"{row.module}.{name}": row for name, row in _CLASSES.items()}
WHY = {path: why for why, rows in _UNREAD.items() for path in _paths(rows)}
INERT = frozenset(_paths(_SETTINGS_OF))
