"""What an adapter changed is what differs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import anamnesis as an
from helpers.pairs_of_models import llama, weights


def test_an_adapter_changes_its_own_weights_alone(tmp_path: Path) -> None:
    arrays = weights()
    arrays["model.layers.1.self_attn.q_proj.weight"][:] = 0
    base, adapter = llama(tmp_path / "base", arrays), tmp_path / "adapter"
    adapter.mkdir()
    said = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    at = "base_model.model.model.layers.1.self_attn.q_proj"
    factors = {"A": np.ones((2, 256), np.float32), "B": np.ones((256, 2), np.float32)}
    an.save(
        {f"{at}.lora_{one}.weight": values for one, values in factors.items()},
        adapter / "adapter_model.safetensors",
    )
    an.convert(base, tmp_path / "merged", lora=[adapter])
    (weight,) = an.compare(base, tmp_path / "merged", values=True).differing
    assert weight.name == "model.layers.1.self_attn.q_proj.weight"
    assert weight.difference is not None
    assert weight.difference.loss.largest == 4  # 2 * (1 * 1 + 1 * 1)
    assert weight.difference.differing == 256 * 256
