"""MXFP4 as NVFP4, and NVFP4 as MXFP4: every code with every scale that there is."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.schemes.families.fp4 import mxfp4_nvfp4
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import Entry, safetensors_bytes
from helpers.repacks import blocks_of, entry, f32, folder, stored

pytestmark = pytest.mark.usefixtures("small_bands")

Array = NDArray[Any]
SPAN = 17
TARGETS = ("nvfp4", "nvfp4-modelopt", "comfy-nvfp4", "mlx-nvfp4", "gguf-nvfp4")
SOURCES = ("mxfp4", "mlx-mxfp4", "gptoss-mxfp4", "mxfp4-modelopt", "gguf-mxfp4")
PAIRS = [  # ComfyUI has no stacks
    (source, target)
    for source in SOURCES
    for target in TARGETS
    if (source, target) != ("gptoss-mxfp4", "comfy-nvfp4")
]
RNG = np.random.default_rng(25)
# Two groups of codes: any of them, and each of them twice.
ROW = np.concatenate([RNG.integers(0, 256, 16), np.arange(0, 256, 17)]).astype(np.uint8)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales are surveyed in several pieces."""
    monkeypatch.setattr(mxfp4_nvfp4, "_PIECE", 24)
    monkeypatch.setattr(mxfp4_nvfp4, "_FINE", 8)


def mxfp4(source: str, name: str, codes: Array, scales: Array) -> dict[str, Entry]:
    """A matrix as a producer stores it."""
    rows, cols = codes.shape
    match source:
        case "mxfp4":
            return {
                f"{name}.weight_packed": entry("U8", codes),
                f"{name}.weight_scale": entry("U8", scales),
            }
        case "mlx-mxfp4":
            return {
                f"{name}.weight": entry("U32", codes.view("<u4")),
                f"{name}.scales": entry("U8", scales),
            }
        case "mxfp4-modelopt":
            return {
                f"{name}.weight": entry("U8", codes),
                f"{name}.weight_scale": entry("U8", scales),
            }
    blocks = codes.reshape(1, rows, cols // 16, 16)
    return {
        f"{name}.weight.blocks": entry("U8", blocks),
        f"{name}.weight.scales": entry("U8", scales[None]),
    }


def parsed(source: str, matrices: dict[str, tuple[Array, Array]]) -> an.Model:
    if source == "gguf-mxfp4":
        tensors = {
            f"{name}.weight": Tensor(
                (2 * codes.shape[1], len(codes)), 39, blocks_of(codes, scales, 1, 32)
            )
            for name, (codes, scales) in matrices.items()
        }
        return an.parse(gguf_bytes({}, tensors))
    made: dict[str, Entry] = {}
    for name, (codes, scales) in matrices.items():
        made |= mxfp4(source, name, codes, scales)
    return an.parse(safetensors_bytes(made))


def converted(model: an.Model, target: str, **options: Any) -> tuple[an.Report, an.Model]:
    out = io.BytesIO()
    report = model.convert(out, target, **options)
    return report, an.parse(out.getvalue())


def same_values(before: an.Model, after: an.Model, names: Iterable[str] = ()) -> None:
    """Equal to the bit; where the layouts have another rule of code 8, in all but zeros' signs."""
    for name in names or before:
        ours = before[name].numpy()
        theirs = after[name].numpy().reshape(ours.shape)
        one, other = ours.view("u4"), theirs.view("u4")
        differ = one != other
        if _minus_zero(before) == _minus_zero(after):
            assert not differ.any(), name
        else:
            assert not ours[differ].any(), name
            assert not theirs[differ].any(), name


def _minus_zero(model: an.Model) -> bool:
    """Whether code 8 is -0."""
    weight = model[next(iter(model))]
    return weight.parts[0].dtype.kind != "block" and "ModelOpt" not in weight.scheme


def windows(highs: Iterable[int]) -> dict[str, tuple[Array, Array]]:
    """For each largest exponent a matrix of all codes by all exponents that it goes with."""
    found = {}
    for high in highs:
        low = max(high - SPAN, 0)
        scales = np.array([range(low, high + 1)] * 2, np.uint8).T
        found[f"a{high}"] = np.tile(ROW, (len(scales), 1)), np.ascontiguousarray(scales)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "highs",
    [
        pytest.param(range(255), marks=pytest.mark.slow, id="all"),
        (0, 1, 17, 18, 90, 127, 251, 254),
    ],
)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_code_with_every_pair_of_exponents(
    source: str, target: str, highs: Iterable[int]
) -> None:
    """MLX's second scale is 2,688 times the others', and beyond float32 for the three largest."""
    matrices = windows(high for high in highs if target != "mlx-nvfp4" or high < 252)
    with parsed(source, matrices) as before:
        report, after = converted(before, target, lossless=True)
        assert set(report.recast) == set(report.repacked) == set(before)
        assert not report.inexact
        same_values(before, after)
        if target not in ("comfy-nvfp4", "gguf-nvfp4") and source == "mxfp4":
            again, back = converted(after, source, lossless=True)
            assert set(again.recast) == set(before)
            assert stored(back) == stored(before)


