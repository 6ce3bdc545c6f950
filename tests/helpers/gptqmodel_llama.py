"""Make a small Llama of random weights, and quantise and save it as GPTQModel does.

    python gptqmodel_llama.py gptq FOLDER    writes FOLDER/dense and FOLDER/quantised
    python gptqmodel_llama.py awq FOLDER     in AWQ
    python gptqmodel_llama.py gpt2 FOLDER    in GPTQ, and a GPT-2, whose layers are Conv1D

Run by itself: GPTQModel starts pools of threads and changes settings of the whole process.
"""

from __future__ import annotations

import os
import sys

os.environ |= {"GPTQMODEL_DISABLE_PACK_EXT": "1", "GPTQMODEL_CPU_WORKERS": "2"}

import torch
from gptqmodel import GPTQModel, QuantizeConfig
from tokenizers import Tokenizer, models
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

VOCABULARY = 96
OTHERWISE = {r"+:.*down_proj$": {"bits": 8, "group_size": 64}, r"-:.*layers\.1\..*q_proj$": {}}


def settings(method: str) -> QuantizeConfig:
    """How to quantise."""
    if method == "awq":
        return QuantizeConfig(bits=4, group_size=32, quant_method="awq", format="gemm")
    return QuantizeConfig(bits=4, group_size=32, desc_act=True, dynamic=OTHERWISE)


def gpt2() -> PreTrainedModel:
    """A GPT-2."""
    config = GPT2Config(
        n_embd=128,
        n_inner=256,
        n_layer=2,
        n_head=4,
        vocab_size=VOCABULARY,
        n_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        dtype="bfloat16",
    )
    return GPT2LMHeadModel(config)


def llama() -> PreTrainedModel:
    """A Llama."""
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        dtype="bfloat16",
    )
    return LlamaForCausalLM(config)


def main(method: str, folder: str) -> None:
    """Write both models."""
    dense = os.path.join(folder, "dense")
    torch.manual_seed(0)
    made = gpt2() if method == "gpt2" else llama()
    made.to(torch.bfloat16).save_pretrained(dense)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    special = {"unk_token": "t0", "pad_token": "t0", "bos_token": "t1", "eos_token": "t2"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(dense)
    model = GPTQModel.load(dense, settings(method), device="cpu")
    ids = [torch.randint(0, VOCABULARY, (1, 48)) for _ in range(8)]
    model.quantize(
        [{"input_ids": i, "attention_mask": torch.ones_like(i)} for i in ids], batch_size=1
    )
    model.save(os.path.join(folder, "quantised"))


if __name__ == "__main__":
    main(*sys.argv[1:])
