"""Checkpoints that AutoRound's own layers packed, beside what those layers multiply with."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers.pytorch_utils import Conv1D

import anamnesis as an
from helpers.packed_checkpoints import State, affine, check, real_weight, write

# Each packing with the module of its layers, and how old versions of AutoRound wrote the same.
LAYERS = {
    "auto_round:auto_gptq": "qlinear_torch_zp",
    "auto_round": "qlinear_torch",
    "auto_round:gptqmodel": "qlinear_torch",
}
OLD = {"auto_round:gptq:exllamav2": "qlinear_torch_zp", "auto_round:exllamav2": "qlinear_torch"}


MODULES = (
    "auto_round.utils.bit_packing",
    "auto_round_extension.torch.qlinear_torch",
    "auto_round_extension.torch.qlinear_torch_zp",
)


def from_file(name: str) -> ModuleType:
    """A module of AutoRound by itself: its packages import far more. Not executed yet."""
    files = distribution("auto-round").files or ()
    path = next(f for f in files if str(f) == f"{name.replace('.', '/')}.py")
    spec = importlib.util.spec_from_file_location(name, str(path.locate()))
    assert spec is not None
    return importlib.util.module_from_spec(spec)


@pytest.fixture(scope="module")
def layers() -> dict[str, Any]:
    """AutoRound's layers, by the name of their module."""
    utils = ModuleType("auto_round.utils")
    utils.get_packing_device = lambda _: "cpu"  # type: ignore[attr-defined]
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "auto_round.utils", utils)
        for name in MODULES:  # each imports those before it
            module = from_file(name)
            patch.setitem(sys.modules, name, module)
            assert module.__spec__ is not None
            assert module.__spec__.loader is not None
            module.__spec__.loader.exec_module(module)
            found[name.rpartition(".")[2]] = getattr(module, "QuantLinear", None)
    return found


@dataclass(frozen=True)
class AutoRound:
    """Bits and the layer that packed them."""

    bits: int
    layer: Any

    def dequantize(self, state: State, scales: torch.dtype | None = None) -> torch.Tensor:
        """AutoRound's own weight, [out, in]: what its layer makes of the unit matrix."""
        in_features, n_groups = state["qweight"].shape[0] * 32 // self.bits, len(state["scales"])
        layer = self.layer(
            self.bits, in_features // n_groups, in_features, state["scales"].shape[1], bias=False
        )
        for name, tensor in state.items():
            layer.register_buffer(name, tensor.clone())
        layer.scales = layer.scales.to(scales or layer.scales.dtype)
        weight: torch.Tensor = layer(torch.eye(in_features, dtype=layer.scales.dtype))
        return weight.T.contiguous()


def pack(layer_class: Any, bits: int, group_size: int, sym: bool) -> State:
    """The buffers of a layer that AutoRound packed."""
    weight = real_weight()
    out_features, in_features = weight.shape
    linear = torch.nn.Linear(in_features, out_features, bias=False)
    linear.weight.data = weight
    found = affine(weight, bits, group_size, sym)
    layer = layer_class(bits, group_size, in_features, out_features, bias=False)
    layer.device = "cpu"
    zeros = 2 ** (bits - 1) if sym else found["zeros"]
    layer.pack(linear, found["scales"], zeros, None, device="cpu")
    return {name: getattr(layer, name).clone() for name in ("qweight", "qzeros", "scales")}


# AutoRound's own.
pytestmark = pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")

CASES = [
    *product(LAYERS, (2, 3, 4, 8), (32, 128, -1), (True, False)),
    *product(OLD, (4,), (128,), (True, False)),
]


@pytest.mark.parametrize(("packing", "bits", "group_size", "sym"), CASES)
def test_autoround(
    packing: str, bits: int, group_size: int, sym: bool, layers: dict[str, Any], tmp_path: Path
) -> None:
    layer = layers[(LAYERS | OLD)[packing]]
    state = pack(layer, bits, group_size, sym)
    told = {"quant_method": "auto-round", "packing_format": packing}
    if packing in OLD:
        told = {"quant_method": "intel/auto-round", "backend": packing}
    config = {"bits": bits, "group_size": group_size, "sym": sym, **told}
    with an.parse(write(tmp_path, state, config)) as model:
        check(model, state, AutoRound(bits, layer))


def test_its_own_config_file(layers: dict[str, Any], tmp_path: Path) -> None:
    """AutoRound repeats its config in a file beside, which may be all that is left of it."""
    layer = layers["qlinear_torch"]
    state = pack(layer, 4, 128, sym=False)
    write(tmp_path, state, {})
    (tmp_path / "config.json").unlink()
    told = {"quant_method": "auto-round", "packing_format": "auto_round", "bits": 4}
    (tmp_path / "quantization_config.json").write_text(json.dumps(told))
    with an.parse(tmp_path) as model:
        check(model, state, AutoRound(4, layer))
        report = model.remember(tmp_path.with_name(f"{tmp_path.name}-out"))
    assert [d.name for d in report.dropped] == ["quantization_config.json"]


@pytest.mark.parametrize("packing", LAYERS)
def test_conv1d(packing: str, layers: dict[str, Any], tmp_path: Path) -> None:
    """AutoRound transposes a Conv1D before it packs it; the model has it as it was."""
    layer_class, name = layers[LAYERS[packing]], "h.0.mlp.c_fc"
    weight = real_weight()
    conv1d = Conv1D(*weight.shape)
    conv1d.weight.data = weight.T.contiguous()  # [in, out]
    found = affine(weight, 4, 128, sym=False)
    layer = layer_class(4, 128, *weight.shape[::-1], bias=True)
    layer.device = "cpu"
    layer.pack(conv1d, found["scales"], found["zeros"], None, device="cpu")
    parts = ("qweight", "qzeros", "scales", "bias")
    state = {f"{name}.{part}": getattr(layer, part).clone() for part in parts}
    save_file(state, tmp_path / "model.safetensors")
    config = {"quant_method": "auto-round", "packing_format": packing, "bits": 4}
    told = {"model_type": "gpt2", "quantization_config": config | {"group_size": 128}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    layer.bias = None
    layer.scales = layer.scales.float()
    with an.parse(tmp_path) as model:
        values = torch.from_numpy(model[f"{name}.weight"].numpy())
    assert torch.equal(values, layer(torch.eye(weight.shape[1])))
    assert (values - conv1d.weight).abs().mean() < weight.abs().mean() / 4