def test_the_bytes_that_are_written() -> None:
    codes, scales = np.tile(ROW, (3, 1)), np.array([[110, 127], [120, 111], [113, 119]], np.uint8)
    halves = np.repeat(scales, 2, axis=1).astype(np.int64) - (127 - 8)  # powers beside 2^m
    made = np.where(halves >= -6, (halves + 7) << 3, 1 << (halves + 9).clip(0)).astype(np.uint8)
    with parsed("mxfp4", {"a": (codes, scales)}) as model:
        assert stored(converted(model, "nvfp4")[1]) == {
            "a.weight_packed": ("U8", [3, 32], codes.tobytes()),
            "a.weight_scale": ("F8_E4M3", [3, 4], made.tobytes()),
            "a.weight_global_scale": ("F32", [1], f32(2.0**8).tobytes()),
        }
        assert stored(converted(model, "nvfp4-modelopt")[1]) == {
            "a.weight": ("U8", [3, 32], codes.tobytes()),
            "a.weight_scale": ("F8_E4M3", [3, 4], made.tobytes()),
            "a.weight_scale_2": ("F32", [], f32(2.0**-8).tobytes()),
        }
        own = stored(converted(model, "mlx-nvfp4")[1])
        assert own["a.global_scale"] == ("F32", [], f32(2688 / 2**8).tobytes())


def test_no_second_scale_where_none_is_needed() -> None:
    """Of 2^-9 to 2^8 MLX and GGUF have all; ggml has -0 for no code, and the sign of no scale."""
    scales = np.arange(127 - 9, 127 + 9, dtype=np.uint8).reshape(9, 2)
    with parsed("mxfp4", {"a": (np.tile(ROW, (9, 1)), scales)}) as model:
        for target, names in {
            "mlx-nvfp4": {"a.weight", "a.scales"},
            "gguf-nvfp4": {"a.weight"},
            "nvfp4-modelopt": {"a.weight", "a.weight_scale", "a.weight_scale_2"},
        }.items():
            made = converted(model, target)[1]
            assert set(stored(made)) == names
            same_values(model, made)


@pytest.mark.parametrize("target", ["nvfp4", "gguf-nvfp4"])
def test_exponents_that_span_too_much(target: str) -> None:
    """One weight is; the other is cast even so."""
    codes = np.tile(ROW, (2, 1))
    matrices = {
        "a": (codes, np.array([[100, 117], [101, 110]], np.uint8)),
        "b": (codes, np.array([[100, 118], [101, 110]], np.uint8)),
    }
    with parsed("mxfp4", matrices) as model:
        report, after = converted(model, target)
        assert report.recast == ("a.weight",)
        same_values(model, after, ["a.weight"])
        why = "exponents of scales span more than 17"
        told = report.plain if target == "gguf-nvfp4" else report.unmovable
        assert why in told["b.weight"]
        for verb in (model.plan, lambda to, **options: converted(model, to, **options)):
            with pytest.raises(an.UnsupportedError, match=rf"b\.weight .*{why}"):
                verb(target, lossless=True)


@pytest.mark.parametrize("zeros", [0x00, 0x88, 0x80])
def test_groups_of_zeros_have_any_exponent(zeros: int) -> None:
    """One that ends a span alone, below or above."""
    codes = np.tile(ROW, (4, 1))
    codes[1, :16] = codes[2, 16:] = zeros
    scales = np.array([[117, 110], [0, 112], [127, 254], [112, 119]], np.uint8)
    with parsed("mxfp4", {"a": (codes, scales)}) as model:
        report, after = converted(model, "nvfp4", lossless=True)
        assert report.recast == ("a.weight",)
        same_values(model, after)
        raw = np.frombuffer(stored(after)["a.weight_scale"][2], np.uint8).reshape(4, 4)
        assert raw[1, :2].tolist() == [1, 1]
        assert raw[2, 2:].tolist() == [0x78, 0x78]


