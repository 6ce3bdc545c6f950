"""Load directories in GPTQ or AWQ, and write the weight of each layer as the library decodes it.

    python gptqmodel_loads.py HOW=FOLDER ...

HOW is `transformers` or `gptqmodel`. FOLDER gets HOW.safetensors: the weights, [out, in], in
float32. Run by itself: GPTQModel starts pools of threads and changes settings of the whole process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"GPTQMODEL_DISABLE_PACK_EXT": "1", "GPTQMODEL_CPU_WORKERS": "2"}

import torch
from gptqmodel import BACKEND, GPTQModel
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
from safetensors.torch import save_file
from transformers import AutoConfig, AwqConfig, GPTQConfig

from helpers.tiny_models import loaded


def load(how: str, folder: Path) -> Any:
    """Return the model, with the layers that decode and multiply in plain torch.

    In half floats, which scales are stored in: they are cast to the dtype of the model.
    """
    told = AutoConfig.from_pretrained(folder).quantization_config
    is_awq = told["quant_method"] == "awq"
    if how == "gptqmodel":
        backend = BACKEND.TORCH_AWQ if is_awq else BACKEND.TORCH
        return GPTQModel.load(str(folder), device="cpu", backend=backend, dtype=torch.float16).model
    asked = AwqConfig(backend="torch_awq") if is_awq else GPTQConfig(told["bits"], backend="torch")
    return loaded(folder, quantization_config=asked, dtype=torch.float16)


def weight_of(layer: Any) -> torch.Tensor:
    """Return [in, out]."""
    scales = layer.scales.float()
    if hasattr(layer, "dequantize_weight"):
        layer.scales = scales
        weight: torch.Tensor = layer.dequantize_weight()
    else:
        weight = dequantize_gemm(layer.qweight, layer.qzeros, scales, layer.bits, layer.group_size)
    assert weight.dtype == torch.float32
    return weight


def main(*cases: str) -> None:
    """Load each, run it, and write what it has become."""
    for case in cases:
        how, _, folder = case.partition("=")
        model = load(how, Path(folder)).eval()
        with torch.no_grad():
            if hasattr(model, "lm_head"):
                assert model(torch.arange(20)[None]).logits.isfinite().all()
            found = {
                f"{name}.weight": weight_of(layer).T.contiguous()
                for name, layer in model.named_modules()
                if hasattr(layer, "qweight")
            }
        save_file(found, Path(folder) / f"{how}.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
