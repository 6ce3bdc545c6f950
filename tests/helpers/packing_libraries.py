"""What GPTQModel and AutoAWQ pack of a weight by rounding alone, by the code that they have for it.

Each returns the stored tensors of a module by their last names.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import torch

os.environ["GPTQMODEL_DISABLE_PACK_EXT"] = "1"  # its Python packer; the other is compiled first

from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization.config import RTNConfig
from gptqmodel.quantization.rtn import RTN
from gptqmodel.utils.model import pack_module

State = dict[str, torch.Tensor]

__all__ = ["autoawq", "gptqmodel", "linear_of"]


def linear_of(weight: torch.Tensor) -> torch.nn.Linear:
    """A layer of a weight, [out, in]."""
    rows, cols = weight.shape
    layer = torch.nn.Linear(cols, rows, bias=False, dtype=weight.dtype)
    layer.weight.data = weight.clone()
    return layer


def gptqmodel(weight: torch.Tensor, group_size: int, bits: int = 4) -> State:
    """GPTQModel's round-to-nearest, packed and saved in its usual format."""
    config = RTNConfig(bits=bits, group_size=group_size, offload_to_disk=False)
    layer = linear_of(weight)
    rows, cols = weight.shape
    rounded, scales, zeros, g_idx, *_ = RTN(layer, config).quantize()
    layer.weight.data = rounded
    module = TorchLinear(
        bits=bits,
        group_size=group_size,
        sym=config.sym,
        desc_act=config.desc_act,
        in_features=cols,
        out_features=rows,
        bias=False,
        pack_dtype=torch.int32,
        register_buffers=False,
    )
    pack_module(
        "m",
        {"m": module},
        scales,
        zeros,
        g_idx,
        {"m": layer},
        TorchLinear,
        threading.Lock(),
        quantize_config=config,
    )
    return {name: getattr(module, name) for name in ("qweight", "qzeros", "scales", "g_idx")}


def _autoawq_module(end: str) -> ModuleType:
    """A module of AutoAWQ, whose package imports what is gone; what it imports does nothing."""
    file = next(f for f in distribution("autoawq").files or () if str(f).endswith(end))
    spec = importlib.util.spec_from_file_location("of_autoawq", str(file.locate()))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    names = (
        *("awq", "awq.utils", "awq.utils.module", "awq.utils.utils", "awq.utils.packing_utils"),
        *("awq.utils.calib_data", "awq.quantize", "awq.quantize.scale", "awq.modules"),
        *("awq.modules.linear", "awq.modules.triton", "awq.modules.triton.gemm", "tqdm"),
    )
    stubs: dict[str, Any] = {name: MagicMock() for name in names}
    stubs["awq.utils.module"].try_import.return_value = (None, "")
    stubs["awq.utils.utils"].get_best_device.return_value = "cpu"
    with patch.dict(sys.modules, stubs):
        spec.loader.exec_module(module)
    return module


def autoawq(weight: torch.Tensor, group_size: int) -> State:
    """AutoAWQ's rounding and packing, as its `_apply_quant` calls them."""
    quantizer = _autoawq_module("quantize/quantizer.py").AwqQuantizer
    gemm = _autoawq_module("modules/linear/gemm.py").WQLinear_GEMM
    settings = SimpleNamespace(w_bit=4, group_size=group_size, zero_point=True)
    layer = linear_of(weight).half()
    layer.weight.data, scales, zeros = quantizer.pseudo_quantize_tensor(settings, layer.weight.data)
    module = gemm.from_linear(
        linear=layer,
        w_bit=4,
        group_size=group_size,
        scales=scales.t().contiguous(),
        zeros=zeros.t().contiguous(),
    )
    return {name: getattr(module, name) for name in ("qweight", "qzeros", "scales")}
