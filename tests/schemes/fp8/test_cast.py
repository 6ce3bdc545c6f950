"""4-bit floats cast to 8-bit ones: every code with every exponent that a block may have."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.schemes.families.fp8 import of_fp4
from helpers.handmade import Entry, safetensors_bytes
from helpers.repacks import entry, f32, stored

pytestmark = pytest.mark.usefixtures("small_bands")

Array = NDArray[Any]
BLOCKS = ("fp8-block", "fp8-block-ue8m0", "fp8-block-ct", "fp8-block-64x64")
WHOLE = ("fp8-channel", "fp8-tensor", "fp8-tensor-ct", "comfy-fp8")
GROUPS = ("mxfp8", "mxfp8-modelopt", "mlx-mxfp8", "comfy-mxfp8")
RNG = np.random.default_rng(25)
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TOO_WIDE = "a block spans more than E4M3 beside one scale"
POWERS = np.array([1, 2, 4, *range(8, 127, 8)], np.uint8)  # of NVFP4's scales


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are surveyed in several pieces."""
    monkeypatch.setattr(of_fp4, "_READ_BYTES", 512)


def mxfp4(name: str, codes: Array, scales: Array) -> dict[str, Entry]:
    return {
        f"{name}.weight_packed": entry("U8", codes),
        f"{name}.weight_scale": entry("U8", scales.astype(np.uint8)),
    }


def nvfp4(name: str, codes: Array, scales: Array, second: Array) -> dict[str, Entry]:
    """Of ModelOpt, whose code 8 is +0."""
    return {
        f"{name}.weight": entry("U8", codes),
        f"{name}.weight_scale": entry("F8_E4M3", scales),
        f"{name}.weight_scale_2": entry("F32", second),
    }


def any_codes(*shape: int) -> Array:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def converted(model: an.Model, target: str, **options: Any) -> tuple[an.Report, an.Model]:
    out = io.BytesIO()
    report = model.convert(out, target, **options)
    size = (64, 64) if "64x64" in target else (128, 128)
    return report, an.parse(out.getvalue(), block_size=size if "block" in target else None)


def check(tensors: dict[str, Entry], target: str, names: set[str] | None = None) -> an.Model:
    """All of them are cast, with values that are equal to the bit."""
    with an.parse(safetensors_bytes(tensors)) as model:
        report, made = converted(model, target, lossless=names is None)
        assert set(report.recast) == (set(model) if names is None else names)
        for name in report.recast:
            ours, theirs = model[name].numpy(), made[name].numpy()
            assert (ours.view("u4") == theirs.reshape(ours.shape).view("u4")).all(), name
        if names is not None:
            why = {**report.unmovable, **report.plain}
            assert all(why[name].startswith(TOO_WIDE) for name in set(model) - names)
    return made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", [*BLOCKS, *WHOLE, *GROUPS])
