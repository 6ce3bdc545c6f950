"""What becomes of codes between encodings, made by tools/ways.py: do not edit."""

from __future__ import annotations

__all__ = ["WAYS"]

# By target and source: how codes come over, and why some of them do not.
WAYS: dict[str, dict[str, tuple[str, str]]] = {
    "fp8-block": {},
    "fp8-block-ue8m0": {},
    "fp8-block-ct": {},
    "fp8-channel": {},
    "fp8-tensor": {},
    "fp8-tensor-ct": {},
    "int8": {},
    "int4": {
        "int4": ("moved", ""),
        "int4-asym": ("moved", ""),
        "gptq-4bit": ("moved", ""),
        "awq-4bit": ("moved", ""),
        "gguf-q4_0": ("moved", ""),
    },
    "int4-asym": {
        "int4": ("moved", ""),
        "int4-asym": ("moved", ""),
        "gptq-4bit": ("moved", ""),
        "awq-4bit": ("moved", ""),
        "gguf-q4_0": ("moved", ""),
    },
    "nvfp4": {
        "nvfp4": ("moved", ""),
        "nvfp4-modelopt": ("moved", ""),
        "mlx-nvfp4": ("moved", ""),
        "comfy-nvfp4": ("moved", ""),
        "gguf-nvfp4": ("moved", ""),
    },
    "nvfp4-modelopt": {
        "nvfp4": ("moved", ""),
        "nvfp4-modelopt": ("moved", ""),
        "mlx-nvfp4": ("moved", ""),
        "comfy-nvfp4": ("moved", ""),
        "gguf-nvfp4": ("moved", ""),
    },
    "mxfp4": {
        "mxfp4": ("moved", ""),
        "mxfp4-modelopt": ("moved", ""),
        "mlx-mxfp4": ("moved", ""),
        "gptoss-mxfp4": ("moved", ""),
        "gguf-mxfp4": ("moved", ""),
    },
    "mxfp4-modelopt": {
        "mxfp4": ("moved", ""),
        "mxfp4-modelopt": ("moved", ""),
        "mlx-mxfp4": ("moved", ""),
        "gptoss-mxfp4": ("moved", ""),
        "gguf-mxfp4": ("moved", ""),
    },
    "mxfp8": {
        "mxfp8": ("moved", ""),
        "mxfp8-modelopt": ("moved", ""),
        "mlx-mxfp8": ("moved", ""),
        "comfy-mxfp8": ("moved", ""),
    },
    "mxfp8-modelopt": {
        "mxfp8": ("moved", ""),
        "mxfp8-modelopt": ("moved", ""),
        "mlx-mxfp8": ("moved", ""),
        "comfy-mxfp8": ("moved", ""),
    },
    "bnb-nf4": {
        "bnb-nf4": ("moved", ""),
        "bnb-nf4-nested": ("cast", ""),
    },
    "bnb-nf4-nested": {
        "bnb-nf4-nested": ("moved", ""),
    },
    "bnb-fp4": {
        "bnb-fp4": ("moved", ""),
        "bnb-fp4-nested": ("cast", ""),
    },
    "bnb-fp4-nested": {
        "bnb-fp4-nested": ("moved", ""),
    },
    "bnb-int8": {},
    "mlx-2bit": {
        "mlx-2bit": ("moved", ""),
    },
    "mlx-3bit": {
        "mlx-3bit": ("moved", ""),
    },
    "mlx-4bit": {
        "mlx-4bit": ("moved", ""),
        "gguf-q4_1": ("moved", ""),
    },
    "mlx-5bit": {
        "mlx-5bit": ("moved", ""),
    },
    "mlx-6bit": {
        "mlx-6bit": ("moved", ""),
    },
    "mlx-8bit": {
        "mlx-8bit": ("moved", ""),
    },
    "mlx-mxfp4": {
        "mxfp4": ("moved", ""),
        "mxfp4-modelopt": ("moved", ""),
        "mlx-mxfp4": ("moved", ""),
        "gptoss-mxfp4": ("moved", ""),
        "gguf-mxfp4": ("moved", ""),
    },
    "mlx-nvfp4": {
        "nvfp4": ("moved", ""),
        "nvfp4-modelopt": ("moved", ""),
        "mlx-nvfp4": ("moved", ""),
        "comfy-nvfp4": ("moved", ""),
        "gguf-nvfp4": ("moved", ""),
    },
    "mlx-mxfp8": {
        "mxfp8": ("moved", ""),
        "mxfp8-modelopt": ("moved", ""),
        "mlx-mxfp8": ("moved", ""),
        "comfy-mxfp8": ("moved", ""),
    },
    "gptoss-mxfp4": {
        "mxfp4": ("moved", "gpt-oss has stacks of experts, not [256, 512]"),
        "mxfp4-modelopt": ("moved", "gpt-oss has stacks of experts, not [256, 512]"),
        "mlx-mxfp4": ("moved", "gpt-oss has stacks of experts, not [256, 512]"),
        "gptoss-mxfp4": ("moved", ""),
        "gguf-mxfp4": ("moved", "gpt-oss has stacks of experts, not [256, 512]"),
    },
    "gptq-4bit": {
        "int4": ("moved", "its scales are F32, and F16 in GPTQ"),
        "int4-asym": ("moved", "its scales are F32, and F16 in GPTQ"),
        "gptq-4bit": ("moved", ""),
        "awq-4bit": ("moved", ""),
        "gguf-q4_0": ("moved", ""),
    },
    "gptq-8bit": {
        "gptq-8bit": ("moved", ""),
    },
    "awq-4bit": {
        "int4": ("moved", "its scales are F32, and F16 in AWQ"),
        "int4-asym": ("moved", "its scales are F32, and F16 in AWQ"),
        "gptq-4bit": ("moved", ""),
        "awq-4bit": ("moved", ""),
        "gguf-q4_0": ("moved", ""),
    },
    "comfy-fp8": {},
    "comfy-mxfp8": {
        "mxfp8": ("moved", ""),
        "mxfp8-modelopt": ("moved", ""),
        "mlx-mxfp8": ("moved", ""),
        "comfy-mxfp8": ("moved", ""),
    },
    "comfy-nvfp4": {
        "nvfp4": ("moved", ""),
        "nvfp4-modelopt": ("moved", ""),
        "mlx-nvfp4": ("moved", ""),
        "comfy-nvfp4": ("moved", ""),
        "gguf-nvfp4": ("moved", ""),
    },
    "gguf-nvfp4": {
        "nvfp4": ("moved", ""),
        "nvfp4-modelopt": ("moved", ""),
        "mlx-nvfp4": ("moved", ""),
        "comfy-nvfp4": ("moved", ""),
        "gguf-nvfp4": ("moved", ""),
    },
    "gguf-mxfp4": {
        "mxfp4": ("moved", ""),
        "mxfp4-modelopt": ("moved", ""),
        "mlx-mxfp4": ("moved", ""),
        "gptoss-mxfp4": ("moved", ""),
        "gguf-mxfp4": ("moved", ""),
    },
    "gguf-q4_0": {
        "int4": ("moved", "its scales are F32, and F16 in Q4_0"),
        "gguf-q4_0": ("moved", ""),
    },
    "gguf-q4_1": {
        "mlx-4bit": ("moved", "its scales are F32, and F16 in Q4_1"),
        "gguf-q4_1": ("moved", ""),
    },
    "gguf-q8_0": {
        "int8": ("moved", "its scales are F32, and F16 in Q8_0"),
        "gguf-q8_0": ("moved", ""),
        "int8-packed": ("moved", ""),
    },
    "int8-packed": {
        "gptq-8bit": ("moved", ""),
        "gguf-q8_0": ("moved", ""),
    },
}
