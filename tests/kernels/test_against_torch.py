"""Scalar against torch's own decoding, run here; exhaustive where there are few inputs.

The other levels are compared with scalar in test_levels.py. Torch is needed: an import error is a
failure.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch

from anamnesis.base.dtypes import DTYPES
from helpers.kernel_calls import (
    CODES,
    FLOATS,
    OUTPUTS,
    SCALES,
    SUPPORTED,
    Case,
    Convert,
    Scaled,
    run,
)
from helpers.kernel_cases import random_inputs, scaled_cases
from helpers.torch_rounding import expected, overflow, torch_dtype

ALL_CODES = np.arange(256, dtype=np.uint8)


def as_tensor(raw: npt.NDArray[np.uint8], dtype: str) -> torch.Tensor:
    return torch.from_numpy(raw.copy()).view(torch_dtype(dtype))


def product(case: Scaled, inputs: tuple[npt.NDArray[np.uint8], ...]) -> torch.Tensor:
    """float32(code) * float32(scale), the grid spread out by indexing."""
    codes = as_tensor(inputs[0], case.code).to(torch.float32).reshape(case.rows, case.cols)
    scales = as_tensor(inputs[1], case.scale).to(torch.float32)
    row = (torch.arange(case.rows) + case.row_phase) // case.block_rows
    col = (torch.arange(case.cols) + case.col_phase) // case.block_cols
    return codes * scales[row[:, None] * case.grid_cols + col[None, :]]


def assert_scaled(
    case: Scaled, inputs: tuple[npt.NDArray[np.uint8], ...], level: str = "scalar"
) -> None:
    values = product(case, inputs)
    wanted = expected(values, case.out), overflow(values, values, case.out)
    assert run(case, level, inputs) == wanted, case


def edge_scales() -> npt.NDArray[np.float32]:
    """Each exponent with edge mantissas, both signs; so 0, subnormals, infinities and NaNs too."""
    exponents = np.arange(256, dtype=np.uint32)[:, None, None] << np.uint32(23)
    mantissas = np.array([0, 1, 0x345678, 0x400000, 0x7FFFFF], np.uint32)[None, :, None]
    signs = np.array([0, 0x80000000], np.uint32)[None, None, :]
    return (exponents | mantissas | signs).ravel().view(np.float32)


@pytest.mark.against("torch")
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("level", SUPPORTED)
def test_all_codes_edge_scales(level: str, code: str, out: str, rng: np.random.Generator) -> None:
    random = rng.integers(0, 1 << 32, 1000, dtype=np.uint32).view(np.float32)
    scales = np.concatenate([edge_scales(), random])
    case = Scaled(code, out, scales.size, 256, 1, 256)
    assert_scaled(case, (np.tile(ALL_CODES, scales.size), scales.view(np.uint8)), level)


@pytest.mark.against("torch")
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("scale", ["F16", "BF16", "F8_E8M0"])
def test_all_scale_codes(scale: str, out: str) -> None:
    width = DTYPES[scale].bits
    scales = np.arange(1 << width, dtype=np.uint32).astype(f"<u{width // 8}").view(np.uint8)
    codes = ALL_CODES if width == 8 else np.array([0x01, 0x38, 0x7E, 0xB9, 0x7F], np.uint8)
    case = Scaled("F8_E4M3", out, 1 << width, codes.size, 1, codes.size, scale)
    assert_scaled(case, (np.tile(codes, 1 << width), scales))


@pytest.mark.against("torch")
def test_f64_scales_round_to_f32(rng: np.random.Generator) -> None:
    random = rng.integers(0, 1 << 64, 4000, dtype=np.uint64).view(np.float64)
    scales = np.concatenate([random, f64_edges()])
    codes = ALL_CODES[::8]  # 0.5 among them, which shows the scale itself
    case = Scaled("F8_E5M2", "F32", scales.size, codes.size, 1, codes.size, "F64")
    assert_scaled(case, (np.tile(codes, scales.size), scales.view(np.uint8)))


@pytest.mark.against("torch")
@pytest.mark.parametrize("scale", SCALES)
def test_grids(scale: str, rng: np.random.Generator) -> None:
    for case in scaled_cases("F8_E4M3", "F32", scale):
        assert_scaled(case, random_inputs(case, rng))


def f32_edges() -> npt.NDArray[np.float32]:
    """Each exponent with each rounding edge of each width: ties and one unit either side."""
    near = {0, 1, 0x7FFFFF}
    for bit in range(23):
        for pattern in (1 << bit, 3 << bit, (1 << 23) - (1 << bit), (1 << 23) - (3 << bit)):
            near |= {(pattern + step) & 0x7FFFFF for step in (-1, 0, 1)}
    mantissas = np.array(sorted(near), np.uint32)
    upper = np.arange(512, dtype=np.uint32) << np.uint32(23)
    return (upper[:, None] | mantissas[None, :]).ravel().view(np.float32)


def f64_edges() -> npt.NDArray[np.float64]:
    """float32 values, halves between two of them, and what lies just beside those halves."""
    with np.errstate(all="ignore"):
        values = f32_edges()[::17].astype(np.float64)
        above = np.nextafter(f32_edges()[::17], np.float32(np.inf)).astype(np.float64)
        ties = values + (above - values) / 2
        beside = [np.nextafter(ties, -np.inf), np.nextafter(ties, np.inf)]
    extremes = np.array([1e300, -1e300, 5e-324, 3.4028235677973366e38, 3.4028235677973362e38])
    return np.concatenate([values, ties, *beside, extremes])


def conversions(src: str, rng: np.random.Generator) -> Iterator[npt.NDArray[np.uint8]]:
    if DTYPES[src].bits == 16:
        yield np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
        return
    yield rng.integers(0, 256, 8 << 20, dtype=np.uint8)
    yield (f32_edges() if src == "F32" else f64_edges()).view(np.uint8)


@pytest.mark.against("torch")
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("src", FLOATS)
@pytest.mark.parametrize("level", SUPPORTED)
def test_convert(level: str, src: str, out: str, rng: np.random.Generator) -> None:
    for raw in conversions(src, rng):
        source = as_tensor(raw, src)
        values = source.to(torch.float32)
        case = Convert(src, out, source.numel())
        wanted = expected(values, out), overflow(source, values, out)
        assert run(case, level, (raw,)) == wanted


def test_host_flushing_subnormals_changes_nothing(rng: np.random.Generator) -> None:
    """The kernels run in the IEEE default mode, and put the host's back."""
    cases: list[Case] = [Scaled(code, out, 8, 300, 1, 20) for code in CODES for out in OUTPUTS]
    cases += [Scaled("F8_E4M3", out, 8, 300, 1, 30, "F8_E8M0") for out in OUTPUTS]
    cases += [Convert(src, out, 4000) for src in FLOATS for out in OUTPUTS]
    inputs = [random_inputs(case, rng) for case in cases]
    for data in inputs[: len(CODES) * len(OUTPUTS)]:
        data[1].view(np.uint32)[::2] &= 0x81FFFFFF  # exponents that make subnormal products
    calls = [
        (case, level, data) for case, data in zip(cases, inputs, strict=True) for level in SUPPORTED
    ]
    plain = [run(*call) for call in calls]
    flushed: list[tuple[bytes, int | str]] = []
    still_flushing: list[bool] = []

    def work() -> None:
        assert torch.set_flush_denormal(True)
        flushed.extend(run(*call) for call in calls)
        still_flushing.append(bool(np.float32(1e-40) * np.float32(1) == 0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert flushed == plain
    assert still_flushing == [True]
