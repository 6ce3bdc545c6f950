"""ComfyUI and its own tools: comfy-kitchen, and others from checkouts that variables name.

The latter are in no package registry. `ANAMNESIS_COMFY_QUANTS` is the `src` folder of
github.com/Comfy-Org/comfy-quants at 55f0a26, `ANAMNESIS_COMFYUI` github.com/Comfy-Org/ComfyUI at
783545f (0.33.0).
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

import anamnesis as an
from helpers import torch_order

COMFY_QUANTS = os.environ.get("ANAMNESIS_COMFY_QUANTS")
COMFYUI = os.environ.get("ANAMNESIS_COMFYUI")

needs_comfy_quants = pytest.mark.skipif(
    not COMFY_QUANTS, reason="ANAMNESIS_COMFY_QUANTS names no checkout of comfy-quants"
)

needs_comfyui = pytest.mark.skipif(
    not COMFYUI, reason="ANAMNESIS_COMFYUI names no checkout of ComfyUI"
)

State = dict[str, torch.Tensor]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the backends that it does not find
    eager = import_module("comfy_kitchen.backends.eager.quantization")
    kitchen = import_module("comfy_kitchen.tensor")
    int4_rotated = import_module("comfy_kitchen.backends.eager.convrot_w4a4")

torch_order.settle([eager, int4_rotated])

__all__ = [
    "COMFYUI",
    "COMFY_QUANTS",
    "State",
    "converted",
    "dequantized",
    "eager",
    "from_comfy_quants",
    "int4_rotated",
    "loaded",
    "marker",
    "needs_comfy_quants",
    "needs_comfyui",
    "run_comfyui",
    "same",
]

# As ComfyUI's `QUANT_ALGOS` has them: what codes are held in, and the class of the layout.
_ALGORITHMS = {
    "float8_e4m3fn": (torch.float8_e4m3fn, "TensorCoreFP8Layout"),
    "float8_e5m2": (torch.float8_e5m2, "TensorCoreFP8Layout"),
    "mxfp8": (torch.float8_e4m3fn, "TensorCoreMXFP8Layout"),
    "nvfp4": (torch.uint8, "TensorCoreNVFP4Layout"),
    "int8_tensorwise": (torch.int8, "TensorWiseINT8Layout"),
    "convrot_w4a4": (torch.int8, "TensorCoreConvRotW4A4Layout"),
    "asym_w4a8_int8": (torch.int8, "AsymW4A8Int8Layout"),
    "awq_w4a16": (torch.int8, "TensorCoreAWQW4A16Layout"),
    "svdquant_w4a4": (torch.int8, "TensorCoreSVDQuantW4A4Layout"),
}


def from_comfy_quants(module: str) -> Any:
    """Import a module of comfy-quants."""
    if COMFY_QUANTS not in sys.path:
        sys.path.insert(0, str(COMFY_QUANTS))
    return import_module(f"comfy_quants.{module}")


def run_comfyui(command: str, folder: Path) -> None:
    """Make its models in a folder, or load its files: see comfyui_run.py."""
    script = Path(__file__).with_name("comfyui_run.py")
    subprocess.run([sys.executable, script, str(COMFYUI), command, folder], check=True)


def marker(told: dict[str, Any], **spelling: Any) -> torch.Tensor:
    """A layer's marker."""
    return torch.tensor(list(json.dumps(told, **spelling).encode()), dtype=torch.uint8)


def same(made: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether dtype, shape and bytes are equal."""
    if (made.dtype, made.shape) != (want.dtype, want.shape):
        return False
    ours, theirs = (one.contiguous().reshape(-1).view(torch.uint8) for one in (made, want))
    return torch.equal(ours, theirs)


def converted(state: State, target: str) -> State:
    """What a file of tensors becomes."""
    out = io.BytesIO()
    with an.parse(save({name: one.contiguous() for name, one in state.items()})) as model:
        model.convert(out, target)
    return load(out.getvalue())


def loaded(state: State, module: str, shape: tuple[int, ...]) -> Any:
    """A layer's weight as ComfyUI's `_load_quantized_module` makes one of its tensors."""
    told = json.loads(state[f"{module}.comfy_quant"].numpy().tobytes())
    storage, layout = _ALGORITHMS[told["format"]]
    scales = _scales(told, state, f"{module}.weight")
    params = kitchen.get_layout_class(layout).Params(
        **scales, orig_dtype=torch.float32, orig_shape=shape
    )
    return kitchen.QuantizedTensor(state[f"{module}.weight"].to(dtype=storage), layout, params)


def _scales(told: dict[str, Any], state: State, weight: str) -> dict[str, Any]:
    """What lies beside codes, and what the marker says, as parameters of its class."""
    numbers = ("group_size", "convrot_groupsize", "convrot")
    said = {name: told[name] for name in numbers if name in told}
    scale = state.get(f"{weight}_scale", torch.empty(0))
    if told["format"] == "mxfp8":
        return {"scale": scale.view(torch.float8_e8m0fnu)}
    if told["format"] == "nvfp4":
        second = state[f"{weight}_scale_2"]
        return {"scale": second, "block_scale": scale.view(torch.float8_e4m3fn)}
    if told["format"] == "asym_w4a8_int8":
        rel = state[f"{weight}_s_rel"]
        scale = rel.view(torch.float8_e4m3fn) if rel.dtype is torch.uint8 else rel
    parts = (
        "s_channel",
        "codebook",
        "correction",
        "zeros",
        "proj_down",
        "proj_up",
        "smooth_factor",
    )
    found = {part: state[name] for part in parts if (name := f"{weight}_{part}") in state}
    return {"scale": scale, **found, **said}


def dequantized(state: State, module: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Its values in float32, by comfy-kitchen."""
    values: torch.Tensor = loaded(state, module, shape).dequantize()
    return values


def assert_loads_as_read(to: str) -> None:
    """What comfy-kitchen makes of a layer in an encoding is what is read here."""
    layer, name = "blocks.3.attn.to_q", "blocks.3.attn.to_q.weight"
    weight = torch.randn(96, 320, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    state = converted({name: weight}, to)
    with an.parse(save(state)) as model:
        assert not model.problems
        assert list(model) == [name]
        values = model[name].numpy("f32")
    assert dequantized(state, layer, (96, 320)).numpy().tobytes() == values.tobytes()
