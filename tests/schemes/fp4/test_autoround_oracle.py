"""AutoRound's own numbers of 4 bits, beside what its layers multiply with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from safetensors.torch import save_file

import anamnesis as an
from helpers.fp8_layouts import quiet, raw_bytes

pytestmark = [pytest.mark.against("AutoRound"), pytest.mark.slow]

M = "model.layers.0.mlp.up_proj"
Made = tuple[dict[str, torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def layers() -> dict[str, Any]:
    """AutoRound's layers, whose package imports one of data sets that they do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "datasets", MagicMock())
        from auto_round.experimental.qmodules.mx import MXFP4QuantLinear, MXINT4QuantLinear
        from auto_round.experimental.qmodules.nvfp4_e5m3 import NVFP4E5M3QuantLinear
    return {
        "mx_int": MXINT4QuantLinear,
        "nvfp4_v2": NVFP4E5M3QuantLinear,
        "mx_fp": MXFP4QuantLinear,
    }


def made(layers: dict[str, Any], data: str, group: int) -> Made:
    """Every code with every scale: a layer's buffers, and its weight."""
    from auto_round.schemes import QuantizationScheme

    cols = 512
    scheme = QuantizationScheme(4, group, data_type=data, act_bits=4, act_group_size=group)
    layer = layers[data](cols, 256, scheme, dtype=torch.float32)
    generator = torch.Generator().manual_seed(group)
    codes = torch.stack([torch.randperm(256, generator=generator) for _ in range(256)])
    layer.weight_packed = codes.to(torch.uint8)
    scales = torch.arange(256, dtype=torch.uint8)[:, None]
    layer.weight_scale = scales.expand(256, cols // group).contiguous()
    return dict(layer.state_dict()), layer.dequant_weight_online()


def config(data: str, group: int, **more: Any) -> dict[str, Any]:
    settings = {"quant_method": "auto-round", "bits": 4, "group_size": group, "data_type": data}
    return {**settings, "sym": True, "packing_format": "auto_round:llm_compressor", **more}


def e5m3_of_compressed_tensors() -> dict[str, Any]:
    from auto_round.export.export_to_llmcompressor.config import initialize_nvfp4_e5m3_quantization

    found: dict[str, Any] = initialize_nvfp4_e5m3_quantization()
    return found


CASES: dict[str, tuple[str, int, Any]] = {
    "MXINT4": ("mx_int", 32, lambda: config("mx_int", 32)),
    "MXINT4 of a layer": ("mx_int", 32, lambda: config("mx_fp", 32, extra_config={M: MXINT})),
    "MXFP4 of a layer": ("mx_fp", 32, lambda: config("mx_int", 32, extra_config={M: MXFP})),
    "E5M3": ("nvfp4_v2", 16, lambda: config("nvfp4_v2", 16)),
    "E5M3 under the other method": ("nvfp4_v2", 16, e5m3_of_compressed_tensors),
}
MXINT: dict[str, Any] = {"data_type": "mx_int"}
MXFP: dict[str, Any] = {"data_type": "mx_fp"}


@pytest.mark.parametrize("case", CASES)
def test_every_code_with_every_scale(case: str, layers: dict[str, Any], tmp_path: Path) -> None:
    data, group, said = CASES[case]
    state, expected = made(layers, data, group)
    save_file({f"{M}.{name}": part for name, part in state.items()}, tmp_path / "a.safetensors")
    told = {"model_type": "llama", "quantization_config": said()}
    (tmp_path / "config.json").write_text(json.dumps(told))
    with an.parse(tmp_path) as model:
        found = torch.from_numpy(model[f"{M}.weight"].numpy())
        assert raw_bytes(found) == quiet(expected)
        rounded = model[f"{M}.weight"].torch(torch.bfloat16)
        assert raw_bytes(rounded) == quiet(expected.bfloat16())
        assert not model.plan(to="nvfp4").to_dict().get("problems")
