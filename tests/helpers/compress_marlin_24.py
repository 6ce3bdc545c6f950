"""A program: what compressed-tensors' Marlin24Compressor makes of 2:4 sparse weights.

    python compress_marlin_24.py FOLDER   # packed.safetensors, vllm.safetensors, want.safetensors

Needs a version that has the compressor. Beside its names are those of vLLM's `marlin_24`, whose
scales are permuted by the same function, but told of all in features.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.sparse_quantized_compressors import marlin_24
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.utils import mask_creator
from safetensors.torch import save_file

__all__: list[str] = []

SHAPES = ((64, 128), (64, 256), (192, 384), (128, 1024))


def main(folder: Path) -> None:
    packed: dict[str, torch.Tensor] = {}
    vllm: dict[str, torch.Tensor] = {}
    want: dict[str, torch.Tensor] = {}
    for bits in (4, 8):
        for size in (128, None):
            for rows, cols in SHAPES:
                name = f"b{bits}.{'group' if size else 'channel'}.m{rows}x{cols}"
                generator = torch.Generator().manual_seed(rows * cols + bits)
                weight = torch.randn((rows, cols), generator=generator)
                weight *= mask_creator(weight)
                kind = (
                    {"strategy": "group", "group_size": size} if size else {"strategy": "channel"}
                )
                args = QuantizationArgs(num_bits=bits, symmetric=True, **kind)
                groups = weight.unflatten(1, (-1, size or cols))
                scale = (groups.abs().amax(-1) / (2 ** (bits - 1) - 0.5)).half()
                state = {f"{name}.weight": weight, f"{name}.weight_scale": scale}
                scheme = QuantizationScheme(targets=["Linear"], weights=args)
                compressor = BaseCompressor.load_from_registry("marlin-24")
                made = compressor.compress(state, {name: scheme})
                packed |= made
                scales = marlin_24.pack_scales_24(
                    scale.T.contiguous(), args, torch.Size((cols, rows))
                )
                vllm[f"{name}.B_24"] = made[f"{name}.weight_packed"]
                vllm[f"{name}.B_meta"] = made[f"{name}.meta"]
                vllm[f"{name}.s"] = scales
                vllm[f"{name}.workspace"] = torch.zeros(16, dtype=torch.int32)
                codes = quantize(weight.half(), scale, None, args).to(torch.int8)
                want[f"{name}.weight"] = dequantize(codes, scale.float(), args=args)
                want[f"{name}.weight:f16"] = dequantize(codes, scale, args=args)
    for file, tensors in (("packed", packed), ("vllm", vllm), ("want", want)):
        whole = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        save_file(whole, folder / f"{file}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
