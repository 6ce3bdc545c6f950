"""Encodings whose library rounds in between, by numbers that were worked out by hand.

In bfloat16, 3 * 1.0078125 is 3.03125, 1.5 * 1.0078125 is 1.515625, and 1.005859375 is 1.0078125.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.handmade import Entry, write_safetensors

ONE_MORE = 1.005859375  # of which bfloat16 makes 1.0078125
OUTPUTS: dict[Any, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
MODELOPT = {"quantization_config": {"quant_method": "modelopt"}}


def bf16(*values: float) -> bytes:
    return np.array(values, np.float32).astype(ml_dtypes.bfloat16).tobytes()


def marker(name: str) -> Entry:
    raw = json.dumps({"format": name}).encode()
    return "U8", (len(raw),), raw


class Case(NamedTuple):
    """A checkpoint of one weight, `a.weight`, all of whose values are one, and that value."""

    tensors: dict[str, Entry]
    config: dict[str, Any]
    by_float32: dict[Any, float]
    by_reference: dict[Any, float]


E4M3_ONE_AND_A_HALF, E4M3_ONE, E2M1_ONE_AND_A_HALF = 0x3C, 0x38, 3
FP8: Entry = ("F8_E4M3", (2, 16), bytes([E4M3_ONE_AND_A_HALF] * 32))
SCALE: Entry = ("F32", (), pack("<f", ONE_MORE))
FP8_ONCE = {"bf16": 1.5078125, "f32": 1.5087890625}
FP8_TWICE = {"bf16": 1.515625, "f32": 1.5087890625}

CASES = {
    # 5 bits, 32 to a group: the code 3 in each
    "mlx": Case(
        {
            "a.weight": ("U32", (1, 5), sum(3 << 5 * i for i in range(32)).to_bytes(20, "little")),
            "a.scales": ("BF16", (1, 1), bf16(1.0078125)),
            "a.biases": ("BF16", (1, 1), bf16(-3)),
        },
        {},
        {"bf16": 0.0234375, "f16": 0.0234375, "f32": 0.0234375},
        {"bf16": 0.03125, "f16": 0.03125, "f32": 0.03125},
    ),
    "mlx, of float32": Case(
        {
            "a.weight": ("U32", (1, 5), sum(3 << 5 * i for i in range(32)).to_bytes(20, "little")),
            "a.scales": ("F32", (1, 1), pack("<f", 1.0078125)),
            "a.biases": ("F32", (1, 1), pack("<f", -3)),
        },
        {},
        {"bf16": 0.0234375, "f32": 0.0234375},
        {"bf16": 0.0234375, "f32": 0.0234375},
    ),
    # 255 - 0.5 is 254, and 254 * 1.5 is 380
    "hqq": Case(
        {
            "a.W_q": ("U8", (2, 32), b"\xff" * 64),
            "a.scale": ("BF16", (2, 1), bf16(1.5, 1.5)),
            "a.zero": ("BF16", (2, 1), bf16(0.5, 0.5)),
            "a.shape": ("I64", (2,), pack("<2q", 2, 32)),
            "a.nbits": ("I32", (1,), pack("<i", 8)),
            "a.axis": ("I32", (1,), pack("<i", 1)),
        },
        {},
        {"bf16": 382, "f16": 381.75, "f32": 381.75},
        {"bf16": 380, "f16": 380, "f32": 380},
    ),
    # 1.0078125 - 8 is -7; 8 more is 1
    "torchao": Case(
        {
            "a._weight_qdata": ("I8", (1, 16), bytes(16)),
            "a._weight_scale": ("BF16", (1, 1), bf16(1)),
            "a._weight_zero_point": ("BF16", (1, 1), bf16(1.0078125)),
        },
        {},
        {"bf16": 1.0078125, "f32": 1.0078125},
        {"bf16": 1.0, "f32": 1.0},
    ),
    "modelopt, fp8": Case(
        {"a.weight": FP8, "a.weight_scale": SCALE}, MODELOPT, FP8_ONCE, FP8_TWICE
    ),
    "modelopt, int8": Case(
        {
            "a.weight": ("I8", (1, 32), b"\3" * 32),
            "a.weight_scale": ("F32", (1,), pack("<f", ONE_MORE)),
        },
        MODELOPT,
        {"bf16": 3.015625, "f32": 3.017578125},
        {"bf16": 3.03125, "f32": 3.017578125},
    ),
    "comfyui, fp8": Case(
        {"a.weight": FP8, "a.weight_scale": SCALE, "a.comfy_quant": marker("float8_e4m3fn")},
        {},
        FP8_ONCE,
        FP8_TWICE,
    ),
    "comfyui, fp8 of older files": Case(
        {"a.weight": FP8, "a.scale_weight": SCALE, "scaled_fp8": ("F8_E4M3", (0,), b"")},
        {},
        FP8_ONCE,
        FP8_TWICE,
    ),
    "comfyui, fp8 by rows": Case(
        {
            "a.weight": FP8,
            "a.weight_scale": ("F32", (2,), pack("<2f", ONE_MORE, ONE_MORE)),
            "a.comfy_quant": marker("float8_e4m3fn_rowwise"),
        },
        {},
        FP8_ONCE,
        FP8_ONCE,
    ),
    "comfyui, nvfp4": Case(
        {
            "a.weight": ("U8", (16, 8), bytes([E2M1_ONE_AND_A_HALF * 17] * 128)),
            "a.weight_scale": ("F8_E4M3", (128, 4), bytes([E4M3_ONE] * 512)),
            "a.weight_scale_2": SCALE,
            "a.comfy_quant": marker("nvfp4"),
        },
        {},
        FP8_ONCE,
        FP8_TWICE,
    ),
}
DIFFERING = [name for name, case in CASES.items() if case.by_float32 != case.by_reference]


def opened(folder: Path, case: Case) -> an.Model:
    write_safetensors(folder / "in/model.safetensors", case.tensors)
    (folder / "in/config.json").write_text(json.dumps(case.config))
    return an.parse(folder / "in")


@pytest.mark.parametrize("level", supported_levels())
@pytest.mark.parametrize("name", CASES)
def test_both_maths(name: str, level: Any, tmp_path: Path) -> None:
    case = CASES[name]
    with opened(tmp_path, case) as model:
        tensor = model["a.weight"]
        for maths, values in (({}, case.by_float32), ({"math": "reference"}, case.by_reference)):
            for output, value in values.items():
                how: dict[str, Any] = {"level": level, **maths}
                want = np.full(tensor.shape, value, OUTPUTS[output])
                assert tensor.numpy(output, **how).tobytes() == want.tobytes(), output
                assert model.state_dict(output, **how)["a.weight"].tobytes() == want.tobytes()
                written: dict[str, Any] = {}
                model.remember(written.__setitem__, output, **how)
                assert written["a.weight"].tobytes() == want.tobytes(), output


@pytest.mark.parametrize("name", CASES)
def test_plan_and_inspect_tell(name: str, tmp_path: Path) -> None:
    with opened(tmp_path, CASES[name]) as model:
        plans = [model.plan(), model.plan(math="float32"), model.plan(math="reference")]
        assert [plan.to_dict()["math"] for plan in plans] == ["float32", "float32", "reference"]
        assert plans[0].digest() == plans[1].digest() != plans[2].digest()
        told = model.inspect().rounded_between
        scheme = model["a.weight"].scheme
        assert told == ({scheme: 1} if name in DIFFERING else {})
        assert ("float32 and reference differ in 1 tensor" in str(model.inspect())) == bool(told)
        in_float32 = model.inspect("f32").rounded_between
        assert bool(in_float32) == (
            CASES[name].by_float32["f32"] != CASES[name].by_reference["f32"]
        )


@pytest.mark.parametrize("name", DIFFERING)
def test_ids_tell_apart_what_is_decoded_otherwise(name: str, tmp_path: Path) -> None:
    """By them a run is taken up, and weights are that are decoded alike."""
    with opened(tmp_path, CASES[name]) as model:
        ids = {
            next(iter(model.plan(dtype="bf16", math=math).weights())).weight.id
            for math in ("float32", "reference")
        }
    assert len(ids) == 2


def test_values_are_encoded_as_they_are_decoded(tmp_path: Path) -> None:
    """What is forgotten is what the library would have remembered."""
    with opened(tmp_path, CASES["mlx"]) as model:
        direct, plain = io.BytesIO(), io.BytesIO()
        model.forget(direct, "int8", math="reference")
        model.remember(plain, math="reference")
    with an.parse(plain.getvalue()) as model:
        by_way_of_bf16 = io.BytesIO()
        model.forget(by_way_of_bf16, "int8")
    with an.parse(direct.getvalue()) as one, an.parse(by_way_of_bf16.getvalue()) as other:
        assert {n: t.read() for n, t in one.stored.items()} == {
            n: t.read() for n, t in other.stored.items()
        }


LOST: dict[str, dict[str, Entry]] = {
    "modelopt, fp8": {"a.weight_scale": ("F32", (), pack("<f", 1e5))},
    "modelopt, int8": {"a.weight_scale": ("F32", (1,), pack("<f", 1e5))},
    "comfyui, nvfp4": {"a.weight_scale_2": ("F32", (), pack("<f", 1e5))},
}
HALF: dict[str, dict[str, Entry]] = {
    "modelopt, fp8": {"a.weight": ("F8_E4M3", (2, 16), b"\x30" * 32)},
    "modelopt, int8": {"a.weight": ("I8", (1, 32), bytes(32))},
    "comfyui, nvfp4": {"a.weight": ("U8", (16, 8), b"\x11" * 128)},
}


@pytest.mark.parametrize("level", supported_levels())
@pytest.mark.parametrize("name", LOST)
def test_scales_that_become_infinite_are_told_of(name: str, level: Any, tmp_path: Path) -> None:
    """Half of 100,000 is a half float, but 100,000 is none: nothing finite is left."""
    case = CASES[name]
    tensors = {**case.tensors, **LOST[name], **HALF[name]}
    with opened(tmp_path, case._replace(tensors=tensors)) as model:
        n = model["a.weight"].size
        assert np.isfinite(model["a.weight"].numpy("f16")).all()
        assert not np.isfinite(model["a.weight"].numpy("f16", math="reference")).any()
        report = model.remember(lambda *_: None, "f16", level=level)
        assert report.overflows == {}
        report = model.remember(lambda *_: None, "f16", level=level, math="reference")
        assert report.overflows == {"a.weight": n}


def test_there_is_no_other_math(tmp_path: Path) -> None:
    message = "math must be 'float32' or 'reference', not 'fast'"
    other: Any = "fast"
    with opened(tmp_path, CASES["mlx"]) as model:
        for call in (
            lambda: model["a.weight"].numpy(math=other),
            lambda: model.state_dict(math=other),
            lambda: model.plan(math=other),
            lambda: model.remember(io.BytesIO(), math=other),
        ):
            with pytest.raises(ValueError, match=message):
                call()
