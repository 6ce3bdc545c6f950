"""llama.cpp computes with our files what transformers computes with the directories.

Beside rounding, llama.cpp differs by its table of GELU in float16, and by its ramp of YaRN.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor
from transformers import AutoTokenizer

import anamnesis as an
from helpers import llama_cpp_run, tiny_hf
from helpers.llama_cpp_run import needs_libllama, nmse
from helpers.recorded_hf import recorded, remake, through_gguf
from helpers.texts import TEXTS

pytestmark = [pytest.mark.slow, needs_libllama]

# What the logits may differ by, as a part of their own mean square.
USUAL, GELU = 1e-9, 1e-6
BOUNDS = {
    **dict.fromkeys(("llama", "llama_llama3", "llama_yarn", "mixtral", "phi3_long"), USUAL),
    **dict.fromkeys(("qwen2", "qwen3", "qwen3moe", "qwen35", "glm4moe", "deepseek3"), USUAL),
    **dict.fromkeys(("gemma2", "gemma3", "starcoder2", "bert"), GELU),
    **dict.fromkeys(("gpt_oss", "nomic_bert"), USUAL),
    "gemma4": 2e-5,  # whose layers multiply by a GELU of their own inputs
}
IDS = [1, *((7 * i * i) % 500 + 3 for i in range(99))]


@pytest.mark.parametrize("name", BOUNDS)
def test_logits(name: str, tmp_path: Path) -> None:
    root = through_gguf(name, tmp_path)
    compute = llama_cpp_run.embeddings if "bert" in name else llama_cpp_run.logits
    found = compute(tmp_path / "there.gguf", IDS, tmp_path / "computed")
    assert nmse(found, llama_cpp_run.transformers_logits(root, IDS)) < BOUNDS[name]


@pytest.mark.parametrize("mix", ["q8_0", "q4_k_m"])
@pytest.mark.parametrize("name", ["llama_llama3", "mixtral", "qwen3moe", "gemma3"])
def test_logits_of_blocks(name: str, mix: str, tmp_path: Path) -> None:
    """The directory of a quantised file computes what llama.cpp does with the file's values.

    They are in F32 for that: of blocks llama.cpp rounds the activations to 8 bits too.
    """
    through_gguf(name, tmp_path, f"gguf-{mix}")
    an.convert(tmp_path / "there.gguf", tmp_path / "plain.gguf", "gguf-f32", names="keep")
    found = llama_cpp_run.transformers_logits(tmp_path / "back", IDS)
    plain, blocks = (
        llama_cpp_run.logits(tmp_path / file, IDS, tmp_path / "computed")
        for file in ("plain.gguf", "there.gguf")
    )
    assert nmse(found, plain) < BOUNDS.get(name, USUAL)
    assert nmse(found, blocks) < 0.01


@pytest.mark.parametrize("name", ["llama_whole", "qwen2_whole", "llama_spm_whole", "phi3_whole"])
def test_tokens(name: str, tmp_path: Path) -> None:
    """Of texts in ten scripts, from our file of a whole vocabulary, and its way back."""
    root = tmp_path / "hf"
    tiny_hf.make(name, root)
    an.convert(root, tmp_path / "there.gguf", "gguf-f16")
    an.convert(tmp_path / "there.gguf", f"{tmp_path / 'back'}/", "f16")
    found = llama_cpp_run.tokens(tmp_path / "there.gguf", TEXTS)
    assert found == list(map(_encoder(root), TEXTS))
    again = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert found == [again.encode(text, add_special_tokens=False) for text in TEXTS]
    with_ends = llama_cpp_run.tokens(tmp_path / "there.gguf", TEXTS, special=True)
    assert with_ends == [again.encode(text) for text in TEXTS]


def _encoder(root: Path) -> Callable[[str], list[int]]:
    """Return what makes tokens of a text: of a model of sentencepiece's, sentencepiece."""
    if (root / "tokenizer.model").exists():
        encode: Callable[[str], list[int]] = SentencePieceProcessor(
            model_file=str(root / "tokenizer.model")
        ).encode
        return encode
    return partial(AutoTokenizer.from_pretrained(root).encode, add_special_tokens=False)


_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
_YARN |= {"original_max_position_embeddings": 64}
_LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
_LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}

_LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64}
_LONG |= {"factor": 4.0, "short_factor": [1 + i / 8 for i in range(16)]}
_LONG |= {"long_factor": [2 + i / 4 for i in range(16)]}


@pytest.mark.parametrize(
    ("name", "edits"),
    [
        ("qwen3", {"rope_parameters": {**_YARN, "attention_factor": 1.25}}),
        ("qwen3", {"rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.5}}),
        ("granite", {"rope_parameters": _LLAMA3}),
        ("granite", {"rope_parameters": _LONG}),
        ("llama", {"rope_parameters": _LONG}),
        ("llama", {"rope_parameters": {**_LONG, "original_max_position_embeddings": 512}}),
        ("granitemoe", {"rope_parameters": _LLAMA3}),
        ("deepseek2_lite", {}),
        ("deepseek2", {"topk_method": "greedy", "n_group": 2, "topk_group": 1}),
    ],
)
def test_logits_of_what_its_keys_can_say(name: str, edits: dict[str, Any], tmp_path: Path) -> None:
    root = remake(name, tmp_path / "hf")
    config = json.loads((root / "config.json").read_text())
    (root / "config.json").write_text(json.dumps(config | edits))
    pre = recorded(name).pre
    an.convert(root, tmp_path / "there.gguf", "gguf-f32", tokenizer_pre=pre)
    found = llama_cpp_run.logits(tmp_path / "there.gguf", IDS, tmp_path / "computed")
    assert nmse(found, llama_cpp_run.transformers_logits(root, IDS)) < USUAL
