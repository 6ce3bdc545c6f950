"""Experts that an encoding takes apart are stacks again when they are decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

import anamnesis as an
from helpers.linearising import linearised
from helpers.stacked_models import STACKED, saved_stacked
from helpers.tiny_models import DECODER, loaded

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

ENCODINGS = ("int8", "int4", "nvfp4", "mxfp4", "mxfp8", "fp8-channel", "fp8-block-ct")
KINDS = [kind for kind in STACKED if kind != "qwen3_5_moe"]  # whose experts transformers joins


GRANITE = {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 128}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_expand": 2, "mamba_d_state": 16}
SIZES = {**DECODER, "head_dim": 32, "intermediate_size": 128, "moe_intermediate_size": 128}
MORE: dict[str, dict[str, Any]] = {
    "granitemoeshared": {**DECODER, **GRANITE},
    "granitemoehybrid": {**DECODER, **GRANITE, **MAMBA, "layer_types": ["mamba", "attention"]},
    "granitemoe_swa": {**DECODER, **GRANITE},
    "hy_v4": {**SIZES, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "inkling_text": {**SIZES, "n_routed_experts": 4, "num_experts_per_tok": 2},
}


def dense_model(kind: str, folder: Path) -> Path:
    """Write a model with its stacks."""
    if kind in STACKED:
        return saved_stacked(kind, folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **MORE[kind])
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def in_block(name: str) -> str:
    """A name from its block on; what is above has one name in a file, and another in a model."""
    return name[name.index("layers.") :]


@pytest.mark.against("llm-compressor, transformers")
@pytest.mark.parametrize(
    ("kind", "to"),
    [*((kind, to) for kind in KINDS for to in ENCODINGS), *((kind, "int8") for kind in MORE)],
)
def test_transformers_loads_what_is_remembered(kind: str, to: str, tmp_path: Path) -> None:
    """Nothing is missing, and what llm-compressor takes of it apart are the pieces' values."""
    dense = dense_model(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        assert model.forget(tmp_path / "coded", to).taken_apart
    with an.parse(tmp_path / "coded") as model:
        plan = model.plan("bf16")
        assert [v.outcome for v in plan.verdicts if v.program == "transformers"] == ["loads"]
        report = model.convert(tmp_path / "out", "bf16", verify=True)
        pieces = {
            in_block(name): torch.from_numpy(model[name].numpy("bf16").view("int16"))
            for name in model
            if ".experts." in name
        }
    assert report.put_together == plan.account.put_together
    before, after = (load_file(tmp_path / at / "model.safetensors") for at in ("dense", "out"))
    assert {n: (t.shape, t.dtype) for n, t in after.items()} == {
        n: (t.shape, t.dtype) for n, t in before.items()
    }
    found = {in_block(name): tensor for name, tensor in linearised(tmp_path / "out").items()}
    assert found.keys() >= pieces.keys()
    assert len(pieces) >= 12
    for name, bits in pieces.items():
        assert torch.equal(found[name].view(torch.int16), bits), name


@pytest.mark.against("transformers")
@pytest.mark.parametrize("kind", ["gpt_oss", "llama4", "granitemoe"])
def test_logits(kind: str, tmp_path: Path) -> None:
    """Those of a model that was decoded, and of one whose stacks were never taken apart."""
    dense = saved_stacked(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "coded", "fp8-channel")
    with an.parse(tmp_path / "coded") as model:
        model.remember(tmp_path / "out")
    one, other = (loaded(tmp_path / at, dtype=torch.float32).eval() for at in ("dense", "out"))
    with torch.no_grad():
        logits = [m(input_ids=torch.arange(20)[None]).logits.flatten() for m in (one, other)]
    assert torch.corrcoef(torch.stack(logits))[0, 1] > 0.99
