"""Real checkpoints repacked: the values before are the values after, to the bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.schemes.families.fp4.formats import FORMATS
from anamnesis.schemes.families.fp4.layouts import LAYOUTS
from anamnesis.schemes.views.transposed import Transposed

ROOT = os.environ.get("ANAMNESIS_REAL")

pytestmark = pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")

NVFP4 = ("nvfp4", "nvfp4-modelopt", "comfy-nvfp4", "mlx-nvfp4", "gguf-nvfp4")
MXFP4 = ("mxfp4", "mxfp4-modelopt", "mlx-mxfp4", "gptoss-mxfp4", "gguf-mxfp4")
INT4 = ("int4", "gptq-4bit", "awq-4bit")

# What each checkpoint can be repacked as; what it cannot, and why, by what the error says.
NO_BLOCKS, NO_EXPERTS, BF16 = (
    "not of whole NVFP4 blocks",
    "gpt-oss has stacks",
    "scales are BF16",
)
SHAPE = "must be multiples of 8"
CASES: dict[str, dict[str, str]] = {
    "modern/ct_nvfp4": {**dict.fromkeys(NVFP4, ""), "gguf-nvfp4": NO_BLOCKS},
    "modern/ct_nvfp4a16": {**dict.fromkeys(NVFP4, ""), "gguf-nvfp4": NO_BLOCKS},
    "modern/modelopt_nvfp4": {**dict.fromkeys(NVFP4, ""), "gguf-nvfp4": NO_BLOCKS},
    "modern/modelopt_mixed_kv": {**dict.fromkeys(NVFP4, ""), "gguf-nvfp4": NO_BLOCKS},
    "modern/torchao_nvfp4": {**dict.fromkeys(NVFP4, ""), "gguf-nvfp4": NO_BLOCKS},
    "modern/mlx_nvfp4": {**dict.fromkeys(NVFP4, ""), "gguf-nvfp4": NO_BLOCKS},
    "modern/mlx_experts": {
        **dict.fromkeys(NVFP4, ""),
        "comfy-nvfp4": "ComfyUI has matrices",
    },
    "modern/comfy_nvfp4": {
        **dict.fromkeys(NVFP4, "end within a group"),
        "comfy-nvfp4": "",
    },
    "modern/comfy_kitchen_mixed": {**dict.fromkeys(NVFP4, ""), "gguf-nvfp4": NO_BLOCKS},
    "modern/modelopt_w4a8_nvfp4_fp8": dict.fromkeys(NVFP4, "32 codes share a scale"),
    **{
        f"modern/{name}": {**dict.fromkeys(MXFP4, ""), "gptoss-mxfp4": NO_EXPERTS}
        for name in (
            *("ct_mxfp4", "modelopt_mxfp4", "mlx_mxfp4", "quark_mxfp4", "torchao_mxfp4"),
            *("autoround_mxfp4", "deepseek_v4"),
        )
    },
    **{
        f"modern/{name}": dict.fromkeys(("mxfp8", "mxfp8-modelopt", "mlx-mxfp8"), "")
        for name in ("ct_mxfp8", "modelopt_mxfp8", "mlx_mxfp8", "torchao_mxfp8")
    },
    "modern/comfy_mxfp8": dict.fromkeys(("mxfp8", "mlx-mxfp8"), "end within a group of 32"),
    "gguf/synthetic_mxfp4.gguf": {**dict.fromkeys(MXFP4, ""), "gptoss-mxfp4": NO_EXPERTS},
    "modern/gptoss_mxfp4": dict.fromkeys(MXFP4, ""),
    "modern/gptoss_openai": dict.fromkeys(MXFP4, ""),
    "gptq/llama_3_2_1b_int4.safetensors": dict.fromkeys(INT4, ""),
    "awq/falcon3_1b_awq.safetensors": dict.fromkeys(INT4, ""),
    "gguf/smollm2_q4_0.gguf": dict.fromkeys((*INT4, "gguf-q4_0"), ""),
    "modern/autoround_w4_sym_gptq": dict.fromkeys(INT4, ""),
    "modern/autoround_w4_asym_awq": {
        **dict.fromkeys(INT4, ""),
        "gptq-4bit": "a zero point is 0, which has no place",
    },
    "modern/ct_w4_g32_asym_f16": {**dict.fromkeys(INT4, SHAPE), "int4": ""},
    "modern/ct_w4_g128_actorder": {**dict.fromkeys(INT4, SHAPE), "int4": ""},
    "modern/ct_w4_g32_actorder_asym_old": {**dict.fromkeys(INT4, SHAPE), "int4": ""},
    "modern/ct_w4_channel_sym": {
        **dict.fromkeys(INT4, SHAPE),
        "int4": "",
        "gguf-q4_0": BF16,
    },
    "modern/ct_w4_channel_asym": {**dict.fromkeys(INT4, SHAPE), "int4": ""},
    "modern/ct_w4_experts3d": {**dict.fromkeys(INT4, "has matrices only"), "int4": ""},
    "modern/mlx_affine_4bit_f16": {"gguf-q4_1": ""},
    "modern/mlx_affine_4bit": {"gguf-q4_1": BF16},
    "modern/ct_int8_channel": {"gguf-q8_0": BF16},
    "gguf/smollm2_q8_0.gguf": {"gguf-q8_0": ""},
}
PAIRS = [(name, target) for name, targets in CASES.items() for target in targets]


def bits(model: an.Model, name: str, dtype: Any) -> NDArray[Any]:
    array = model[name].numpy(dtype=dtype)
    return array.view(f"u{array.itemsize}")


def written(source: str, target: str, out: Path, **options: Any) -> tuple[an.Report, Path]:
    """Repack into a directory if the source is one, so that a config.json goes with it."""
    path = Path(str(ROOT), source)
    name = f"out.{'gguf' if target.startswith('gguf') else 'safetensors'}"
    made = out if path.is_dir() and name.endswith("safetensors") else out / name
    if name.endswith("gguf"):
        options["names"] = "keep"  # a few tensors, and no tokenizer
    with an.parse(path) as model:
        return model.convert(made, target, verify=True, **options), made


def other_name(model: an.Model, name: str) -> str:
    """What a weight is called where only some layouts can call it so."""
    names = (name, f"{name}.weight", name.removesuffix(".weight"))
    return next(n for n in names if n in model)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda x: x.replace("/", "-"))
def test_values(source: str, target: str, tmp_path: Path) -> None:
    why = CASES[source][target]
    if why:
        with an.parse(Path(str(ROOT), source)) as model:
            quantised = model._ledger.weights.items()
            codes = [name for name, weight in quantised if weight.own_dtype is None]
        with pytest.raises(an.UnsupportedError, match=why):
            written(source, target, tmp_path, include=codes, lossless=True)
        assert not any(tmp_path.iterdir())
        return
    report, made = written(source, target, tmp_path)
    assert report.repacked
    with an.parse(Path(str(ROOT), source)) as before, an.parse(made) as after:
        weights = [n for n, w in before._ledger.weights.items() if n in report.repacked]
        assert len(weights) == len(report.repacked)
        for name in weights:
            _check(before, after, name, target, exact=name not in report.inexact)
        assert len(before) == len(report.repacked) + len(report.plain) + report.n_encoded


def _check(before: an.Model, after: an.Model, name: str, target: str, *, exact: bool) -> None:
    again = other_name(after, name)
    old, new = before._ledger.weights[name], after._ledger.weights[again]
    turned = isinstance(old, Transposed) != isinstance(new, Transposed)
    for dtype in ("f32", "bf16", "f16"):
        one, other = bits(before, name, dtype), bits(after, again, dtype)
        if turned:
            other = other.swapaxes(-1, -2)
        assert one.shape == other.shape
        differ = one != other
        sign = np.array(1 << (8 * one.itemsize - 1), one.dtype)
        zeros = differ & ((one | other) == sign)
        if zeros.any():  # code 8, which is -0 to some and +0 to others
            assert _plus_zero(old) != FORMATS[LAYOUTS[target].format].plus_zero
            assert not (one if _plus_zero(old) else other)[zeros].any()
        rest = differ & ~zeros
        if exact or dtype != "f32":
            assert not rest.any()
        else:
            apart = one[rest].astype("i8") - other[rest].astype("i8")
            assert rest.any()
            assert set(apart.tolist()) <= {-2, -1, 1, 2}


def _plus_zero(weight: Any) -> bool:
    weight = getattr(weight, "stored", weight)
    if hasattr(weight, "format"):
        return bool(weight.format.plus_zero)
    return FORMATS[f"gguf-{weight.id}"].plus_zero


# From one layout to others and back: the bytes are its own.
ROUND_TRIPS = [
    ("modern/ct_mxfp8", "mxfp8", ("mlx-mxfp8",)),
    ("modern/mlx_mxfp8", "mlx-mxfp8", ("mxfp8", "mxfp8-modelopt")),
    ("modern/ct_nvfp4", "nvfp4", ("nvfp4-modelopt", "comfy-nvfp4", "mlx-nvfp4")),
    ("modern/modelopt_nvfp4", "nvfp4-modelopt", ("comfy-nvfp4",)),
    ("modern/modelopt_mixed_kv", "nvfp4-modelopt", ("comfy-nvfp4", "mlx-nvfp4")),
    ("modern/mlx_nvfp4", "mlx-nvfp4", ("nvfp4", "nvfp4-modelopt", "comfy-nvfp4")),
    ("modern/mlx_experts", "mlx-nvfp4", ("nvfp4-modelopt",)),
    ("modern/ct_mxfp4", "mxfp4", ("mlx-mxfp4", "gguf-mxfp4")),
    ("modern/mlx_mxfp4", "mlx-mxfp4", ("mxfp4", "gguf-mxfp4")),
    ("modern/gptoss_mxfp4", "gptoss-mxfp4", ("mxfp4", "mlx-mxfp4", "gguf-mxfp4")),
    ("gguf/synthetic_mxfp4.gguf", "gguf-mxfp4", ("mxfp4", "mlx-mxfp4")),
    ("gguf/smollm2_q4_0.gguf", "gguf-q4_0", ("int4",)),
    ("gptq/llama_3_2_1b_int4.safetensors", "gptq-4bit", ("int4", "awq-4bit")),
    ("awq/falcon3_1b_awq.safetensors", "awq-4bit", ("int4", "gptq-4bit")),
]


@pytest.mark.parametrize(
    ("source", "home", "via"),
    [(source, home, via) for source, home, others in ROUND_TRIPS for via in others],
    ids=lambda x: x.replace("/", "-"),
)
def test_there_and_back(source: str, home: str, via: str, tmp_path: Path) -> None:
    with an.parse(Path(str(ROOT), source)) as before:
        codes = list(before.plan(via, names="keep").to_dict()["repacked"])
    if "gptoss" in home:
        codes = ["*expert*"]  # all others are encoded, where they can be
    first, there = written(source, via, tmp_path / "there", include=codes)
    back = tmp_path / f"back.{'gguf' if home.startswith('gguf') else 'safetensors'}"
    with an.parse(there) as model:
        report = model.convert(back, home, include=codes)
    with an.parse(Path(str(ROOT), source)) as before, an.parse(back) as after:
        parts = [
            part.name
            for name, weight in before._ledger.weights.items()
            if name in first.repacked
            for part in weight.parts
        ]
        assert len(report.repacked) == len(first.repacked)
        assert len(parts) >= len(report.repacked)
        for name in parts:
            assert after.stored[name].describe() == before.stored[name].describe()
            assert after.stored[name].read() == before.stored[name].read(), name
