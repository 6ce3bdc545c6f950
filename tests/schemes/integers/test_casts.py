"""Integers with other codes, or numbers, that stand for the same values: to the bit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes
from helpers.repacks import RNG, Q, S, Z, entry, folder, gptq, int4, words

pytestmark = pytest.mark.usefixtures("small_bands")

Array = NDArray[Any]
HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)]


def dense(codes: Array, bits: int) -> Array:
    """Rows of a stream of bits, in words, one code at a time."""
    rows = []
    for row in codes.tolist():
        stream = sum(code << bits * i for i, code in enumerate(row))
        rows.append(np.frombuffer(stream.to_bytes(-(-len(row) * bits // 32) * 4, "little"), "<i4"))
    return np.stack(rows)


def packed(codes: Array, bits: int, scales: Entry, zeros: Array | None = None) -> dict[str, Entry]:
    """compressed-tensors' words."""
    made = {
        "a.weight_packed": entry("I32", dense(codes, bits)),
        "a.weight_scale": scales,
        "a.weight_shape": entry("I64", np.array(codes.shape)),
    }
    if zeros is not None:
        made["a.weight_zero_point"] = entry("I32", dense(zeros.T, bits).T.copy())
    return made


def same_bits(before: an.Model, after: an.Model, name: str = "a.weight") -> None:
    ours, theirs = (model[name].numpy("f32").view("u4") for model in (before, after))
    assert (ours == theirs).all()


def cast(
    source: Path, target: str, out: Path, *, is_cast: bool = True, is_exact: bool = True
) -> dict[str, tuple[str, list[int], bytes]]:
    """What is written, whose values are what they were."""
    with an.parse(source) as before:
        report = before.convert(out, target, verify=True, lossless=is_exact)
        assert list(report.repacked) == ["a.weight"]
        assert report.recast == (("a.weight",) if is_cast else ())
        assert report.n_encoded == 0
        with an.parse(out) as after:
            same_bits(before, after)
            return {t.name: (t.dtype.name, list(t.shape), t.read()) for t in after.stored.values()}


def ct(path: Path, tensors: dict[str, Entry], bits: int, group: int = 32) -> Path:
    """A directory of compressed-tensors."""
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    section = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "version": "0.18.0",
        "config_groups": groups,
    }
    return folder(path, tensors, quantization_config=section)