@pytest.mark.parametrize("exponent", [0, 127, 254])
def test_nothing_but_zeros(exponent: int) -> None:
    codes, scales = np.zeros((2, 32), np.uint8), np.full((2, 2), exponent, np.uint8)
    scales[0, 0] = 100
    with parsed("mxfp4", {"a": (codes, scales)}) as model:
        report, after = converted(model, "nvfp4", lossless=True)
        assert report.recast
        same_values(model, after)


def test_a_scale_that_is_no_power_of_two() -> None:
    """255 is an infinity here, and times 0 a NaN, so that a group of zeros is none there."""
    for codes in (np.tile(ROW, (2, 1)), np.zeros((2, 32), np.uint8)):
        scales = np.array([[120, 255], [120, 121]], np.uint8)
        with (
            parsed("mxfp4", {"a": (codes, scales)}) as model,
            pytest.raises(an.UnsupportedError, match="a scale is 255, which is no power of two"),
        ):
            model.plan("nvfp4", lossless=True)


def test_layers_that_share_a_second_scale() -> None:
    """Of q, k and v it is one, if one is exact for all of them."""
    codes, scales = np.tile(ROW, (2, 1)), np.full((2, 2), 120, np.uint8)
    names = [f"m.self_attn.{letter}_proj" for letter in "qkv"]
    matrices = dict(
        zip(names, [(codes, scales), (codes, scales - 9), (codes, scales + 8)], strict=True)
    )
    with parsed("mlx-mxfp4", matrices) as model:
        for target, second, want in (
            ("nvfp4", "weight_global_scale", 2.0**7),
            ("nvfp4-modelopt", "weight_scale_2", 2.0**-7),
        ):
            report, after = converted(model, target, lossless=True)
            assert set(report.recast) == {f"{name}.weight" for name in names}
            assert {stored(after)[f"{name}.{second}"][2] for name in names} == {f32(want).tobytes()}
            same_values(model, after)
    matrices[names[2]] = codes, scales + 9
    with parsed("mlx-mxfp4", matrices) as model:
        for target in ("nvfp4", "nvfp4-modelopt"):
            why = "exponents of scales of layers that share a second scale span more than 17"
            report, _ = converted(model, target)
            assert not report.repacked
            assert all(why in report.unmovable[f"{name}.weight"] for name in names)
        report, after = converted(model, "mlx-nvfp4", lossless=True)  # which MLX merges never
        assert len(report.recast) == 3
        same_values(model, after)


def test_gpt_oss_keeps_its_orientation() -> None:
    codes = RNG.integers(0, 256, (3, 16, 32), dtype=np.uint8)
    scales = RNG.integers(110, 128, (3, 16, 2), dtype=np.uint8)
    tensors = {
        "experts.down_proj_blocks": entry("U8", codes.reshape(3, 16, 2, 16)),
        "experts.down_proj_scales": entry("U8", scales),
    }
    with an.parse(safetensors_bytes(tensors)) as model:
        report, after = converted(model, "nvfp4", lossless=True)
        assert report.recast == ("experts.down_proj",)
        made = after["experts.down_proj.weight"].numpy()
        ours = np.ascontiguousarray(model["experts.down_proj"].numpy().swapaxes(1, 2))
        assert (ours.view("u4") == made.view("u4")).all()
        _, back = converted(after, "gptoss-mxfp4", lossless=True)
        assert stored(back) == stored(model)


def test_each_expert_of_ggmls_blocks_has_a_second_scale() -> None:
    """llama.cpp wants as many as there are experts."""
    codes = RNG.integers(0, 256, (3, 16, 32), dtype=np.uint8)
    scales = RNG.integers(80, 98, (3, 16, 2), dtype=np.uint8)
    scales[0, 0] = 97
    tensors = {"a.weight_packed": entry("U8", codes), "a.weight_scale": entry("U8", scales)}
    with an.parse(safetensors_bytes(tensors)) as model:
        _, after = converted(model, "gguf-nvfp4", lossless=True)
        assert stored(after)["a.scale"] == ("F32", [3], f32(*[2.0**-38] * 3).tobytes())
        same_values(model, after)


# --- to MXFP4 ---------------------------------------------------------------------------------


def nvfp4(codes: Array, scales: Array, second: Array) -> an.Model:
    return an.parse(
        safetensors_bytes(
            {
                "a.weight": entry("U8", codes),
                "a.weight_scale": entry("F8_E4M3", scales),
                "a.weight_scale_2": entry("F32", second),
            }
        )
    )


