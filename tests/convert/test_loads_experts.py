"""Stacks of experts come out as llm-compressor and ModelOpt save them, and transformers loads them.

All of the experts' tensors are compared: names, dtypes, shapes, bytes, biases among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import CompressedTensorsConfig

import anamnesis as an
from helpers.linearising import MODELOPT, SCHEMES, llm_compressor, modelopt
from helpers.stacked_models import STACKED, saved_stacked
from helpers.tiny_models import loaded

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

Tensors = dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]


def of_experts(folder: Path) -> Tensors:
    found = {}
    for file in folder.glob("*.safetensors"):
        for name, tensor in load_file(file).items():
            if ".experts." in name:
                raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                found[name] = (tensor.dtype, tuple(tensor.shape), raw)
    return found


def lone(one: tuple[torch.dtype, tuple[int, ...], bytes]) -> Any:
    """A tensor, whose one number is a scalar: ModelOpt has some of blocks so, of experts alone."""
    dtype, shape, data = one
    return (dtype, () if shape == (1, 1, 1, 1) else shape, data)


def assert_same(ours: Tensors, want: Tensors) -> None:
    assert ours.keys() == want.keys()
    assert [name for name in want if ours[name] != want[name]] == []


@pytest.mark.against("compressed-tensors")
@pytest.mark.parametrize("to", SCHEMES)
@pytest.mark.parametrize("kind", STACKED)
def test_llm_compressor(kind: str, to: str, tmp_path: Path) -> None:
    dense = saved_stacked(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        report = model.forget(tmp_path / "ours", to, verify=True)
    assert report.taken_apart
    want = of_experts(llm_compressor(dense, to, tmp_path / "theirs"))
    assert len(want) >= 24
    assert_same(of_experts(tmp_path / "ours"), want)


@pytest.mark.against("ModelOpt")
@pytest.mark.parametrize("to", MODELOPT)
@pytest.mark.parametrize("kind", ["qwen3_vl_moe", "qwen3_5_moe", "gemma4", "granitemoe"])
def test_modelopt(kind: str, to: str, tmp_path: Path) -> None:
    dense = saved_stacked(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "ours", to, verify=True)
    want = of_experts(modelopt(dense, to, tmp_path / "theirs"))
    assert len(want) >= 48
    ours = of_experts(tmp_path / "ours")
    assert_same(*({name: lone(one) for name, one in made.items()} for made in (ours, want)))


@pytest.mark.parametrize("to", MODELOPT)
@pytest.mark.parametrize("kind", ["llama4", "gpt_oss"])
def test_what_modelopt_keeps_stacked(kind: str, to: str, tmp_path: Path) -> None:
    """Its classes for these quantise stacks in a layout of their own; here they stay plain."""
    dense = saved_stacked(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        report = model.forget(tmp_path / "ours", to)
    stacks = {name for name in of_experts(dense) if name.endswith("_proj")}
    assert not report.taken_apart
    assert stacks <= report.plain.keys()
    if kind == "gpt_oss":
        theirs = of_experts(modelopt(dense, to, tmp_path / "theirs"))
        assert stacks <= theirs.keys()


@pytest.mark.against("compressed-tensors")
@pytest.mark.parametrize("to", ["fp8-block-ct", "fp8-channel", "fp8-tensor-ct", "int4", "mxfp4"])
@pytest.mark.parametrize("kind", ["qwen3_moe", "qwen3_5_moe"])
def test_transformers_stacks_them_again(kind: str, to: str, tmp_path: Path) -> None:
    """To the values that are read here, in BF16; to the logits that these give."""
    dense = saved_stacked(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        assert model.forget(tmp_path / "out", to).taken_apart
    how = CompressedTensorsConfig(dequantize=True)
    theirs = loaded(tmp_path / "out", quantization_config=how, dtype=torch.bfloat16)
    with an.parse(tmp_path / "out") as model:
        model.remember(tmp_path / "plain")
    ours = loaded(tmp_path / "plain", dtype=torch.bfloat16)
    state = theirs.state_dict()
    assert any(name.endswith("experts.gate_up_proj") for name in state)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(state[name], tensor), name
    with torch.no_grad():
        logits = [model.eval()(torch.arange(20)[None]).logits for model in (ours, theirs)]
    assert logits[0].isfinite().all()
    assert torch.equal(*logits)
