"""Names of files in a model's directory that mean something here."""

from __future__ import annotations

__all__ = [
    "AUTOROUND_QUANT_NAME",
    "AWQ_QUANT_NAME",
    "CONFIG_NAME",
    "EXTENSION",
    "GPTQ_QUANT_NAME",
    "HF_QUANT_NAME",
    "INDEX_NAME",
    "MODEL_NAME",
    "OLLAMA_PREFIX",
    "PARAMS_NAME",
    "PARTIAL_SUFFIX",
    "QUANT_FILES",
    "TORCH_INDEX_NAME",
]

CONFIG_NAME = "config.json"
PARAMS_NAME = "params.json"  # Mistral's own config.json
INDEX_NAME = "model.safetensors.index.json"
TORCH_INDEX_NAME = "pytorch_model.bin.index.json"
EXTENSION = ".safetensors"
MODEL_NAME = "model.safetensors"  # the one name that transformers finds without an index
PARTIAL_SUFFIX = ".amn-partial"  # of folders that hold output on its way

# Describe the quantisation that the output no longer has.
HF_QUANT_NAME = "hf_quant_config.json"
GPTQ_QUANT_NAME = "quantize_config.json"  # AutoGPTQ's, and GPTQModel's still
AWQ_QUANT_NAME = "quant_config.json"  # AutoAWQ's first versions
AUTOROUND_QUANT_NAME = "quantization_config.json"
QUANT_FILES = (HF_QUANT_NAME, GPTQ_QUANT_NAME, AWQ_QUANT_NAME, AUTOROUND_QUANT_NAME)

OLLAMA_PREFIX = "ollama:"  # of what is no path but the name of a model of Ollama's
