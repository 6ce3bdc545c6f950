"""Every row of the .def files has what a kernel needs; no fast one has quietly become scalar.

That each was compared with an oracle is recorded as those tests run: see oracle_record.py.
"""

from __future__ import annotations

import importlib
import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from anamnesis import _core
from anamnesis.schemes import ggml
from helpers import kernel_calls, oracle_record
from helpers.kernel_calls import Blocks, load_by_path, run
from helpers.oracle_record import Ran, watched

VECTORS = {
    "x86_64": ("avx2", "avx512"),
    "amd64": ("avx2", "avx512"),
    "aarch64": ("neon",),
    "arm64": ("neon",),
}.get(platform.machine().lower(), ())  # fmt: skip
ALL = ("scalar", *VECTORS)

PACKED = (
    *("GPTQ2", "GPTQ3", "GPTQ4", "GPTQ8", "EXL5", "EXL6", "AWQ4"),
    *(f"GPTQP{bits}" for bits in (3, 5, 6, 7)),
)
INTEGERS = (
    *("INT4", "INT8", *(f"PACKED{bits}" for bits in range(1, 9))),
    *(f"PADDED{bits}" for bits in (3, 5, 6, 7)),
)

# The native levels of every kernel. A new row, or another letter in one, belongs here too.
NATIVE = {
    ("scaled", "F8_E4M3"): ALL,
    ("scaled", "F8_E5M2"): ALL,
    ("scaled", "F8_E4M3FNUZ"): ALL,
    ("scaled", "F8_E5M2FNUZ"): ALL,
    ("scaled_bf16", "F8_E4M3"): VECTORS,
    ("scaled_bf16", "F8_E5M2"): VECTORS,
    ("scaled_bf16", "F8_E4M3FNUZ"): VECTORS,
    ("scaled_bf16", "F8_E5M2FNUZ"): VECTORS,
    ("absmax", "CODEBOOK4"): ALL,
    ("absmax", "CODEBOOK4_LOW"): ALL,
    ("absmax", "INT8"): ALL,
    ("absmax_16", "CODEBOOK4"): VECTORS,
    ("absmax_16", "CODEBOOK4_LOW"): VECTORS,
    ("absmax_16", "INT8"): VECTORS,
    ("convert", "F64"): ALL,
    ("convert", "F32"): ALL,
    ("convert", "F16"): ALL,
    ("convert", "BF16"): ALL,
    ("scale", "F8_E8M0"): ALL,
    ("output", "BF16"): ALL,
    ("output", "F16"): ALL,
    ("output", "F32"): ALL,
    **{("packed", name): ALL for name in PACKED},
    **{("packed_16", name): VECTORS for name in PACKED},
    **{("integers", name): ALL for name in INTEGERS},
    **{("integers_16", name): VECTORS for name in INTEGERS},
    **{("trellis", f"EXL3_{name}"): ALL for name in ("3INST", "MCG", "MUL1")},
    **{("amax", name): ALL for name in ("F32", "F16", "BF16")},
    **{("range", name): ALL for name in ("F32", "F16", "BF16")},
    **{("quantize", name): ALL for name in ("F8_E4M3", "F8_E5M2", "INT8", "INT4")},
    **{("quantize", name): ALL for name in kernel_calls.E2M1},
    **{("quantize", name): ALL for name in ("INT8_ABSMAX", "NF4", "FP4", "FP4_ZEROS")},
    **{("pack", f"PACKED{bits}"): ALL for bits in (2, 3, 4, 5, 6, 8)},
    **{("block", row.name): ALL for row in _core.block_types()},
    **{("block_bf16", row.name): VECTORS for row in _core.block_types()},
    **{("encode", name): ALL for name in _core.ENCODERS},
}


def test_native_levels() -> None:
    assert {(kernel.family, kernel.name): kernel.native for kernel in _core.kernels()} == NATIVE


def test_levels_of_this_architecture() -> None:
    assert tuple(_core.LEVELS) == ALL


