"""Which models can be written, by the name that the benchmarks take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .models import (
    write_awq,
    write_bf16,
    write_fp4,
    write_fp8,
    write_gguf_f16,
    write_gptq,
    write_gptq_act_order,
    write_int8,
    write_legacy_pth,
    write_nf4,
    write_nf4_double,
    write_npz,
    write_npz_deflated,
    write_pth,
    write_q4_k,
    write_transposed_pth,
)
from .modern_models import MODERN

FAMILIES: dict[str, Callable[[Path, int], None]] = {
    "bf16": write_bf16,
    "gguf-f16": write_gguf_f16,
    "fp8": write_fp8,
    "q4_k": write_q4_k,
    "gptq": write_gptq,
    "gptq-act-order": write_gptq_act_order,
    "awq": write_awq,
    "npz": write_npz,
    "npz-deflated": write_npz_deflated,
    "nf4": write_nf4,
    "nf4-double": write_nf4_double,
    "fp4": write_fp4,
    "int8": write_int8,
    "pth": write_pth,
    "pth-legacy": write_legacy_pth,
    "pth-transposed": write_transposed_pth,
    **MODERN,
}
