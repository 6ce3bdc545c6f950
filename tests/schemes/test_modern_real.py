"""Checkpoints made by the canonical libraries, 2025-26: read to the bit, or refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from fp8_layouts import quiet
from safetensors.torch import load_file

import anamnesis as an

ROOT = os.environ.get("ANAMNESIS_REAL")
CHECKPOINTS = sorted(p.with_suffix("") for p in Path(ROOT, "modern").glob("*.json")) if ROOT else []

# What a refusal calls the encoding, by the beginning of a checkpoint's name.
CALLED = {
    "aqlm": "aqlm",
    "autoround": "auto-round",
    "awq_gemv": "GEMV",
    "awq_gemv_fast": "gemv_fast",
    "awq_marlin": "awq, marlin",
    "bitnet": "bitnet",
    "comfy": "ComfyUI",
    "ct": "compressed-tensors",
    "ct_sparse_bitmask": "sparse-bitmask",
    "ct_sparse24_bitmask": "sparse-24-bitmask",
    "deepseek": "DeepSeek",
    "exl3": "exl3",
    "gptoss": "MXFP4",
    "hqq": "hqq",
    "mlx": "mlx",
    "modelopt": "modelopt",
    "quanto": "quanto",
    "quark": "quark",
    "torchao": "torchao",
    "vptq": "vptq",
}
_OUTPUTS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_there_are_checkpoints() -> None:
    assert len(CHECKPOINTS) >= 118


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda p: p.name)
def test_is_read_or_refused(checkpoint: Path) -> None:
    if (checkpoint / "pytorch_model.bin").exists():
        with pytest.raises(an.DisallowedGlobal, match=called(checkpoint.name)):
            an.parse(checkpoint)
        return
    with an.parse(checkpoint) as model:
        if model.problems:
            message = next(str(error) for error in model.problems.values())
            assert called(checkpoint.name) in message
            with pytest.raises((an.UnsupportedError, an.ParseError)) as refused:
                model.remember(lambda *_: pytest.fail("a weight came out"))
            assert str(refused.value).startswith(message)
        check_values(model, checkpoint)


def called(name: str) -> str:
    return CALLED[max((start for start in CALLED if name.startswith(start)), key=len)]


def check_values(model: an.Model, checkpoint: Path) -> None:
    """Compare all that is there; where anything is refused, it may be a part of the whole."""
    want = load_file(checkpoint.with_name(f"{checkpoint.name}.expected.safetensors"))
    in_f32 = checkpoint.with_name(f"{checkpoint.name}.expected_f32.safetensors")
    exact = load_file(in_f32) if in_f32.exists() else {}
    twice_rounded = json.loads(checkpoint.with_suffix(".json").read_bytes()).get(
        "values_where_it_is_not", {}
    )
    if not model.problems:
        assert want.keys() <= model.keys()
    for name in model.keys() - model.problems.keys():
        tensor = model[name]
        if name in want:
            if name in exact or name in twice_rounded:
                expected = exact[name] if name in exact else product(checkpoint, name)
            else:
                expected = want[name]
            assert tensor.numpy(_OUTPUTS[expected.dtype]).tobytes() == quiet(expected), name
        else:
            dtype = tensor.parts[0].dtype
            assert dtype.kind == "float" or len(tensor.shape) < 2, f"{name} is {dtype}"


def product(checkpoint: Path, name: str) -> torch.Tensor:
    """What torch makes of FP8 codes and a scale, for all, for a row, or a block, in float32."""
    stored = load_file(checkpoint / "model.safetensors")
    codes, scale = stored[name].float(), stored[f"{name}_scale"].float()
    if scale.dim() == 4:
        blocks = scale.squeeze((1, 3)).repeat_interleave(128, 0).repeat_interleave(128, 1)
        return codes * blocks[: codes.shape[0], : codes.shape[1]]
    return codes * scale.reshape(-1, 1)
