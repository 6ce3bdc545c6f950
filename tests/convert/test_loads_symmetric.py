"""Models in GPTQ and AWQ without zero points of their own, loaded by transformers out of `int4`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CompressedTensorsConfig

import anamnesis as an
from helpers.tiny_models import loaded, saved

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.against("transformers, compressed-tensors"),
]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.arange(24)[None]).logits
    return found


@pytest.mark.parametrize(
    ("steps", "target"),
    [
        (("gptq-4bit",), "int4"),
        (("gptq-4bit-32",), "int4"),
        (("gptq-4bit", "awq-4bit"), "int4"),
        (("gptq-8bit",), "int8-packed"),
    ],
)
def test_the_model_is_what_is_remembered(
    steps: tuple[str, ...], target: str, tmp_path: Path
) -> None:
    """Each weight is, and so are logits; what runs compressed has the same weights."""
    source = saved("llama", tmp_path / "dense")
    for step in steps:
        with an.parse(source) as model:
            model.convert(tmp_path / step, step)
        source = tmp_path / step
    with an.parse(source) as model:
        plan = model.plan(target)
        assert {v.outcome for v in plan.verdicts if v.program.startswith("transf")} == {"loads"}
        model.convert(tmp_path / "out", target, verify=True)
        model.remember(tmp_path / "plain", dtype="f16")
    how = CompressedTensorsConfig(dequantize=True)
    made = loaded(tmp_path / "out", quantization_config=how, dtype=torch.float16)
    plain = loaded(tmp_path / "plain", dtype=torch.float16)
    found, wanted = made.state_dict(), plain.state_dict()
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
    assert torch.equal(logits(made), logits(plain))
    packed = loaded(tmp_path / "out", dtype=torch.float16)
    assert torch.equal(logits(packed), logits(plain))


def test_zero_points_that_differ_stay_and_are_told_of(tmp_path: Path) -> None:
    dense = saved("llama", tmp_path / "dense")
    with an.parse(dense) as model:
        model.convert(tmp_path / "awq", "awq-4bit")
    with an.parse(tmp_path / "awq") as model:
        plan = model.plan("int4")
    (verdict,) = (v for v in plan.verdicts if v.program.startswith("transformers"))
    assert verdict.outcome == "refuses"
    assert verdict.why == "it expects no packed zero points"


def test_act_order_is_refused(tmp_path: Path) -> None:
    dense = saved("llama", tmp_path / "dense")
    with an.parse(dense) as model:
        model.convert(tmp_path / "gptq", "gptq-4bit-32")
    path = tmp_path / "gptq" / "model.safetensors"
    state = load_file(path)
    for name, tensor in state.items():
        if name.endswith("g_idx"):
            state[name] = tensor.flip(0)
    save_file(state, path)
    with an.parse(tmp_path / "gptq") as model:
        plan = model.plan("int4")
        model.convert(tmp_path / "out", "int4")
    (verdict,) = (v for v in plan.verdicts if v.program.startswith("transformers"))
    assert verdict.outcome == "refuses"
    assert any("act-order" in warning for warning in plan.warnings)
    with pytest.raises(ValueError, match="has been removed"):
        loaded(tmp_path / "out")
