"""Megatron's models, converted and loaded by transformers as those that they were."""

from __future__ import annotations

import json
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import anamnesis as an

MODELS = Path(__file__).parent / "recorded/megatron_models.zip"


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "qwen3_moe"])
def test_transformers_loads_the_whole_model(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(MODELS) as file:
        file.extractall(tmp_path)
    folder, out = tmp_path / name, tmp_path / "out"
    with an.parse(folder / "checkpoint", config=folder / "config") as model:
        report = model.convert(out, "safetensors")
    assert not report.warnings
    loaded, told = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.bfloat16, output_loading_info=True
    )
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    loaded.save_pretrained(tmp_path / "again")  # experts one by one again
    wanted = json.loads((folder / "digests.json").read_text())
    with an.parse(tmp_path / "again") as model:
        found = {n: [list(t.shape), sha256(t.read()).hexdigest()] for n, t in model.stored.items()}
    assert found == wanted
