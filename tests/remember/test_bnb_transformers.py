"""A model that transformers and bitsandbytes quantised loads as an ordinary one, to the bit."""

from __future__ import annotations

from pathlib import Path

import bitsandbytes.functional as library
import pytest
import torch
from bitsandbytes.nn import Linear4bit, Linear8bitLt
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import anamnesis as an
from helpers.as_transformers_load import assert_loads_as, tiny_llama

SETTINGS = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "nf4-double": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_quant_storage": torch.bfloat16,
    },
    "fp4-double": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "fp4",
        "bnb_4bit_use_double_quant": True,
    },
    "int8": {"load_in_8bit": True},
}
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    tiny_llama().save_pretrained(folder)
    return folder


def dequantised(layer: torch.nn.Module) -> torch.Tensor | None:
    """The library's own word on the weight of a layer, None if it is not quantised."""
    if isinstance(layer, Linear4bit):
        return library.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    if isinstance(layer, Linear8bitLt):
        scb = layer.weight.SCB if layer.weight.SCB is not None else layer.state.SCB
        return library.int8_vectorwise_dequant(layer.weight.data, scb)
    return None


@pytest.mark.parametrize("name", SETTINGS)
def test_logits(name: str, original: Path, tmp_path: Path) -> None:
    settings = BitsAndBytesConfig(**SETTINGS[name])
    quantised = AutoModelForCausalLM.from_pretrained(
        original, quantization_config=settings, device_map="cpu"
    )
    reference = AutoModelForCausalLM.from_pretrained(original)
    weights = {key: dequantised(layer) for key, layer in quantised.named_modules()}
    state = {f"{key}.weight": w for key, w in weights.items() if w is not None}
    assert len(state) == 14
    missing, unexpected = reference.load_state_dict(state, strict=False)
    assert missing
    assert not unexpected
    quantised.save_pretrained(tmp_path / "quantised", max_shard_size="60KB")
    assert len(list(tmp_path.glob("quantised/*.safetensors"))) > 3

    out = tmp_path / "dense"
    with an.parse(tmp_path / "quantised") as parsed:
        report = parsed.remember(out, threads=2)
    assert report.n_quantized == 14
    assert_loads_as(out, reference)
