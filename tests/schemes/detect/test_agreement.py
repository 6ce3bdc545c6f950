"""What a config says of a weight must agree with what is stored: of any kind of statement."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from helpers.claims import Tensors, described, empty

M = "model.layers.0.mlp.up_proj"
MXFP4: Tensors = {
    f"{M}.weight_packed": empty("U8", 8, 32),
    f"{M}.weight_scale": empty("U8", 8, 2),
}
NVFP4: Tensors = {
    f"{M}.weight_packed": empty("U8", 8, 32),
    f"{M}.weight_scale": empty("U8", 8, 4),
}
MODELOPT_NVFP4: Tensors = {
    f"{M}.weight": empty("U8", 8, 32),
    f"{M}.weight_scale": empty("F8_E4M3", 8, 4),
    f"{M}.weight_scale_2": empty("F32"),
}
FP8: Tensors = {f"{M}.weight": empty("F8_E4M3", 8, 64), f"{M}.weight_scale": empty("F32", 8, 1)}


def gptq(*zeros: int, bits: int = 4, cols: int = 64, groups: int = 1) -> Tensors:
    """GPTQ of 32 rows, whose zero points are as they are stored."""
    values = sum(code << bits * i for i, code in enumerate((*zeros, *zeros[-1:] * 32)[:32]))
    row = values.to_bytes(4 * bits, "little")
    return {
        f"{M}.qweight": empty("I32", cols * bits // 32, 32),
        f"{M}.qzeros": ("I32", (groups, bits), row * groups),
        f"{M}.scales": ("F16", (groups, 32), struct.pack("<e", 1) * 32 * groups),
    }


def autoround(data_type: str, **more: Any) -> dict[str, Any]:
    method = {"quant_method": "auto-round", "data_type": data_type, "bits": 4, "group_size": 32}
    return {**method, "packing_format": "auto_round:llm_compressor", **more}


def packed(bits: int = 4, size: int = 64, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": False, **more}


def problem(root: Path, tensors: Tensors, quantised: dict[str, Any]) -> str:
    """What is wrong with a model; nothing if all of it can be decoded."""
    config = {"model_type": "llama", "quantization_config": quantised}
    with an.parse(described(root / "a.safetensors", config, tensors).parent) as model:
        try:
            model.remember(lambda *_: None)
        except an.AnamnesisError as error:
            return str(error)
    return ""


def grouped(strategy: str = "group", bits: int = 4, *, symmetric: bool = True) -> dict[str, Any]:
    weights = INT4 | {"num_bits": bits, "strategy": strategy, "symmetric": symmetric}
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"a": group}}


def in_words(*zeros: int) -> Tensors:
    """compressed-tensors' INT4 of 8 rows and one group, which have these zero points."""
    word = sum(zero << 4 * i for i, zero in enumerate(zeros)).to_bytes(4, "little")
    return {
        f"{M}.weight_packed": empty("I32", 8, 4),
        f"{M}.weight_scale": ("F32", (8, 1), struct.pack("<f", 1) * 8),
        f"{M}.weight_zero_point": ("I32", (1, 1), word),
        f"{M}.weight_shape": ("I64", (2,), struct.pack("<2q", 8, 32)),
    }