def every_scale(bits: int, dtype: str, seed: int = 0) -> tuple[Array, Entry]:
    """Codes of so many bits with every finite scale of F16, or BF16 of any bits."""
    rng = np.random.default_rng(seed)
    rows = len(FINITE) // 64
    scales = FINITE[: rows * 64].reshape(rows, 64)
    if dtype == "BF16":
        scales = (
            rng.integers(0, 0x7F00, scales.shape) | rng.integers(0, 2, scales.shape) << 15
        ).astype(np.uint16)
    codes = np.tile(np.arange(1 << bits, dtype=np.uint8), -(-rows * 64 * 32 >> bits))
    return codes[: rows * 64 * 32].reshape(rows, 64 * 32), entry(dtype, scales)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["F16", "BF16"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_every_code_and_scale_in_8_bits(bits: int, dtype: str, tmp_path: Path) -> None:
    """With every zero point, which 8 bits about 0 need not."""
    codes, scales = every_scale(bits, dtype)
    zeros = RNG.integers(0, 1 << bits, (len(codes), 64)).astype(np.uint8)
    source = ct(tmp_path / "in", packed(codes, bits, scales, zeros), bits)
    made = cast(source, "int8-packed", tmp_path / "out")
    wide = codes - np.repeat(zeros, 32, axis=1) + np.uint8(128)
    assert made["a.weight_packed"][2] == wide.tobytes()
    assert made["a.weight_scale"][2] == scales[2]
    if dtype == "F16":
        cast(source, "gguf-q8_0", tmp_path / "q8.gguf")


@pytest.mark.parametrize("bits", [2, 3, 5, 6, 7])
def test_widths_in_words(bits: int, tmp_path: Path) -> None:
    codes = RNG.integers(0, 1 << bits, (32, 64)).astype(np.uint8)
    source = ct(tmp_path / "in", packed(codes, bits, entry("F16", S)), bits)
    added = np.uint8(128 - (1 << bits - 1))
    made = cast(source, "gptq-8bit", tmp_path / "gptq")
    assert made["a.qweight"][2] == (codes + added).view("<i4").T.tobytes()
    assert set(made["a.qzeros"][2]) == {127}
    if bits < 4:
        made = cast(source, "int4", tmp_path / "four")
        assert made["a.weight_packed"][2] == words(codes + np.uint8(8 - (1 << bits - 1))).tobytes()


def test_gptq_in_8_bits(tmp_path: Path) -> None:
    told = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    source = folder(tmp_path / "in", gptq(), quantization_config=told)
    made = cast(source, "gptq-8bit", tmp_path / "out")
    wide = Q - np.repeat(Z, 32, axis=1) + np.uint8(128)
    assert made["a.qweight"][2] == wide.view("<i4").T.tobytes()
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert (config["bits"], config["sym"], config["group_size"]) == (8, True, 32)
    cast(source, "int8-packed", tmp_path / "packed")


def test_scales_of_bf16_that_are_half_floats() -> None:
    """Exact scales are converted, where a layout has one dtype."""
    scales = (S.view("u2") & 0x8000) | RNG.integers(0x3800, 0x4400, S.shape).astype("u2")
    tensors = {**int4(zeros=False), "a.weight_scale": entry("BF16", scales)}
    with an.parse(safetensors_bytes(tensors)) as before:
        for target in ("gptq-4bit", "awq-4bit", "gguf-q4_0"):
            out = io.BytesIO()
            report = before.convert(out, target, lossless=True)
            assert report.recast == ()
            same_bits(before, an.parse(out.getvalue()))


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize("bits", [5, 6, 7])
def test_groups_that_fill_no_words_of_planes(bits: int, n_groups: int, tmp_path: Path) -> None:
    """GPTQ's planes hold 32 values each, of codes as of zero points."""
    n_in = 32 * n_groups
    tensors = {
        "a.qweight": entry("I32", RNG.integers(0, 1 << 31, (n_groups * bits, 64), np.int32)),
        "a.qzeros": entry("I32", RNG.integers(0, 1 << 31, (n_groups, 2 * bits), np.int32)),
        "a.scales": entry("F16", np.abs(RNG.normal(size=(n_groups, 64))).astype(np.float16)),
        "a.g_idx": entry("I32", np.arange(n_in, dtype=np.int32) // 32),
    }
    told = {"quant_method": "gptq", "bits": bits, "group_size": 32}
    source = folder(
        tmp_path / "in", tensors, quantization_config=told | {"checkpoint_format": "gptq_p"}
    )
    cast(source, "int8-packed", tmp_path / "out")


@pytest.mark.parametrize("target", ["comfy-int8", "comfy-int8-tensor", "bnb-int8"])
@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_scales_that_are_nans(dtype: str, target: str, tmp_path: Path) -> None:
    """They are numbers of no kind, and yet as many in float32."""
    kind = np.float16 if dtype == "F16" else np.float32
    tensors = {
        "a.weight": entry("I8", RNG.integers(-128, 128, (8, 32), dtype=np.int8)),
        "a.weight_scale": entry(dtype, np.full((8, 1), np.nan, kind)),
    }
    out = tmp_path / "out"
    with an.parse(safetensors_bytes(tensors)) as before:
        report = before.convert(out, target)
        assert list(report.repacked) == ["a.weight"]
    with an.parse(out) as after:
        assert np.isnan(after["a.weight"].numpy("f32")).all()


def test_codes_that_there_are_none_of(tmp_path: Path) -> None:
    tensors = {
        "a.weight": ("I8", (8, 0), b""),
        "a.SCB": entry("F32", np.ones(8, np.float32)),
        "b.weight": entry("F32", np.ones((64, 64), np.float32)),
    }
    with an.parse(safetensors_bytes(tensors)) as model:
        report = model.convert(tmp_path / "out", "mlx-8bit")
    assert list(report.plain) == ["a.weight"]


@pytest.mark.parametrize("zeros", [[-128.0, -3.0, 0.0, 127.0], [-0.5, 2.5, 0.25, 100.5], [1e-30]])
def test_zero_points_that_are_floats_beside_signed_codes(
    zeros: list[float], tmp_path: Path
) -> None:
    """As torchao has them; code 0 of its bytes is 128 of those that have no sign."""
    n = len(zeros)
    tensors = {
        "a._weight_qdata": entry("I8", RNG.integers(-128, 128, (n, 64), dtype=np.int8)),
        "a._weight_scale": entry("F32", np.full((n, 1), 0.25, np.float32)),
        "a._weight_zero_point": entry("F32", np.array(zeros, np.float32)[:, None]),
    }
    data = {"block_size": [1, 64], "dtype": {"_type": "torch.dtype", "_data": "float32"}}
    told = json.dumps({"_type": "IntxUnpackedToInt8Tensor", "_data": data})
    out = tmp_path / "out"
    with an.parse(safetensors_bytes(tensors, {"a.weight": told})) as before:
        report = before.convert(out, "mlx-8bit")
        if n == 1:
            why = "its zero points and 128 have no sums in float32"
            assert report.unmovable == {"a.weight": why}
            return
        assert list(report.repacked) == ["a.weight"]
        with an.parse(out) as after:
            same_bits(before, after)


@pytest.mark.parametrize("target", ["gguf-q4_0", "gguf-q4_1", "gguf-q8_0"])
def test_blocks_of_codes_that_there_are_none_of(target: str, tmp_path: Path) -> None:
    tensors = {
        "a.qweight": entry("I32", np.zeros((0, 96), np.int32)),
        "a.qzeros": entry("I32", np.zeros((0, 12), np.int32)),
        "a.scales": entry("F32", np.zeros((0, 96), np.float32)),
    }
    told = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    source = folder(tmp_path / "in", tensors, quantization_config=told)
    with an.parse(source) as model, pytest.raises(an.UnsupportedError):
        model.convert(tmp_path / "out.gguf", target, lossless=True)