@pytest.mark.parametrize("low", [0, 1, 7, 90, 120, 239, 240])
def test_every_code_with_every_exponent_of_a_window(low: int, target: str) -> None:
    """Of 15 exponents each code has a value beside one scale; blocks are partial at the edges."""
    shape = (160, 96) if "comfy" in target else (150, 80)
    rows, cols = shape
    scales = RNG.integers(low, low + 15, (rows, cols // 16))
    scales[0, :2] = low, low + 14
    check(mxfp4("a", any_codes(*shape), scales), target)


@pytest.mark.parametrize("target", GROUPS)
def test_mxfp8_takes_every_code_with_every_exponent(target: str) -> None:
    scales = np.arange(255).repeat(2)[: 2 * 224].reshape(224, 2)
    codes = np.tile(np.arange(256, dtype=np.uint8), 28).reshape(224, 32)
    made = check(mxfp4("a", codes, scales), target)
    if "comfy" not in target:  # which has them in tiles
        kept = next(raw for _, _, raw in stored(made).values() if len(raw) == scales.size)
        assert kept == scales.astype(np.uint8).tobytes()
    check(mxfp4("a", codes[:32], np.arange(191, 255).reshape(32, 2)), target)


def in_e4m3(value: float, power: int) -> bool:
    scaled = np.float32(np.ldexp(value, -power))
    return bool(np.isfinite(scaled) and scaled.astype(ml_dtypes.float8_e4m3fn) == scaled)


def is_exact(pairs: list[tuple[int, int]]) -> bool:
    """Whether one scale gives all of some magnitudes, each times a power of two."""
    return any(
        all(in_e4m3(VALUES[code] * 2.0**power, scale) for code, power in pairs)
        for scale in range(-30, 60)
    )


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["fp8-channel", "fp8-tensor-ct", "fp8-block"])
def test_every_two_codes_at_every_distance(target: str) -> None:
    """It is cast if, and only if, there is a scale by which both have a code."""
    tensors: dict[str, Entry] = {}
    exact: set[str] = set()
    for first in range(8):
        for second in range(8):
            for distance in range(-2, 24):
                name = f"l{first}.m{second}.d{distance + 2}"
                codes = np.zeros((128, 64), np.uint8)
                codes[5, 3], codes[5, 20] = first, second | 8 if second else 0
                scales = np.full((128, 4), 120)
                scales[5] = 120, 120 - distance, 120, 120
                tensors |= mxfp4(name, codes, scales)
                if is_exact([(first, 0), (second, -distance)]):
                    exact.add(f"{name}.weight")
    assert 0 < len(exact) < len(tensors) // 2
    check(tensors, target, exact)


@pytest.mark.parametrize("target", ["fp8-channel", "fp8-tensor", "fp8-block-ct"])
def test_groups_of_zeros_have_any_exponent(target: str) -> None:
    codes = any_codes(130, 64)
    scales = RNG.integers(100, 115, (130, 4))
    scales[7] = 0, 113, 254, 107
    codes[7, :16], codes[7, 32:48] = 0x08, 0x80
    codes[9:], scales[9:, :] = 0, RNG.integers(0, 255, (121, 4))
    check(mxfp4("a", codes, scales), target)


def test_nothing_but_zeros() -> None:
    check(mxfp4("a", np.zeros((4, 32), np.uint8), np.array([[0, 254]] * 4)), "fp8-channel")


@pytest.mark.parametrize("target", ["fp8-block", "fp8-channel", "mxfp8"])
def test_what_a_cast_must_not_take(target: str) -> None:
    """0.5 at 2^-17 beside a block's 1, and a scale of 255, both of vLLM's issue 53709."""
    codes, scales = np.full((128, 64), 0x66, np.uint8), np.full((128, 4), 127)
    codes[0, 0], scales[0, 0] = 0x11, 110
    with an.parse(safetensors_bytes(mxfp4("a", codes, scales))) as model:
        if target == "mxfp8":
            check(mxfp4("a", codes, scales), target)
        else:
            with pytest.raises(an.UnsupportedError, match=TOO_WIDE):
                model.plan(target, lossless=True)
    for of in (codes, np.zeros_like(codes)):
        scales[0, 0] = 255
        with (
            an.parse(safetensors_bytes(mxfp4("a", of, scales))) as model,
            pytest.raises(an.UnsupportedError, match="a scale is 255, which is no power of two"),
        ):
            model.plan(target, lossless=True)


def test_one_of_two_is_cast_and_the_other_counted() -> None:
    codes = any_codes(128, 64) | 0x11
    near, far = RNG.integers(100, 115, (128, 4)), RNG.integers(100, 130, (128, 4))
    tensors = mxfp4("near", codes, near) | mxfp4("far", codes, far)
    with an.parse(safetensors_bytes(tensors)) as model:
        report, made = converted(model, "fp8-block")
        assert report.recast == ("near.weight",)
        assert report.unmovable == {"far.weight": TOO_WIDE}
        assert report.requantised
        ours, theirs = model["near.weight"].numpy(), made["near.weight"].numpy()
        assert (ours.view("u4") == theirs.view("u4")).all()


@pytest.mark.parametrize("producer", ["mxfp4", "deepseek"])
def test_the_sign_of_zero_is_kept(producer: str) -> None:
    """Code 8 is +0 to DeepSeek."""
    codes, scales = np.full((128, 64), 0x80, np.uint8), np.full((128, 4), 120)
    codes[:, 5] = 0x97
    tensors = mxfp4("a", codes, scales)
    if producer == "deepseek":
        tensors = {
            "a.weight": entry("I8", codes.view(np.int8)),
            "a.scale": ("F8_E8M0", (128, 4), scales.astype(np.uint8).tobytes()),
        }
    made = check(tensors, "fp8-block")
    zeros = made["a.weight"].numpy()[:, 1]
    assert not zeros.any()
    assert np.signbit(zeros).all() == (producer == "mxfp4")


@pytest.mark.parametrize("target", ["fp8-block-ct", "fp8-channel", "fp8-tensor-ct"])
def test_gpt_oss_keeps_its_orientation(target: str) -> None:
    codes, scales = any_codes(3, 40, 32), RNG.integers(110, 125, (3, 40, 2), dtype=np.uint8)
    tensors = {
        "experts.down_proj_blocks": entry("U8", codes.reshape(3, 40, 2, 16)),
        "experts.down_proj_scales": entry("U8", scales),
    }
    with an.parse(safetensors_bytes(tensors)) as model:
        report, made = converted(model, target, lossless=True)
        assert report.recast == ("experts.down_proj",)
        ours = np.ascontiguousarray(model["experts.down_proj"].numpy().swapaxes(1, 2))
        theirs = made["experts.down_proj.weight"].numpy()
        assert (ours.view("u4") == theirs.view("u4")).all()


# --- NVFP4 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [1.0, 0.5, 2.0**-30, 2.0**119])
@pytest.mark.parametrize("target", ["fp8-block", "fp8-channel", "fp8-tensor", *GROUPS])
def test_nvfp4_of_powers_of_two(target: str, second: float) -> None:
    """In groups of 32 the two halves have one scale, as others have for a block."""
    codes = any_codes(160, 32)
    scales = RNG.choice(POWERS[:15], (160, 4))
    check(nvfp4("a", codes, scales, f32(second)), target)


@pytest.mark.parametrize("target", ["fp8-channel", *GROUPS])
def test_zeros_of_nvfp4_have_any_scale(target: str) -> None:
    codes, scales = any_codes(32, 32), RNG.choice(POWERS[3:12], (32, 4))
    codes[3, :8] = codes[4, 8:16] = codes[5, :16] = 0
    scales[3, 0], scales[4, 1], scales[5, :2] = 0, 57, (0, 126)
    check(nvfp4("a", codes, scales, f32(1.0)), target)


def test_nvfp4_of_experts() -> None:
    codes, scales = any_codes(3, 8, 32), RNG.choice(POWERS[:15], (3, 8, 4))
    check(nvfp4("a", codes, scales, f32(1.0, 2.0**-9, 4.0)), "fp8-channel")


@pytest.mark.parametrize(
    ("byte", "second", "why"),
    [
        (57, 1.0, f"a scale is no power of two, or {TOO_WIDE}"),  # 1.125
        (0x80 | 56, 1.0, "a scale is negative or a NaN"),
        (56, 0.75, None),
    ],
)
@pytest.mark.parametrize("target", ["fp8-block", "mxfp8"])
def test_what_is_no_power_of_two(target: str, byte: int, second: float, why: str | None) -> None:
    codes, scales = np.full((128, 64), 0x11, np.uint8), np.full((128, 8), 56, np.uint8)
    scales[3, 3] = byte
    tensors = nvfp4("a", codes, scales, f32(second))
    with an.parse(safetensors_bytes(tensors), layout="modelopt") as model:
        report, _ = converted(model, target)
        assert not report.repacked
        assert report.unmovable == ({"a.weight": why} if why else {})
        with pytest.raises(an.UnsupportedError, match=why or "would be quantised"):
            model.plan(target, lossless=True)
