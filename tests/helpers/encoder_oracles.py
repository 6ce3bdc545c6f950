"""The canonical encoders, run: transformers' `Fp8Quantize`, compressed-tensors' compressors.

A result is what they store, by name, as bytes with dtype and shape left in torch's tensors.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import ml_dtypes
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    QuantizationStrategy,
)
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
from compressed_tensors.quantization.utils import (
    calculate_qparams,
    generate_gparam,
    maybe_pad_tensor_for_block_quant,
)
from numpy.typing import NDArray
from transformers.integrations import finegrained_fp8

Stored = dict[str, torch.Tensor]

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
NUMPY = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}


def array_of(values: torch.Tensor) -> NDArray[Any]:
    """The same in numpy."""
    if values.dtype == torch.bfloat16:
        return values.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return values.contiguous().numpy()


def raw(tensor: torch.Tensor) -> bytes:
    """Its bytes, row-major."""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()


def transformers(
    weight: torch.Tensor,
    block: tuple[int, int] | None,
    *,
    scale_fmt: str = "float",
    format: str = "e4m3",
) -> Stored:
    """What `Fp8Quantize` makes of a weight; for E5M2 with that dtype and its largest value."""
    config = SimpleNamespace(weight_block_size=block, scale_fmt=scale_fmt)
    op = finegrained_fp8.Fp8Quantize(SimpleNamespace(quantization_config=config))
    dtype = torch.float8_e4m3fn if format == "e4m3" else torch.float8_e5m2
    largest = torch.finfo(dtype).max
    with patch.multiple(finegrained_fp8, _FP8_DTYPE=dtype, _FP8_MAX=largest, _FP8_MIN=-largest):
        return op._quantize_one("q.weight", weight)


def padded(weight: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """A matrix with zeros behind it up to whole blocks, which `Fp8Quantize` does not do."""
    return maybe_pad_tensor_for_block_quant(weight, block)


def compressed_tensors(
    weight: torch.Tensor, layout: str, amax: torch.Tensor | None = None, **settings: Any
) -> Stored:
    """What compressed-tensors stores, its scales as llm-compressor's min-max observer has them.

    A global scale is that of `amax`, which a weight may share with others.
    """
    args = QuantizationArgs(**settings)
    least, largest = _extremes(weight, args)
    state = {"weight": weight}
    if args.strategy == QuantizationStrategy.TENSOR_GROUP:
        amax = _largest_of_all([(least, largest)]) if amax is None else amax
        state["weight_global_scale"] = generate_gparam(-amax, amax)
    global_scale = state.get("weight_global_scale")
    scale, zero_point = calculate_qparams(least, largest, args, global_scale)
    if args.strategy == QuantizationStrategy.CHANNEL:
        scale, zero_point = scale.reshape(-1, 1), zero_point.reshape(-1, 1)
    state["weight_scale"] = scale.to(weight.dtype)  # as the parameter that it is written to
    if not args.symmetric:
        state["weight_zero_point"] = zero_point
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(layout)
    return {f"q.{name}": tensor for name, tensor in compressor.compress(state, scheme).items()}


def _extremes(weight: torch.Tensor, args: QuantizationArgs) -> tuple[torch.Tensor, torch.Tensor]:
    """As llmcompressor's `flatten_for_calibration` and `_get_min_max` have them for a weight."""
    if args.strategy == QuantizationStrategy.TENSOR:
        values = weight.reshape(1, -1)
    elif args.strategy == QuantizationStrategy.CHANNEL:
        values = weight
    elif args.strategy in (QuantizationStrategy.GROUP, QuantizationStrategy.TENSOR_GROUP):
        values = weight.unflatten(-1, (-1, args.group_size))
    else:
        rows, cols = args.block_structure
        whole = padded(weight, (rows, cols))
        tiles = whole.reshape(whole.shape[0] // rows, rows, whole.shape[1] // cols, cols)
        values = tiles.transpose(1, 2).flatten(-2, -1)
    return values.amin(-1), values.amax(-1)


def _largest_of_all(extremes: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """As llmcompressor's `Observer.get_global_scale` has it of weights and their groups."""
    largest = extremes[0][1].max()
    for least, most in extremes:
        largest = torch.max(torch.max(largest, -least.min()), most.max())
    return largest.reshape(1)


def presets(kind: str) -> dict[str, Any]:
    """The settings of compressed-tensors' own preset for weights of NVFP4, MXFP4 or MXFP8."""
    scheme = preset_name_to_scheme(f"{kind}A16", ["Linear"])
    assert scheme.weights is not None
    return scheme.weights.model_dump()


def layout_of(kind: str) -> str:
    """What compressed-tensors calls the format."""
    return "mxfp8-quantized" if kind == "MXFP8" else f"{kind.lower()}-pack-quantized"


def grouped(kind: str, weight: torch.Tensor, amax: torch.Tensor | None = None) -> list[Any]:
    """Codes, scales and the global scale of NVFP4, MXFP4 or MXFP8, as compressed-tensors stores."""
    stored = compressed_tensors(weight, layout_of(kind), amax, **presets(kind))
    names = ("weight_packed", "weight", "weight_scale", "weight_global_scale")
    assert len(stored) == (3 if kind == "NVFP4" else 2)
    return [stored[f"q.{name}"] for name in names if f"q.{name}" in stored]


@cache
def _model_free() -> Any:
    """What llm-compressor's `model_free_ptq` makes files with.

    Its packages themselves are not run: they import what trains models, and data sets.
    """
    spec = find_spec("llmcompressor")
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    inner = ("entrypoints", "entrypoints.model_free", "modifiers", "modifiers.quantization")
    hollow: dict[str, ModuleType] = {"datasets": MagicMock()}
    for name in ("", *inner):
        module = ModuleType(f"llmcompressor.{name}".rstrip("."))
        module.__path__ = [str(root.joinpath(*name.split(".")))]
        hollow[module.__name__] = module
    with warnings.catch_warnings(), patch.dict(sys.modules, hollow):
        warnings.simplefilter("ignore")
        return import_module("llmcompressor.entrypoints.model_free.converter")


def llm_compressor(kind: str, tensors: Stored) -> Stored:
    """What llm-compressor's `model_free_ptq` makes of a file's tensors."""
    scheme = preset_name_to_scheme(f"{kind}A16", ["Linear"])
    scheme.format = layout_of(kind)
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=[])
    made: Stored = _model_free().ModelFreePtqConverter(config).process(dict(tensors))
    return made


def modelopt(kind: str, weight: torch.Tensor) -> list[torch.Tensor]:
    """The same as ModelOpt's tensors of that kind quantise it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        from modelopt.torch.quantization.qtensor import MXFP4QTensor, MXFP8QTensor, NVFP4QTensor

    if kind == "NVFP4":
        made, *scales = NVFP4QTensor.quantize(weight.clone(), 16)
    elif kind == "MXFP4":
        made, scale = MXFP4QTensor.quantize(weight, 32)
        scales = [scale.reshape(weight.shape[0], -1)]  # as it is exported
    else:
        made, *scales = MXFP8QTensor.quantize(weight)
    return [made._quantized_data, *scales]


def modelopt_fp8(kind: str, weight: torch.Tensor) -> list[torch.Tensor]:
    """A linear layer's codes and scales, as ModelOpt quantises and exports it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports, and of zeros
        import modelopt.torch.quantization as mtq
        from modelopt.torch.export.unified_export_hf import _export_quantized_weight

        config = {
            "channel": mtq.FP8_PER_CHANNEL_PER_TOKEN_CFG,
            "block": mtq.FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG,
        }[kind]
        rows, cols = weight.shape
        model = torch.nn.Sequential(torch.nn.Linear(cols, rows, bias=False, dtype=weight.dtype))
        model[0].weight.data = weight.clone()
        mtq.quantize(model, config, lambda model: model(torch.zeros(1, cols, dtype=weight.dtype)))
        _export_quantized_weight(model[0], weight.dtype)
    return [model[0].weight.data, model[0].weight_scale]


def weights(rows: int, cols: int, dtype: str, seed: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights as models have them, and as none has them, all finite; each with what it is."""
    rng = np.random.default_rng((seed, rows, cols))
    normal = rng.standard_normal((rows, cols)).astype(np.float32)
    outlier = normal.copy()
    outlier[rows // 2, cols // 2] = 6e4
    signs = rng.choice([-1, 0, 1], (rows, cols))
    made = {
        "normal": normal * np.float32(0.02),
        "heavy tails": rng.standard_t(2, (rows, cols)),
        "one outlier": outlier,
        "zeros": np.zeros((rows, cols)),
        "negative zeros": -np.zeros((rows, cols)),
        "constant": np.full((rows, cols), 0.37),
        "negative constant": np.full((rows, cols), -3.0),
        "whole numbers, with ties": rng.integers(-255, 256, (rows, cols)) / 2,
        "powers of two": np.exp2(rng.integers(-14, 15, (rows, cols))) * signs,
        "positive": np.abs(normal),
        "all magnitudes": np.exp2(rng.uniform(-140, 120, (rows, cols))) * signs,
        "subnormal": normal * np.float32(1e-40),
        "small": normal * np.float32(1e-30),
        "where reciprocals end": normal * np.float32(1e-36),
        "large": normal * np.float32(1e36),
        "any bits": rng.integers(0, 1 << 32, (rows, cols), dtype=np.uint32).view(np.float32),
    }
    for name, values in made.items():
        with np.errstate(all="ignore"):
            tensor = torch.from_numpy(np.asarray(values, np.float32)).to(DTYPES[dtype])
        yield name, torch.where(torch.isfinite(tensor), tensor, torch.zeros_like(tensor))
