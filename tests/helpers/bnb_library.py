"""What bitsandbytes and transformers make of weights, run by themselves: `python … ORIGINAL OUT`.

torch adds up a mean in an order that depends on threads and vectors. Here it has one thread and,
by ATEN_CPU_CAPABILITY, which has to be set before it is imported, the vectors of AVX2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import bitsandbytes.functional as library
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from helpers.encoder_oracles import DTYPES

FOUR_BIT = {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.bfloat16}
NESTED = {"bnb_4bit_use_double_quant": True}
SETTINGS = {
    "bnb-nf4": {**FOUR_BIT, "bnb_4bit_quant_type": "nf4"},
    "bnb-nf4-nested": {**FOUR_BIT, **NESTED, "bnb_4bit_quant_type": "nf4"},
    "bnb-fp4": FOUR_BIT,
    "bnb-fp4-nested": {**FOUR_BIT, **NESTED},
    "bnb-int8": {"load_in_8bit": True},
}
# Of numbers that are added up: fewer than a vector, parts of rows, every level, longer steps.
COUNTS = (*range(1, 70), 511, 512, 513, 16_384, 16_421, 600_007, 17_000_033)


def numbers(count: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(count)
    return np.abs(rng.standard_normal(count, np.float32) * np.float32(0.1))


def nested_cases() -> Iterator[tuple[str, torch.Tensor, str, int]]:
    """Weights by name, the kind of codes, and the block size."""
    rng = np.random.default_rng(11)
    for n in (1, 65, 1000, 16_385, 300_001):
        normal = rng.standard_normal(n).astype(np.float32)
        outlier = normal * np.float32(1e-3)
        outlier[n // 2] = 6e4
        made = {
            "normal": normal * np.float32(0.02),
            "zeros": normal * 0,
            "subnormal": normal * np.float32(1e-41),
            "outlier": outlier,
            "constant": np.full(n, 0.37, np.float32),
            "magnitudes": np.exp2(rng.uniform(-120, 60, n)).astype(np.float32),
        }
        for name, values in made.items():
            for i, (dtype, torch_dtype) in enumerate(DTYPES.items()):
                kind, block = ("nf4", "fp4")[n % 2 ^ i % 2], (64, 32, 4096)[i if n < 1e5 else 0]
                weight = torch.from_numpy(values).to(torch_dtype)
                if torch.isfinite(weight).all():
                    yield f"{name} {n} {dtype} {kind} {block}", weight, kind, block


def llama() -> LlamaConfig:
    return LlamaConfig(
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=96,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )


def main(original: Path, out: Path) -> None:
    torch.set_num_threads(1)
    states: dict[str, torch.Tensor] = {}
    for name, weight, kind, block in nested_cases():
        codes, state = library.quantize_4bit(
            weight, blocksize=block, quant_type=kind, compress_statistics=True
        )
        parts = {"": codes, **state.as_dict(packed=True)}
        states |= {f"{name}/{part}": tensor.clone() for part, tensor in parts.items()}
    save_file(states, out / "nested.safetensors")
    means = torch.stack([torch.from_numpy(numbers(count)).sum() for count in COUNTS])
    save_file({"sums": means}, out / "sums.safetensors")
    torch.manual_seed(3)
    LlamaForCausalLM(llama()).to(torch.bfloat16).save_pretrained(original)
    for name, settings in SETTINGS.items():
        config = BitsAndBytesConfig(**settings)
        model = AutoModelForCausalLM.from_pretrained(original, quantization_config=config)
        model.save_pretrained(out / name)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
