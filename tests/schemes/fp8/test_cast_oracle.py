"""What 4-bit floats become as 8-bit ones, decoded by the libraries whose layouts these are."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load, save

import anamnesis as an
from helpers.fp8_layouts import quiet

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    from modelopt.torch.quantization.qtensor import MXFP4QTensor, MXFP8QTensor

pytestmark = pytest.mark.against("ModelOpt, compressed-tensors")

State = dict[str, torch.Tensor]
GENERATOR = torch.Generator().manual_seed(25)


def mxfp4(low: int) -> State:
    codes = torch.randint(0, 256, (256, 128), generator=GENERATOR).to(torch.uint8)
    scales = torch.randint(low, low + 15, (256, 8), generator=GENERATOR).to(torch.uint8)
    return {"a.weight_packed": codes, "a.weight_scale": scales}


def cast(state: State, target: str) -> State:
    model = an.parse(save(state))
    out = io.BytesIO()
    assert model.convert(out, target, lossless=True).recast
    return load(out.getvalue())


def decompressed(name: Any, state: State, **args: Any) -> torch.Tensor:
    weights = QuantizationArgs(type="float", dynamic=False, **args)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    own = {key.removeprefix("a."): tensor for key, tensor in state.items()}
    found: torch.Tensor = BaseCompressor.get_value_from_registry(name).decompress(own, scheme)[
        "weight"
    ]
    return found


@pytest.mark.parametrize("low", [1, 30, 105, 200, 239])
@pytest.mark.parametrize(
    ("target", "args"),
    [
        ("fp8-channel", {"strategy": "channel"}),
        ("fp8-tensor-ct", {"strategy": "tensor"}),
        ("fp8-block-ct", {"strategy": "block", "block_structure": [128, 128]}),
    ],
)
def test_compressed_tensors_decodes_the_values(target: str, args: Any, low: int) -> None:
    """As `float-quantized` what it decodes as `mxfp4-pack-quantized`."""
    state = mxfp4(low)
    ours = decompressed("mxfp4-pack-quantized", state, num_bits=4, strategy="group", group_size=32)
    theirs = decompressed("float-quantized", cast(state, target), num_bits=8, **args)
    assert quiet(theirs.bfloat16()) == quiet(ours.bfloat16())


def test_modelopt_decodes_the_values() -> None:
    """As MXFP8 what it decodes as MXFP4."""
    state = mxfp4(105)
    made = cast(state, "mxfp8-modelopt")
    codes, scales = state.values()
    before = MXFP4QTensor(torch.Size((256, 256)), torch.bfloat16, codes)
    after = MXFP8QTensor(torch.Size((256, 256)), torch.bfloat16, made["a.weight"])
    ours = before.dequantize(dtype=torch.bfloat16, scale=scales, block_sizes=[32])
    theirs = after.dequantize(dtype=torch.bfloat16, scale=made["a.weight_scale"])
    assert quiet(theirs) == quiet(ours)
