"""llama.cpp computes with our files what transformers computes with the directories.

Beside rounding, llama.cpp differs by its table of GELU in float16, and by its ramp of YaRN.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import anamnesis as an
from helpers import llama_cpp_run, recorded_hf

# What the logits may differ by, as a part of their own mean square.
USUAL, GELU = 1e-9, 1e-6
BOUNDS = {
    **dict.fromkeys(("llama", "llama_llama3", "llama_yarn", "mixtral", "phi3_long"), USUAL),
    **dict.fromkeys(("qwen2", "qwen3", "qwen3moe", "qwen35", "glm4moe", "deepseek3"), USUAL),
    **dict.fromkeys(("gemma2", "gemma3", "starcoder2"), GELU),
    "gpt_oss": USUAL,
    "bert": GELU,
    "nomic_bert": USUAL,
}
IDS = [1, *((7 * i * i) % 500 + 3 for i in range(99))]


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_logits(name: str, tmp_path: Path) -> None:
    root = recorded_hf.remake(name, tmp_path / "hf")
    path = tmp_path / "ours.gguf"
    with an.parse(root) as model:
        model.convert(path, "gguf-f32", tokenizer_pre=recorded_hf.recorded(name).pre)
    compute = llama_cpp_run.embeddings if "bert" in name else llama_cpp_run.logits
    found = compute(path, IDS, tmp_path / "computed")
    expected = llama_cpp_run.transformers_logits(root, IDS)
    assert llama_cpp_run.nmse(found, expected) < BOUNDS[name]