def in_bytes(zero: int) -> Tensors:
    """compressed-tensors' INT8 of 8 rows, of which the last has this zero point."""
    return {
        f"{M}.weight": empty("I8", 8, 32),
        f"{M}.weight_scale": ("F32", (8, 1), struct.pack("<f", 1) * 8),
        f"{M}.weight_zero_point": ("I8", (8, 1), bytes(7) + struct.pack("b", zero)),
    }


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
CONTRADICTIONS: dict[str, tuple[Tensors, dict[str, Any], str]] = {
    "MXINT2": (MXFP4, autoround("mx_int", bits=2), "MXINT (AutoRound) cannot be decoded yet"),
    "scales of E5M3 for 32 codes": (MXFP4, autoround("nvfp4_v2"), "a scale for each 16 codes"),
    "MXINT4 with scales for 16": (NVFP4, autoround("mx_int"), "a scale for each 32 codes"),
    "scales in U8 for 16": (NVFP4, autoround("nv_fp", group_size=16), "cannot be decoded yet"),
    "MXUINT4": (MXFP4, autoround("mx_uint4"), "MXUINT (AutoRound) cannot be decoded yet"),
    "integers": (MXFP4, autoround("int"), "says 4-bit ints in groups of 32"),
    "integers of compressed-tensors": (
        MXFP4,
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"targets": ["Linear"], "weights": INT4}},
        },
        "a of config_groups says 4-bit ints in groups of 32",
    ),
    "floats": (FP8, packed(), "says 4-bit ints in groups of 64"),
    "floats under a name": (
        MXFP4,
        autoround("mx_fp", extra_config={M: {"data_type": "int"}}),
        f"extra_config of {M} says 4-bit ints",
    ),
    "groups of 33": (gptq(7, cols=96, groups=3), packed(size=33), "groups of 33"),
    "groups of 40": (gptq(7, cols=96, groups=3), packed(size=40), "groups of 40"),
    "a scale for each row": (
        FP8,
        {"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"},
        "says 8-bit ints with a scale for each row",
    ),
    "4 bits of quanto's": (
        {f"{M}.weight._data": empty("I8", 8, 64), f"{M}.weight._scale": empty("BF16", 8, 1)},
        {"quant_method": "quanto", "weights": "int4"},
        "weights: int4 in the config says 4-bit ints",
    ),
    "MXINT2 of a layer": (
        MXFP4,
        autoround("mx_fp", extra_config={".*up_proj": {"data_type": "mx_int", "bits": 2}}),
        "MXINT (AutoRound) cannot be decoded yet",
    ),
    "zero points of 9": (gptq(8), packed(sym=True), "a zero point of 9, stored as 8"),
    "one of 6": (gptq(7, 5), packed(sym=True), "a zero point of 6, stored as 5"),
    "zero points of 7": (
        gptq(7),
        packed(sym=True, checkpoint_format="gptq_v2"),
        "a zero point of 7, stored as 7, but the config says sym: true, of which all are 8",
    ),
    "a low-rank part": (
        MODELOPT_NVFP4,
        {"quant_method": "modelopt", "quant_algo": "NVFP4_SVD", "group_size": 16},
        "NVFP4 with a low-rank part (SVDQuant of ModelOpt) cannot be decoded yet",
    ),
    "a low-rank part that only its names show": (
        MODELOPT_NVFP4 | {f"{M}.svdquant_lora_{side}": empty("BF16", 4, 4) for side in "ab"},
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        "NVFP4 with a low-rank part (SVDQuant of ModelOpt) cannot be decoded yet",
    ),
    "3 bits": (gptq(4, bits=3), packed(3, sym=True), "a zero point of 5, stored as 4"),
    "bytes of packed codes": (
        in_bytes(0),
        grouped("channel", 4) | {"format": "pack-quantized"},
        "the shapes are those of 8-bit ints",
    ),
    "words of compressed-tensors": (
        in_words(*[8] * 7, 9),
        grouped(),
        "a zero point of 9, stored as 9, but a of config_groups says symmetric: true",
    ),
    "bytes of compressed-tensors": (
        in_bytes(-1),
        grouped("channel", 8),
        "other zero points than 0, but a of config_groups says symmetric: true",
    ),
    "8 bits": (gptq(128, bits=8), packed(8, sym=True), "a zero point of 129, stored as 128"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused(case: str, tmp_path: Path) -> None:
    tensors, config, words = CONTRADICTIONS[case]
    assert words in problem(tmp_path, tensors, config)


BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
AGREEING: dict[str, tuple[Tensors, dict[str, Any]]] = {
    "MXFP4": (MXFP4, autoround("mx_fp")),
    "MXFP4 by the statement of another layer": (
        MXFP4,
        autoround("int", extra_config={"model.layers.9.*": {"data_type": "mx_fp"}}),
    ),
    **{
        f"ModelOpt's {algo}": (
            MODELOPT_NVFP4
            if "NVFP4" in algo
            else {f"{M}.weight": empty("U8", 8, 32), f"{M}.weight_scale": empty("U8", 8, 2)},
            {"quant_method": "modelopt", "quant_algo": algo},
        )
        for algo in ("NVFP4", "W4A16_NVFP4", "NVFP4_AWQ", "W4A8_MXFP4_FP8", "mxfp4")
    },
    "left alone": (FP8, packed(modules_to_not_convert=["up_proj"])),
    "MXFP4 among blocks of FP8": (MXFP4, BLOCKS),
    "blocks of 96": (
        {f"{M}.weight": empty("F8_E4M3", 200, 300), f"{M}.weight_scale_inv": empty("F32", 3, 4)},
        {"quant_method": "fp8", "weight_block_size": [96, 96]},
    ),
    "a short last group": (gptq(7, cols=96, groups=2), packed(size=64)),
    "zero points of 8": (gptq(7), packed(sym=True)),
    "of the second format": (gptq(8), packed(sym=True, checkpoint_format="gptq_v2")),
    "3 bits": (gptq(3, bits=3), packed(3, sym=True)),
    "not symmetric": (gptq(8), packed(sym=False)),
    "symmetric words": (in_words(*[8] * 8), grouped()),
    "words that are not": (in_words(*range(8)), grouped(symmetric=False)),
    "symmetric bytes": (in_bytes(0), grouped("channel", 8)),
    "nothing but activations": (
        {f"{M}.weight": empty("BF16", 8, 64)},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"targets": ["Linear"], "weights": None}},
        },
    ),
    "codes of 4 bits in bytes": (in_bytes(0), grouped("channel", 4)),
    "bytes that are not": (in_bytes(5), grouped("channel", 8, symmetric=False)),
}