def test_tables_are_those_of_the_kernels() -> None:
    def names(*families: str) -> list[str]:
        return [kernel.name for kernel in _core.kernels() if kernel.family in families]

    assert list(_core.CODES) == names("scaled") == names("scaled_bf16")
    assert list(_core.ABSMAX) == names("absmax") == names("absmax_16")
    assert list(_core.FLOATS) == names("convert")
    assert list(_core.SCALES) == names("convert", "scale")
    assert list(_core.OUTPUTS) == names("output")
    assert list(_core.PACKINGS) == names("packed") == names("packed_16")
    assert list(_core.INTEGERS) == names("integers") == names("integers_16")
    assert list(_core.TRELLISES) == names("trellis")
    assert list(_core.SOURCES) == names("amax") == names("range")
    assert list(_core.QUANTIZERS) == names("quantize")
    assert list(_core.PACKERS) == names("pack")
    assert list(_core.BLOCKS) == names("block") == names("block_bf16")
    assert list(_core.ENCODERS) == names("encode")


def test_every_kernel_has_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(kernel_calls.PROJECT)
    benchmarks = importlib.import_module("asv_benchmarks.benchmarks.kernels")
    measured = {(family, name) for family, names in benchmarks.MEASURED.items() for name in names}
    assert measured == set(NATIVE)


@pytest.fixture(scope="module")
def fuzzed() -> set[Ran]:
    """What some inputs of the fuzzers of kernels run."""
    fuzz, blocks = load_by_path("fuzz/fuzz_kernels.py"), load_by_path("fuzz/fuzz_encode_ggml.py")
    rng = np.random.default_rng(0)
    with watched() as ran:
        for _ in range(60):
            fuzz.check(rng.bytes(3000))
        blocks.check(b"\1" * 3000)
    return ran


@pytest.mark.parametrize("level", ALL)
def test_every_kernel_is_fuzzed(fuzzed: set[Ran], level: str) -> None:
    """By running: each row of a level does something with an input."""
    if level not in kernel_calls.SUPPORTED:
        pytest.skip(f"this machine has no level {level}")
    assert fuzzed >= {
        Ran(family, name, level) for (family, name), levels in NATIVE.items() if level in levels
    }


def test_watching_sees_what_runs() -> None:
    """And nothing else; a call that raises ran nothing."""
    block = Blocks("Q4_0", "BF16", 3)
    with watched() as ran:
        run(block, "scalar", (np.zeros(54, np.uint8),))
        with pytest.raises(ValueError, match="src is too short"):
            run(Blocks("Q8_0", "F32", 3), "scalar", (np.zeros(9, np.uint8),))
    assert ran == {Ran("block", "Q4_0", "scalar"), Ran("output", "BF16", "scalar")}
    with watched() as ran:
        ggml.dequantize(np.zeros(54, np.uint8), "Q4_0")
    best = kernel_calls.SUPPORTED[-1]
    family = "block_bf16" if best in NATIVE["block_bf16", "Q4_0"] else "block"
    assert ran == {Ran(family, "Q4_0", best), Ran("output", "BF16", best)}


def test_a_comparison_that_cannot_fail_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(oracle_record, "RECORD", str(tmp_path / "record"))
    monkeypatch.setattr(oracle_record, "FLIPS", True)
    monkeypatch.setattr(oracle_record, "_proven", set())
    block, data = Blocks("Q8_0", "BF16", 3), np.zeros(102, np.uint8)

    def blind() -> None:
        run(block, "scalar", (data,))

    def seeing() -> None:
        assert not any(run(block, "scalar", (data,))[0])

    with watched() as ran:
        blind()
    oracle_record.prove("blind", "ggml", ran, 0, blind)
    assert not (tmp_path / "record").exists()
    oracle_record.prove("seeing", "ggml", ran, 0, seeing)
    told = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert {(row["family"], row["name"], row["fails"]) for row in told} == {
        ("block", "Q8_0", True),
        ("output", "BF16", True),
    }


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
    fused = re.compile(
        r"^\s*([0-9a-f]+):\s+(?:vfn?m(?:add|sub)\w*|fn?m(?:add|sub)|fml[as])\s", re.M
    )
    places = [int(at, 16) for at in fused.findall(listing)]
    # product.c's, by its own words; what compilers fuse would be all over the kernels
    assert not places or max(places) - min(places) < 16 << 10
    if "avx2" in kernel_calls.SUPPORTED:
        assert "%ymm" in listing  # the listing is of the right thing
