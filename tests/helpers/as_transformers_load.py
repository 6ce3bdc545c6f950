"""What `remember` makes of a model is one that transformers loads as it loads any other."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


def tiny_llama(n_layers: int = 2) -> LlamaForCausalLM:
    """A model in bfloat16, the same each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=n_layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=96,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def assert_loads_as(folder: Path, reference: LlamaForCausalLM) -> None:
    """Nothing missing, left over or still declared quantised; the same weights, and logits."""
    assert not hasattr(AutoConfig.from_pretrained(folder), "quantization_config")
    model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    assert model.dtype == torch.bfloat16
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, reference.state_dict()[name]), name
    ids = torch.arange(40).reshape(2, 20)
    with torch.no_grad():
        found, want = model.eval()(ids).logits, reference.eval()(ids).logits
    assert want.isfinite().all()
    assert want.std() > 0
    assert torch.equal(found, want)
