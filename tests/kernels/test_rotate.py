"""Rotations by regular Hadamard matrices: every level gives the scalar bits, which are torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from anamnesis import _core
from helpers.guarded import HAVE_GUARD_PAGES, GuardedPages
from helpers.kernel_calls import SUPPORTED

GROUPS = (4, 16, 64, 256, 1024, 4096)
Floats = npt.NDArray[np.float32]


def rotated(values: Floats, group: int, level: str) -> Floats:
    out = np.empty_like(values)
    _core.rotate(values.view(np.uint8), out.view(np.uint8), group, _core.LEVELS[level])
    return out


def dequantized(codes: npt.NDArray[Any], scales: Floats, group: int, out: str, level: str) -> bytes:
    rows, cols = codes.shape
    dst = bytearray(codes.size * (4 if out == "F32" else 2))
    _core.dequantize_rotated(
        *(_core.OUTPUTS[out], codes.tobytes(), dst, rows, cols, scales.tobytes(), group),
        _core.LEVELS[level],
    )
    return bytes(dst)


@pytest.mark.parametrize("level", SUPPORTED)
@pytest.mark.parametrize("group", GROUPS)
def test_levels(group: int, level: str, rng: np.random.Generator) -> None:
    n = 2 * group if group > 256 else 5 * group
    bits = rng.integers(0, 1 << 32, n, np.uint32).view(np.float32)
    for values in (
        rng.standard_normal(n, np.float32),
        (rng.standard_normal(n) * 10.0 ** rng.integers(-37, 30, n)).astype(np.float32),
        np.repeat(np.array([-0.0, 0.0], np.float32), n // 2),
        np.where(np.isfinite(bits), bits, np.float32(1e-45)),
    ):
        found = rotated(values, group, level)
        want = rotated(values, group, "scalar")
        is_nan = np.isnan(want)  # of infinite sums, whose payload is any
        assert (np.isnan(found) == is_nan).all()
        assert found[~is_nan].tobytes() == want[~is_nan].tobytes()


@pytest.mark.parametrize("level", SUPPORTED)
@pytest.mark.parametrize("group", [4, 64, 256])
def test_it_is_its_own_inverse(group: int, level: str, rng: np.random.Generator) -> None:
    """Sums of integers are exact, whatever their order."""
    values = rng.integers(-99, 100, 4 * group).astype(np.float32)
    once = rotated(values, group, level)
    assert not np.array_equal(once, values)
    assert np.array_equal(rotated(once, group, level), values)


@pytest.mark.parametrize("level", SUPPORTED)
@pytest.mark.parametrize("out", _core.OUTPUTS)
@pytest.mark.parametrize("shape", [(3, 64), (2, 4160), (1, 0), (0, 64)])
def test_codes(shape: tuple[int, int], out: str, level: str, rng: np.random.Generator) -> None:
    codes = rng.integers(-128, 128, shape, np.int8)
    scales = (rng.random(shape[0]) * 10.0 ** rng.integers(-30, 30, shape[0])).astype(np.float32)
    values = (codes * scales[:, None]).astype(np.float32).reshape(-1)
    dst = bytearray(values.size * (4 if out == "F32" else 2))
    plain = rotated(values, 64, "scalar").view(np.uint8)
    _core.convert(_core.FLOATS["F32"], _core.OUTPUTS[out], plain, dst)
    assert dequantized(codes, scales, 64, out, level) == bytes(dst)


def test_what_does_not_fit() -> None:
    room = bytearray(4 * 64)
    for group in (0, 1, 2, 8, 32, 512, 16384, 1 << 40):
        with pytest.raises(ValueError, match="group"):
            _core.rotate(bytes(4 * 64), room, group)
    with pytest.raises(ValueError, match="dst is too short"):
        _core.rotate(bytes(4 * 128), room, 64)
    with pytest.raises(ValueError, match="multiples of 4"):
        _core.rotate(memoryview(bytes(4 * 64 + 1))[1:], room, 64)
    for codes, dst, scales, what in (
        (bytes(63), bytearray(256), bytes(4), "src"),
        (bytes(64), bytearray(255), bytes(4), "dst"),
        (bytes(64), bytearray(256), bytes(3), "scales"),
    ):
        with pytest.raises(ValueError, match=what):
            _core.dequantize_rotated(_core.OUTPUTS["F32"], codes, dst, 1, 64, scales, 64)


@pytest.mark.skipif(not HAVE_GUARD_PAGES, reason="no guard pages here")
@pytest.mark.parametrize("level", SUPPORTED)
@pytest.mark.parametrize("group", [4, 16, 64, 256])
def test_nothing_beyond_is_touched(group: int, level: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal(3 * group, np.float32)
    src, dst = GuardedPages(values.nbytes), GuardedPages(values.nbytes)
    for at_end in (True, False):
        src.view(at_end)[:] = values.view(np.uint8)
        _core.rotate(src.view(at_end), dst.view(at_end), group, _core.LEVELS[level])
        assert bytes(dst.view(at_end)) == rotated(values, group, "scalar").tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize("group", GROUPS)
def test_against_comfy_kitchen(group: int, rng: np.random.Generator) -> None:
    import torch

    from helpers.comfy_tools import eager

    codes = rng.integers(-128, 128, (16, 4096), np.int8)
    scales = (rng.random(16) * 0.01).astype(np.float32)
    stored = torch.from_numpy(codes), torch.from_numpy(scales[:, None])
    want = eager.dequantize_int8_convrot_weight(*stored, group)
    for out, dtype in (("F32", torch.float32), ("BF16", torch.bfloat16), ("F16", torch.float16)):
        bits = want.to(dtype).view(torch.uint8).numpy().tobytes()
        assert dequantized(codes, scales, group, out, "scalar") == bits
