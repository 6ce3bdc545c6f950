"""Names of files in a model's directory that mean something here."""

from __future__ import annotations

import os
from collections.abc import Collection

CONFIG_NAME = "config.json"
PARAMS_NAME = "params.json"  # Mistral's own config.json
EXTENSION = ".safetensors"
MODEL_STEM = "model"  # of the one name that transformers finds without an index
MISTRAL_STEM = "consolidated"  # of what vLLM reads beside params.json
DIFFUSERS_STEM = "diffusion_pytorch_model"  # and diffusers
HQQ_NAME = "qmodel.pt"  # of what HQQ's own `save_quantized` writes
ADAPTER_STEM = "adapter_model"  # of peft's weights, which are a part beside a model
ADAPTER_NAMES = (f"{ADAPTER_STEM}.safetensors", f"{ADAPTER_STEM}.bin")
PARTIAL_SUFFIX = ".amn-partial"  # of folders that hold output on its way
PARTS_SUFFIX = ".amn-parts"  # of those whose files several processes make
UNFINISHED = (PARTIAL_SUFFIX, PARTS_SUFFIX)

# Describe the quantisation that the output no longer has.
HF_QUANT_NAME = "hf_quant_config.json"
QUANTO_MAP_NAME = "quantization_map.json"
QUANT_FILES = (
    HF_QUANT_NAME,
    "quantize_config.json",  # AutoGPTQ's, and GPTQModel's still
    "quant_config.json",  # AutoAWQ's first versions
    "quantization_config.json",  # AutoRound's
    QUANTO_MAP_NAME,
)

OLLAMA_PREFIX = "ollama:"  # of what is no path but the name of a model of Ollama's

DCP_METADATA_NAME = ".metadata"  # of PyTorch's distributed checkpoints
DCP_EXTENSION = ".distcp"
ZERO_ENDING = "_optim_states.pt"  # of what each rank has of DeepSpeed's ZeRO
# Endings of what trainers leave, and of models, which are meant where both are there.
_OF_TRAINERS = (DCP_METADATA_NAME, "latest", ".pt", ".pth", ".bin")
_OF_MODELS = (EXTENSION, ".gguf", "pytorch_model.bin", HQQ_NAME, ".index.json")
TORCHS_SHARD = "shard-"  # of torch's distributed writer of safetensors

# In the names of indexes of shards.
SAFETENSORS_INDEX = ".safetensors.index."
TORCH_INDEX = ".bin.index."


def is_index(name: str) -> bool:
    """Return whether a file is called an index: `model.safetensors.index.fp16.json` is one too."""
    return name.endswith(".json") and (SAFETENSORS_INDEX in name or TORCH_INDEX in name)


def indexed_directory(path: str) -> str | None:
    """Return the directory of the shards if `path` is an index of them, which stands for all."""
    directory, name = os.path.split(path)
    names_all = is_index(name) or name == DCP_METADATA_NAME
    return (directory or os.curdir) if names_all and os.path.isfile(path) else None


def may_be_trainers(names: Collection[str]) -> bool:
    """Return whether a folder may be what a trainer has left, by its names alone."""
    if any(name.endswith(_OF_MODELS) and not name.startswith(TORCHS_SHARD) for name in names):
        return False
    return any(name.endswith(_OF_TRAINERS) or name.startswith(TORCHS_SHARD) for name in names)
