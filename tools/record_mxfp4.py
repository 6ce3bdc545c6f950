"""Write what transformers makes of gpt-oss's experts: `python tools/record_mxfp4.py`.

Its `quantize_to_mxfp4` calls `downcast_to_mxfp_torch` of OpenAI's triton_kernels, which no package
on PyPI is but a folder of vLLM's wheel; that imports Triton. Both are larger than tests should
install, so the answers are kept: put the wheel's `vllm/third_party` and Triton on PYTHONPATH. The
kernel that a GPU runs is run too, by Triton's interpreter, and must say the same.

    NAME/weight   any float [experts, in, out]        NAME/blocks   U8 [experts, in / 2, out]
                                                      NAME/scales   U8 [experts, in / 32, out]
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"  # before it is imported

import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import quantize_to_mxfp4
from triton_kernels.numerics_details import mxfp
from triton_kernels.numerics_details.mxfp_details import _downcast_to_mxfp as kernels

OUT = Path(__file__).parents[1] / "tests/schemes/recorded/mxfp4/gptoss.safetensors"
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
EXPERTS, INPUTS, OUTPUTS = 2, 64, 24


def usual() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield weights as models have them, and as none has them."""
    generator = torch.Generator().manual_seed(1)
    shape = (EXPERTS, INPUTS, OUTPUTS)
    normal = torch.randn(shape, generator=generator)
    signs = torch.randint(-1, 2, shape, generator=generator).float()
    yield "normal", normal / 50
    yield "zeros", signs * 0
    yield "magnitudes", torch.exp2(torch.rand(shape, generator=generator) * 250 - 140) * signs
    yield "subnormal", normal * 1e-40
    bits = torch.randint(-(2**31), 2**31 - 1, shape, generator=generator, dtype=torch.int64)
    yield "bits", bits.to(torch.int32).view(torch.float32)


def ties() -> torch.Tensor:
    """Return groups of 6 with every tie in them, and what is next to it, of each sign."""
    middle = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]).bfloat16().view(torch.int16)
    near = torch.cat([middle - 1, middle, middle + 1]).view(torch.bfloat16)
    row = torch.cat([near, torch.tensor([0, 1e-40, 1e-3]).bfloat16()])
    groups = torch.full((2, 32, row.numel()), 6.0).bfloat16()
    groups[0, 7], groups[1, 7] = row, -row
    return groups


def scales() -> torch.Tensor:
    """Return groups with a largest magnitude where exponents are rounded, of every exponent."""
    exponents = torch.arange(255, dtype=torch.int32)[:, None] << 7
    tops = torch.tensor([0, 1, 0x3F, 0x40, 0x41, 0x7F], dtype=torch.int32)
    largest = (exponents | tops).reshape(-1).to(torch.int16).view(torch.bfloat16)
    groups = torch.zeros((1, 32, largest.numel()), dtype=torch.bfloat16)
    shares = torch.linspace(-1, 1, 8)[:, None] * largest.float()
    groups[0, 3], groups[0, 17], groups[0, 5:13] = largest, -largest, shares.bfloat16()
    return groups


def cases() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all, by name and dtype; all finite, and as bfloat16 too."""
    yield "ties", ties()
    yield "scales", scales()
    for name, values in usual():
        for label, dtype in DTYPES.items():
            weight = values.to(dtype)
            is_finite = weight.bfloat16().isfinite()
            yield f"{name} {label}", torch.where(is_finite, weight, torch.zeros_like(weight))


def in_usual_groups(weight: torch.Tensor) -> torch.Tensor:
    """Tell which values are in groups without subnormal ones, which the interpreter has not."""
    groups = weight.float().abs().unflatten(1, (-1, 32))
    is_subnormal = (groups > 0) & (groups < 2.0**-126)
    usual = ~is_subnormal.any(dim=2, keepdim=True)
    return usual.expand(groups.shape).flatten(1, 2)


def main() -> None:
    """Write the file."""
    kernels.MXFP_BLOCK_SIZE = 32  # the interpreter takes a number, and no constexpr
    hub = SimpleNamespace(numerics_details=SimpleNamespace(mxfp=mxfp))
    tensors = {}
    for name, weight in cases():
        blocks, exponents = quantize_to_mxfp4(weight, hub)
        again = mxfp.downcast_to_mxfp(weight.bfloat16(), torch.uint8, axis=1)
        usual = in_usual_groups(weight.bfloat16())
        assert torch.equal(exponents[usual[:, ::32]], again[1][usual[:, ::32]]), name
        assert torch.equal(blocks[usual[:, ::2]], again[0][usual[:, ::2]]), name
        tensors[f"{name}/weight"] = weight.contiguous()
        tensors[f"{name}/blocks"] = blocks.contiguous()
        tensors[f"{name}/scales"] = exponents.contiguous()
    library = f"triton_kernels of vLLM {version('vllm')}, Triton {version('triton')}"
    OUT.parent.mkdir(exist_ok=True)
    save_file(tensors, OUT, {"library": f"{library}, transformers {version('transformers')}"})


if __name__ == "__main__":
    main()