@pytest.mark.parametrize("case", AGREEING)
def test_what_agrees_is_decoded(case: str, tmp_path: Path) -> None:
    tensors, config = AGREEING[case]
    assert not problem(tmp_path, tensors, config)


ALL_SEVENS: Tensors = {  # 6 of E2M1, 1.75 of MXINT4; 2^0 of E8M0, 2^0 of E5M3
    f"{M}.weight_packed": ("U8", (8, 32), b"\x77" * 256),
    f"{M}.weight_scale": ("U8", (8, 2), b"\x7f" * 16),
}
BY_CONFIG: dict[str, tuple[Tensors, dict[str, Any], float]] = {
    "MXFP4": (ALL_SEVENS, autoround("mx_fp"), 6.0),
    "MXINT4": (ALL_SEVENS, autoround("mx_int"), 1.75),
    "MXINT4 of a layer": (
        ALL_SEVENS,
        autoround("mx_fp", extra_config={M: {"data_type": "mx_int4"}}),
        1.75,
    ),
    "MXFP4 of a layer": (
        ALL_SEVENS,
        autoround("mx_int", extra_config={".*up_proj": {"data_type": "mx_fp"}}),
        6.0,
    ),
    "scales of E5M3": (
        ALL_SEVENS | {f"{M}.weight_scale": ("U8", (8, 4), b"\x78" * 32)},
        autoround("nvfp4_v2", group_size=16),
        6.0,
    ),
}


@pytest.mark.parametrize("case", BY_CONFIG)
def test_numbers_that_only_the_config_tells(case: str, tmp_path: Path) -> None:
    tensors, quantised, value = BY_CONFIG[case]
    config = {"model_type": "llama", "quantization_config": quantised}
    with an.parse(described(tmp_path / "a.safetensors", config, tensors).parent) as model:
        assert (model[f"{M}.weight"].numpy() == value).all()


def test_zero_points_are_compared_to_the_last(tmp_path: Path) -> None:
    """What is read to plan are the first of each weight."""
    tensors = gptq(7, groups=4)
    dtype, shape, data = tensors[f"{M}.qzeros"]
    tensors[f"{M}.qzeros"] = dtype, shape, data[:-1] + b"\x87"
    assert "a zero point of 9" in problem(tmp_path, tensors, packed(size=16, sym=True))


@pytest.mark.parametrize(
    ("data", "group", "byte", "counted"),
    [("nvfp4_v2", 16, 0x7F, set()), ("mx_int", 32, 0x7F, set()), ("mx_int", 32, 0xFF, {"nan"})],
)
def test_bytes_of_scales_mean_what_the_numbers_say(
    data: str, group: int, byte: int, counted: set[str], tmp_path: Path
) -> None:
    n = 64 // group
    scales = bytes([byte]) + b"\x78" * (8 * n - 1)
    tensors = ALL_SEVENS | {f"{M}.weight_scale": ("U8", (8, n), scales)}
    config = {"model_type": "llama", "quantization_config": autoround(data, group_size=group)}
    with an.parse(described(tmp_path / "a.safetensors", config, tensors).parent) as model:
        report = model.remember(lambda *_: None)
    counts = [pair for kinds in report.odd_scales.values() for pair in kinds.items()]
    assert {kind for kind, n in counts if n} == counted
