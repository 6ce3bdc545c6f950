"""Every row of the .def files has what a kernel needs; no fast one has quietly become scalar."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess

import bitsandbytes.functional
import kernel_cases
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from kernel_cases import ggml_c, load_by_path

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES

IS_X86_64 = platform.machine().lower() in {"x86_64", "amd64"}
BOTH = ("scalar", "avx2") if IS_X86_64 else ("scalar",)
AVX2_ONLY = ("avx2",) if IS_X86_64 else ()

# The native levels of every kernel. A new row, or another letter in one, belongs here too.
NATIVE = {
    ("scaled", "F8_E4M3"): BOTH,
    ("scaled", "F8_E5M2"): BOTH,
    ("scaled", "F8_E4M3FNUZ"): BOTH,
    ("scaled", "F8_E5M2FNUZ"): BOTH,
    ("scaled_bf16", "F8_E4M3"): AVX2_ONLY,
    ("scaled_bf16", "F8_E5M2"): AVX2_ONLY,
    ("scaled_bf16", "F8_E4M3FNUZ"): AVX2_ONLY,
    ("scaled_bf16", "F8_E5M2FNUZ"): AVX2_ONLY,
    ("absmax", "CODEBOOK4"): BOTH,
    ("absmax", "INT8"): BOTH,
    ("absmax_16", "CODEBOOK4"): AVX2_ONLY,
    ("absmax_16", "INT8"): AVX2_ONLY,
    ("convert", "F64"): BOTH,
    ("convert", "F32"): BOTH,
    ("convert", "F16"): BOTH,
    ("convert", "BF16"): BOTH,
    ("scale", "F8_E8M0"): BOTH,
    ("output", "BF16"): BOTH,
    ("output", "F16"): BOTH,
    ("output", "F32"): BOTH,
    **{("packed", name): BOTH for name in ("GPTQ2", "GPTQ3", "GPTQ4", "GPTQ8", "AWQ4")},
    **{("packed_16", name): AVX2_ONLY for name in ("GPTQ2", "GPTQ3", "GPTQ4", "GPTQ8", "AWQ4")},
    **{("integers", name): BOTH for name in ("INT8", "PACKED4", "PACKED8")},
    **{("amax", name): BOTH for name in ("F32", "F16", "BF16")},
    **{("range", name): BOTH for name in ("F32", "F16", "BF16")},
    **{("quantize", name): BOTH for name in ("F8_E4M3", "F8_E5M2", "INT8", "INT4")},
    **{("block", row.name): BOTH for row in _core.block_types()},
    **{("block_bf16", row.name): AVX2_ONLY for row in _core.block_types()},
}


def test_native_levels() -> None:
    assert {(kernel.family, kernel.name): kernel.native for kernel in _core.kernels()} == NATIVE


def test_levels_of_this_architecture() -> None:
    assert tuple(_core.LEVELS) == (("scalar", "avx2") if IS_X86_64 else ("scalar",))


def test_tables_are_those_of_the_kernels() -> None:
    def names(*families: str) -> list[str]:
        return [kernel.name for kernel in _core.kernels() if kernel.family in families]

    assert list(_core.CODES) == names("scaled") == names("scaled_bf16")
    assert list(_core.ABSMAX) == names("absmax") == names("absmax_16")
    assert list(_core.FLOATS) == names("convert")
    assert list(_core.SCALES) == names("convert", "scale")
    assert list(_core.OUTPUTS) == names("output")
    assert list(_core.PACKINGS) == names("packed") == names("packed_16")
    assert list(_core.INTEGERS) == names("integers")
    assert list(_core.SOURCES) == names("amax") == names("range")
    assert list(_core.QUANTIZERS) == names("quantize")
    assert list(_core.BLOCKS) == names("block") == names("block_bf16")


@pytest.mark.parametrize(
    "kernel", _core.kernels(), ids=lambda kernel: f"{kernel.family}-{kernel.name}"
)
def test_has_an_oracle(kernel: _core.Kernel) -> None:
    """The oracles' tests run over _core's tables; an oracle must know each name in them."""
    if kernel.family in ("block", "block_bf16"):
        assert ggml_c.ggml().traits(_core.BLOCKS[kernel.name]).name.upper() == kernel.name
    elif kernel.family in ("absmax", "absmax_16"):
        oracle = {"CODEBOOK4": "dequantize_4bit", "INT8": "int8_vectorwise_dequant"}
        assert callable(getattr(bitsandbytes.functional, oracle[kernel.name]))
    elif kernel.family in ("integers", "quantize") and kernel.name[:2] != "F8":
        layouts = ("pack-quantized", "int-quantized")
        assert all(BaseCompressor.get_value_from_registry(layout) for layout in layouts)
    elif not kernel.family.startswith("packed"):  # GPTQModel and AutoAWQ name no packing
        assert isinstance(getattr(torch, DTYPES[kernel.name].torch_name), torch.dtype)
    covered = {
        "block": kernel_cases.BLOCKS,
        "block_bf16": kernel_cases.BLOCKS,
        "scaled": kernel_cases.CODES,
        "scaled_bf16": kernel_cases.CODES,
        "absmax": kernel_cases.ABSMAX,
        "absmax_16": kernel_cases.ABSMAX,
        "convert": kernel_cases.FLOATS,
        "scale": kernel_cases.SCALES,
        "output": kernel_cases.OUTPUTS,
        "integers": kernel_cases.INTEGERS,
        "amax": kernel_cases.SOURCES,
        "range": kernel_cases.SOURCES,
        "quantize": kernel_cases.QUANTIZERS,
        "packed": kernel_cases.PACKINGS,
        "packed_16": kernel_cases.PACKINGS,
    }
    assert kernel.name in covered[kernel.family]


def test_every_kernel_has_a_benchmark() -> None:
    benchmarks = load_by_path("asv_benchmarks/benchmarks/kernels.py")
    measured = {(family, name) for family, names in benchmarks.MEASURED.items() for name in names}
    assert measured == set(NATIVE)


def test_every_kernel_is_fuzzed() -> None:
    fuzz = load_by_path("fuzz/fuzz_kernels.py")
    fuzzed = {(family, name) for family, names in fuzz.FUZZED.items() for name in names}
    assert fuzzed == set(NATIVE)


def test_no_fused_multiply_add() -> None:
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("needs objdump")
    listing = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", _core.__file__],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    fused = re.compile(r"\s(vfn?m(add|sub)\w*|fn?m(add|sub)|fml[as])\s")
    assert not fused.findall(listing)
    if "avx2" in kernel_cases.SUPPORTED:
        assert "%ymm" in listing  # the listing is of the right thing
