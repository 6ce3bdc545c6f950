"""GPTQ's and AWQ's directories are loaded by GPTQModel, and by transformers, which uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import optimum.gptq
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import anamnesis as an
from helpers.scripts import HELPERS, environment
from helpers.tiny_models import saved

assert optimum.gptq  # by which transformers loads GPTQ

# By the name of the case: the model, the encoding, what is asked besides, and who loads it.
# transformers 5.23 stacks experts, and loads no packed ones; GPTQModel takes models that generate.
BOTH = ("transformers", "gptqmodel")
CASES: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "gptq": ("llama", "gptq-4bit", {}, BOTH),
    "gptq-8bit": ("llama", "gptq-8bit", {}, BOTH),
    "awq": ("llama", "awq-4bit", {}, BOTH),
    "tied": ("qwen2", "gptq-4bit", {}, BOTH[1:]),
    # Of all blocks, or of one: the config says it in two ways.
    "gptq-left": ("llama", "gptq-4bit", {"exclude": ["*.o_proj.weight"]}, BOTH),
    "gptq-left-once": (
        "llama",
        "gptq-4bit",
        {"exclude": ["*.1.self_attn.o_proj.weight"]},
        BOTH[:1],
    ),
    "awq-once": ("llama", "awq-4bit", {"exclude": ["*.1.self_attn.o_proj.weight"]}, BOTH[:1]),
    "gptq-experts": ("qwen2_moe", "gptq-4bit", {}, BOTH[1:]),
    "awq-experts": ("qwen3_moe", "awq-4bit", {}, BOTH[1:]),
    # Their blocks have other places than transformers looks for.
    "gptq-bert": ("bert", "gptq-4bit", {}, BOTH[:1]),
    "gptq-mpt": ("mpt", "gptq-4bit", {}, BOTH[:1]),
    "awq-bert": ("bert", "awq-4bit", {}, BOTH[:1]),
    "awq-clip": ("clip", "awq-4bit", {}, BOTH[:1]),
}


def with_words(folder: Path) -> Path:
    """Write a tokenizer, which GPTQModel asks for."""
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(160)}, unk_token="t0"))
    special = {"unk_token": "t0", "pad_token": "t0", "bos_token": "t1", "eos_token": "t2"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.against("gptqmodel")
@pytest.mark.filterwarnings("default")
def test_each_weight_is_what_is_read_here(tmp_path: Path) -> None:
    asked = []
    for case, (kind, to, how, loaders) in CASES.items():
        dense = with_words(saved(kind, tmp_path / case / "dense"))
        with an.parse(dense) as model:
            model.forget(tmp_path / case / "out", to, **how)
        asked += [f"{loader}={tmp_path / case / 'out'}" for loader in loaders]
    script = [sys.executable, str(HELPERS / "gptqmodel_loads.py"), *asked]
    made = subprocess.run(
        script,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=tmp_path,  # it leaves a log where it runs
    )
    assert made.returncode == 0, made.stderr[-3000:]
    for case, (_, _, _, loaders) in CASES.items():
        for loader in loaders:
            found = load_file(tmp_path / case / "out" / f"{loader}.safetensors")
            with an.parse(tmp_path / case / "out" / "model.safetensors") as model:
                ours = {
                    name: torch.from_numpy(model[name].numpy("f32"))
                    for name in model
                    if model[name].is_quantized
                }
            assert found.keys() == ours.keys(), (case, loader)
            assert len(ours) >= 8, case
            for name, weight in ours.items():
                assert torch.equal(found[name], weight), (case, loader, name)


@pytest.mark.parametrize("kind", ["gpt_neox", "falcon", "mpt"])
def test_no_awq_of_models_whose_activations_it_scales(kind: str, tmp_path: Path) -> None:
    """transformers looks for these numbers, and takes what memory holds where there are none."""
    from transformers.integrations.awq import AWQ_SCALES_MAPPINGS

    assert kind in AWQ_SCALES_MAPPINGS
    dense = saved(kind, tmp_path / "dense")
    with (
        an.parse(dense) as model,
        pytest.raises(an.UnsupportedError, match="scales activations of"),
    ):
        model.forget(tmp_path / "out", "awq-4bit")


def test_their_list_is_transformers_own() -> None:
    from optimum.gptq.constants import BLOCK_PATTERNS
    from transformers.integrations.awq import AWQ_SCALES_MAPPINGS

    from anamnesis.schemes.families.integers.layouts import awq, gptq

    assert set(AWQ_SCALES_MAPPINGS) == awq._SCALED
    assert set(BLOCK_PATTERNS) == set(gptq._KNOWN_BLOCKS)
