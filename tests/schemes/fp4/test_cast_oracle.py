"""What MXFP4 becomes as NVFP4: as ModelOpt casts it, and as each library decodes it."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load, save
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import anamnesis as an
from helpers.fp8_layouts import quiet

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    from modelopt.torch.export.shard_cast_utils import mxfp4_kmax, quantize_mxfp4_to_nvfp4_lossless
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

pytestmark = pytest.mark.against(
    "ModelOpt, compressed-tensors, transformers, gguf-py, comfy-kitchen"
)

State = dict[str, torch.Tensor]
GENERATOR = torch.Generator().manual_seed(25)
HIGHS = [18, 60, 120, 127, 200]  # of exponents that ModelOpt's own arithmetic, in BF16, has


def raw(*shape: int) -> torch.Tensor:
    """Codes, none of them 8, which is +0 to some."""
    codes = torch.randint(0, 256, shape, generator=GENERATOR).to(torch.uint8)
    low, high = codes & 15, codes >> 4
    return torch.where(low == 8, 0, low) | torch.where(high == 8, 0, high) << 4


def exponents(high: int, *shape: int) -> torch.Tensor:
    found = torch.randint(high - 17, high + 1, shape, generator=GENERATOR).to(torch.uint8)
    found.view(-1)[:2] = torch.tensor([high - 17, high])
    return found


def cast(state: State, target: str) -> tuple[an.Model, State]:
    model = an.parse(save(state))
    out = io.BytesIO()
    assert model.convert(out, target, lossless=True).recast
    return model, load(out.getvalue())


def values(model: an.Model) -> torch.Tensor:
    return torch.from_numpy(model["a.weight"].numpy(dtype="f32"))


@pytest.mark.parametrize("high", HIGHS)
def test_scales_are_those_of_modelopts_cast(high: int) -> None:
    """Also of groups of zeros, whose scale of 0 says so to ModelOpt."""
    codes, scales = raw(64, 32), exponents(high, 64, 2)
    scales[7, 1], codes[7, 16:] = 0, 0
    _, made = cast({"a.weight_packed": codes, "a.weight_scale": scales}, "nvfp4-modelopt")
    k_max = mxfp4_kmax(scales)
    own = quantize_mxfp4_to_nvfp4_lossless(codes, scales, k_max, "cpu")
    assert own[3] == own[4]  # blocks without loss
    assert torch.equal(made["a.weight"], own[0])
    assert torch.equal(made["a.weight_scale"].view(torch.uint8), own[1].view(torch.uint8))
    assert torch.equal(made["a.weight_scale_2"], own[2])


def test_what_modelopt_takes_for_zeros_is_not_cast() -> None:
    """A scale of 0 is 2^-127: its codes say whether they are zeros, and ModelOpt does not ask."""
    codes, scales = raw(64, 32), exponents(120, 64, 2)
    scales[7, 1], codes[7, 16:] = 0, 0x77
    own = quantize_mxfp4_to_nvfp4_lossless(codes, scales, mxfp4_kmax(scales), "cpu")
    assert own[3] == own[4]
    model = an.parse(save({"a.weight_packed": codes, "a.weight_scale": scales}))
    with pytest.raises(an.UnsupportedError, match="exponents of scales span more than 17"):
        model.plan("nvfp4-modelopt", lossless=True)


@pytest.mark.parametrize("high", [17, *HIGHS, 254])
def test_compressed_tensors_decodes_the_values(high: int) -> None:
    state = {"a.weight_packed": raw(64, 32), "a.weight_scale": exponents(high, 64, 2)}
    model, made = cast(state, "nvfp4")
    args = QuantizationArgs(
        num_bits=4, type="float", group_size=16, strategy="tensor_group", dynamic=False
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized")
    own = {key.removeprefix("a."): tensor for key, tensor in made.items()}
    found = compressor.decompress(own, scheme)["weight"]
    assert quiet(found.float()) == values(model).numpy().tobytes()


@pytest.mark.parametrize("high", [17, *HIGHS, 254])
def test_modelopt_decodes_the_values(high: int) -> None:
    state = {"a.weight": raw(64, 32), "a.weight_scale": exponents(high, 64, 2)}
    model, made = cast(state, "nvfp4-modelopt")
    tensor = NVFP4QTensor((64, 64), torch.float32, made["a.weight"])
    scales = {"scale": made["a.weight_scale"], "double_scale": made["a.weight_scale_2"]}
    found = tensor.dequantize(dtype=torch.float32, block_sizes={-1: 16}, **scales)
    assert quiet(found) == values(model).numpy().tobytes()


@pytest.mark.parametrize("high", [17, *HIGHS, 254])
def test_comfy_kitchen_decodes_the_values(high: int) -> None:
    eager = pytest.importorskip("comfy_kitchen.backends.eager.quantization")
    state = {"a.weight_packed": raw(64, 32), "a.weight_scale": exponents(high, 64, 2)}
    model, made = cast(state, "comfy-nvfp4")
    scales = made["a.weight_scale_2"], made["a.weight_scale"]
    found = eager.dequantize_nvfp4(made["a.weight"], *scales, torch.float32)
    assert quiet(found) == values(model).numpy().tobytes()


def test_gguf_py_decodes_the_values(tmp_path: Path) -> None:
    """Blocks alone, for it leaves the second scale to the graph."""
    state = {"a.weight_packed": raw(64, 32), "a.weight_scale": exponents(127 + 8, 64, 2)}
    model = an.parse(save(state))
    model.convert(tmp_path / "a.gguf", "gguf-nvfp4", lossless=True)
    (tensor,) = gguf.GGUFReader(tmp_path / "a.gguf").tensors
    found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    assert np.ascontiguousarray(found, np.float32).tobytes() == values(model).numpy().tobytes()


def test_transformers_decodes_what_was_nvfp4_as_gpt_oss_has_it() -> None:
    powers = torch.tensor([1, 2, 4, *range(8, 127, 8)], dtype=torch.uint8)
    chosen = powers[torch.randint(0, len(powers), (2, 32, 4), generator=GENERATOR)]
    state = {
        "a.weight_packed": raw(2, 32, 64),
        "a.weight_scale": chosen.repeat_interleave(2, -1).view(torch.float8_e4m3fn),
        "a.weight_global_scale": torch.tensor([2.0**20]),
    }
    model, made = cast(state, "gptoss-mxfp4")
    turned = convert_moe_packed_tensors(made["a_blocks"], made["a_scales"], dtype=torch.float32)
    assert quiet(turned.transpose(1, 2).contiguous()) == values(model).numpy().tobytes()