POWERS = np.array([1, 2, 4, *range(8, 127, 8)], np.uint8)  # of E4M3


@pytest.mark.parametrize("second", [1.0, 2.0**-118, 2.0**119, 2.0**-20])
@pytest.mark.parametrize("target", ["mxfp4", "mxfp4-modelopt", "mlx-mxfp4", "gguf-mxfp4"])
def test_every_power_of_two_of_nvfp4(target: str, second: float) -> None:
    scales = np.repeat(POWERS, 2).reshape(9, 4)
    with nvfp4(np.tile(ROW, (9, 1)), scales, f32(second)) as model:
        report, after = converted(model, target, lossless=True)
        assert report.recast == ("a.weight",)
        same_values(model, after)


def test_every_scale_of_nvfp4_in_one_half() -> None:
    """Beside a power of two: it is cast if it is that power, or if its half is of zeros."""
    codes, zeros = np.tile(ROW, (2, 1)), np.tile(ROW, (2, 1))
    zeros[1, 8:16] = 0
    tensors, exact = {}, set()
    for byte in range(256):
        scales = np.array([[56, 56, 48, 48], [56, byte, 64, 64]], np.uint8)
        if byte & 0x7F == 0x7F:  # a NaN
            continue
        for name, own in ((f"a{byte}", codes), (f"z{byte}", zeros)):
            tensors[f"{name}.weight"] = entry("U8", own)
            tensors[f"{name}.weight_scale"] = entry("F8_E4M3", scales)
            tensors[f"{name}.weight_scale_2"] = entry("F32", f32(1.0))
            if byte == 56 or (own is zeros and byte < 128):
                exact.add(f"{name}.weight")
    with an.parse(safetensors_bytes(tensors)) as model:
        report, after = converted(model, "mxfp4")
        assert set(report.recast) == exact
        same_values(model, after, exact)
        why = "scales of 32 codes are no power of two, or more than one"
        assert report.unmovable == dict.fromkeys(set(model) - exact, why)


@pytest.mark.parametrize("second", [1.5, 3.0, 0.0, float("inf"), float("nan"), -1.0, 2.0**-130])
def test_a_second_scale_that_is_no_power_of_two(second: float) -> None:
    with (
        nvfp4(ROW[None], np.full((1, 4), 56, np.uint8), f32(second)) as model,
        pytest.raises(an.UnsupportedError, match="no power of two"),
    ):
        model.plan("mxfp4", lossless=True)


def test_a_second_scale_for_each_expert() -> None:
    codes = RNG.integers(0, 256, (3, 4, 32), dtype=np.uint8)
    scales = np.repeat(RNG.choice(POWERS, (3, 4, 2)), 2, axis=2)
    codes[1, 2, 8:16] = 0
    for tell in (56, int(scales[1, 2, 1]), 57):  # of a half of zeros
        scales[1, 2, 1] = tell
        with nvfp4(codes, scales, f32(1.0, 0.5, 2.0**-30)) as model:
            report, after = converted(model, "mxfp4", lossless=True)
            assert report.recast == ("a.weight",)
            same_values(model, after)
    with (
        nvfp4(codes, scales, f32(1.0, 0.5, 0.75)) as model,
        pytest.raises(an.UnsupportedError, match="no power of two"),
    ):
        model.plan("mxfp4", lossless=True)


def test_a_scale_that_is_a_nan_is_no_zero() -> None:
    """Not even times zeros."""
    scales = np.array([[56, 0x7F]], np.uint8)
    codes = np.zeros((1, 16), np.uint8)
    with (
        nvfp4(codes, scales, f32(1.0)) as model,
        pytest.raises(an.UnsupportedError, match="no power of two"),
    ):
        model.plan("mxfp4", lossless=True)


def test_scales_of_32_codes_of_nvfp4(tmp_path: Path) -> None:
    """ModelOpt's W4A8_NVFP4_FP8, which the config tells from MXFP4."""
    tensors = {
        "a.weight": entry("U8", np.tile(ROW, (2, 1))),
        "a.weight_scale": entry("F8_E4M3", np.array([[56, 48], [8, 1]], np.uint8)),
        "a.weight_scale_2": entry("F32", f32(0.5)),
    }
    told = {"quant_algo": "W4A8_NVFP4_FP8", "quant_method": "modelopt", "group_size": 32}
    with an.parse(folder(tmp_path, tensors, quantization_config=told)) as model:
        report, after = converted(model, "mxfp4", lossless=True)
        assert report.recast == ("a.weight",)
        same_values(model, after)
