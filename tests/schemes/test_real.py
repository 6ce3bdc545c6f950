"""Checkpoints made by the canonical libraries, 2025-26: read to the bit, or named by encoding."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import quiet

pytestmark = pytest.mark.against("checkpoints of the libraries, with what these make of them")

ROOT = os.environ.get("ANAMNESIS_REAL")
CHECKPOINTS = sorted(p.with_suffix("") for p in Path(ROOT, "modern").glob("*.json")) if ROOT else []

of_library = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "validated.py"))["expected"]

# Stops a run, but not the weight beside it.
SCALED = ".pre_quant_scale"
FP8 = ("F8_E4M3", "F8_E5M2")
_OUTPUTS: dict[Any, Any] = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
}


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_what_the_library_made_is_there_but_of_exl3() -> None:
    """Of which it is another decoder's; tests/schemes/exl3 has exllamav3's own kernels."""
    files = [path.with_name(f"{path.name}.expected.safetensors") for path in CHECKPOINTS]
    assert [path.name for path in files if not of_library(path)] == ["exl3.expected.safetensors"]


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_there_are_checkpoints() -> None:
    assert len(CHECKPOINTS) >= 118


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda p: p.name)
def test_is_read_or_refused(checkpoint: Path) -> None:
    with an.parse(checkpoint) as model:
        unread = [error for name, error in model.problems.items() if not name.endswith(SCALED)]
        assert not unread
        if model.problems:
            message = next(error.message for error in model.problems.values())
            with pytest.raises(an.UnsupportedError) as refused:
                model.remember(lambda *_: pytest.fail("a weight came out"))
            assert str(refused.value).startswith(message)
        check_values(model, checkpoint)


@pytest.mark.parametrize("level", supported_levels())
@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda p: p.name)
def test_reference_has_the_librarys_bits(checkpoint: Path, level: Any) -> None:
    """Also where the library rounds in between; in the dtype that it gives."""
    want = of_library(checkpoint.with_name(f"{checkpoint.name}.expected.safetensors"))
    with an.parse(checkpoint) as model:
        for name in want.keys() & model.keys() - model.problems.keys():
            dtype = _OUTPUTS[want[name].dtype]
            found = model[name].numpy(dtype, level=level, math="reference")
            assert found.tobytes() == quiet(want[name]), name


def _twice_rounded(checkpoint: Path) -> set[str]:
    """The weights that are not what float32 gives, rounded once."""
    told = json.loads(checkpoint.with_suffix(".json").read_bytes())
    return set(told.get("values_where_it_is_not", {}))


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda p: p.name)
def test_inspect_says_where_the_two_differ(checkpoint: Path) -> None:
    want = of_library(checkpoint.with_name(f"{checkpoint.name}.expected.safetensors"))
    with an.parse(checkpoint) as model:
        differing = _twice_rounded(checkpoint) & model.keys() - model.problems.keys()
        dtypes = {want[name].dtype for name in differing}
        for dtype in dtypes:
            told = model.inspect(_OUTPUTS[dtype]).rounded_between
            assert {model[name].scheme for name in differing} <= told.keys()
        for name in want.keys() & model.keys() - model.problems.keys() - differing:
            dtype = _OUTPUTS[want[name].dtype]
            once = model[name].numpy(dtype).tobytes()
            assert model[name].numpy(dtype, math="reference").tobytes() == once, name


# Without HQQ's, whose settings are tensors of their own, and the pickle.
NO_SETTINGS = [p for p in CHECKPOINTS if not p.name.startswith("hqq") and "pickle" not in p.name]


@pytest.mark.parametrize("checkpoint", NO_SETTINGS, ids=lambda p: p.name)
def test_no_codes_pass_for_weights(checkpoint: Path) -> None:
    want = of_library(checkpoint.with_name(f"{checkpoint.name}.expected.safetensors"))
    with an.parse(checkpoint) as model:
        for name in model.keys() - model.problems.keys() if want else ():
            assert name in want or model[name].parts[0].dtype.kind == "float", name


def check_values(model: an.Model, checkpoint: Path) -> None:
    """Compare all that is there; where anything is refused, it may be a part of the whole."""
    want = of_library(checkpoint.with_name(f"{checkpoint.name}.expected.safetensors"))
    in_f32 = checkpoint.with_name(f"{checkpoint.name}.expected_f32.safetensors")
    exact = of_library(in_f32) if in_f32.exists() else {}
    twice_rounded = json.loads(checkpoint.with_suffix(".json").read_bytes()).get(
        "values_where_it_is_not", {}
    )
    if not model.problems:
        assert want.keys() <= model.keys()
    for name in model.keys() - model.problems.keys():
        tensor = model[name]
        if name in want:
            if name in exact:
                expected = exact[name]
            elif name in twice_rounded and tensor.parts[0].dtype.name not in FP8:
                continue  # of those whose float32 values are not there
            else:
                expected = product(checkpoint, name) if name in twice_rounded else want[name]
            for level in supported_levels():
                found = tensor.numpy(_OUTPUTS[expected.dtype], level=level)
                assert found.tobytes() == quiet(expected), (name, level)
        elif want:
            dtype = tensor.parts[0].dtype
            assert dtype.kind == "float" or len(tensor.shape) < 2, f"{name} is {dtype}"


def product(checkpoint: Path, name: Any) -> torch.Tensor:
    """What torch makes of FP8 codes and a scale, for all, for a row, or a block, in float32."""
    stored = load_file(checkpoint / "model.safetensors")
    codes, scale = stored[name].float(), stored[f"{name}_scale"].float()
    if scale.dim() == 4:
        blocks = scale.squeeze((1, 3)).repeat_interleave(128, 0).repeat_interleave(128, 1)
        return codes * blocks[: codes.shape[0], : codes.shape[1]]
    return codes * scale.reshape(-1, 1)
