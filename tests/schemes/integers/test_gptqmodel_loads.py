"""What GPTQModel quantised and saved goes through `amn`, and transformers loads it: Llama, GPT-2.

In GPTQ, and in AWQ: AutoAWQ itself no longer imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import anamnesis as an
from helpers.as_transformers_load import assert_loads_as
from helpers.packed_checkpoints import Awq, Dequantizes, Gptq
from helpers.scripts import HELPERS


def gptq_case(module: str) -> Gptq:
    """As the script asked for, `down_proj` otherwise than the rest."""
    return Gptq(8, 64) if module.endswith("down_proj") else Gptq(4, 32)


def awq_case(module: str) -> Awq:
    """All the same."""
    return Awq(32)


def gpt2_case(module: str) -> Gptq:
    """All the same."""
    return Gptq(4, 32)


FAMILIES: dict[str, tuple[int, Callable[[str], Dequantizes], tuple[str, ...]]] = {
    "gpt2": (8, gpt2_case, ("qweight", "qzeros", "scales", "g_idx")),
    "gptq": (13, gptq_case, ("qweight", "qzeros", "scales", "g_idx")),
    "awq": (14, awq_case, ("qweight", "qzeros", "scales")),
}


def by_the_library(method: str, stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All weights, the quantised ones as the library's own code has them."""
    n, case, parts = FAMILIES[method]
    modules = [name.removesuffix(".qweight") for name in stored if name.endswith(".qweight")]
    assert len(modules) == n
    if method != "awq":  # act-order
        assert any((stored[f"{m}.g_idx"].diff() < 0).any() for m in modules)
    taken = {f"{m}.{p}" for m in modules for p in parts}
    weights = {name: tensor for name, tensor in stored.items() if name not in taken}
    for module in modules:
        state = {name: stored[f"{module}.{name}"] for name in parts}
        exact = case(module).dequantize(state, torch.float32)
        turned = exact.T if method == "gpt2" else exact  # all are Conv1D
        weights[f"{module}.weight"] = turned.to(torch.bfloat16)
    return weights


def assert_nearer_than_transposed(
    weights: dict[str, torch.Tensor], dense: dict[str, torch.Tensor]
) -> None:
    """Quantised or not, weights are about the same."""
    for name, before in dense.items():
        if before.ndim == 2:
            error = (weights[name].float() - before.float()).abs().mean()
            assert error < before.float().abs().mean() / 4, name


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("method", FAMILIES)
def test_logits(method: str, tmp_path: Path) -> None:
    script = [sys.executable, str(HELPERS / "gptqmodel_llama.py"), method, str(tmp_path)]
    made = subprocess.run(
        script, capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path
    )  # it leaves a log where it runs
    assert made.returncode == 0, made.stderr[-3000:]
    source, out = tmp_path / "quantised", tmp_path / "plain"
    package = str(Path(an.__file__).parents[1])
    command = [sys.executable, "-m", "anamnesis", "remember", str(source), "-o", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": package}, timeout=120)

    reference = AutoModelForCausalLM.from_pretrained(tmp_path / "dense")
    weights = by_the_library(method, load_file(source / "model.safetensors"))
    if method == "gpt2":
        weights["lm_head.weight"] = weights["transformer.wte.weight"]  # tied
        assert_nearer_than_transposed(weights, reference.state_dict())
    reference.load_state_dict(weights)
    assert not (out / "quantize_config.json").exists()
    assert_loads_as(out, reference)
