"""ComfyUI's models made small, and files loaded by its loader, in a process of their own.

    python comfyui_run.py CHECKOUT make FOLDER
    python comfyui_run.py CHECKOUT load FOLDER

`make` writes a file of random weights for each model. `load` loads all files, and writes beside
each what the model then has, decoded in float32. The process has modules of ComfyUI's names, and
empty ones in place of what it imports for sound and pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
from safetensors.torch import save_file

State = dict[str, torch.Tensor]

# What it imports beside, and calls for other models alone.
_EMPTY = ("av", "kornia", "sentencepiece", "torchaudio", "torchsde", "torchvision")


class _Empty(MetaPathFinder, Loader):
    """Finds modules of which every name is something."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        is_empty = name.partition(".")[0] in _EMPTY
        return ModuleSpec(name, self, is_package=True) if is_empty else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: Any = MagicMock(name=spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def of_class(path: str, name: str, **settings: Any) -> State:
    """Return random weights for each parameter of a model."""
    ops = import_module("comfy.ops").disable_weight_init
    make: Callable[..., torch.nn.Module] = getattr(import_module(f"comfy.ldm.{path}"), name)
    model = make(**settings, dtype=torch.bfloat16, device="meta", operations=ops)
    draw = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(value.shape, generator=draw).mul(0.05).to(torch.bfloat16)
        for name, value in model.state_dict().items()
    }


def models() -> Iterator[tuple[str, State]]:
    """Yield models with a few blocks, and what files call their weights."""
    flux = of_class(
        *("flux.model", "Flux"),
        image_model="flux",
        in_channels=16,
        out_channels=16,
        vec_in_dim=64,
        context_in_dim=128,
        hidden_size=256,
        mlp_ratio=4.0,
        num_heads=2,
        depth=2,
        depth_single_blocks=1,
        axes_dim=[16, 56, 56],
        theta=10000,
        patch_size=2,
        qkv_bias=True,
        guidance_embed=True,
        txt_ids_dims=[],
    )
    yield "flux", flux
    yield "flux-checkpoint", {f"model.diffusion_model.{name}": w for name, w in flux.items()}
    yield "flux-diffusers", as_diffusers(flux)
    yield (
        "wan",
        of_class(
            *("wan.model", "WanModel"),
            model_type="t2v",
            patch_size=(1, 2, 2),
            in_dim=16,
            dim=256,
            ffn_dim=512,
            text_dim=4096,
            out_dim=16,
            num_heads=2,
            num_layers=2,
        ),
    )
    yield (
        "sd3",
        of_class(
            *("modules.diffusionmodules.mmdit", "MMDiT"),
            input_size=None,
            in_channels=16,
            depth=2,
            qk_norm="rms",
            pos_embed_max_size=8,
            num_patches=64,
            adm_in_channels=2048,
            context_embedder_config={
                "target": "torch.nn.Linear",
                "params": {"in_features": 4096, "out_features": 128},
            },
        ),
    )
    yield (
        "ltx",
        of_class(
            *("lightricks.model", "LTXVModel"),
            cross_attention_dim=256,
            attention_head_dim=8,
            num_attention_heads=32,
            num_layers=5,
        ),
    )


def as_diffusers(flux: State) -> State:
    """Return Flux's weights by diffusers' names, by which ComfyUI finds it, too."""
    sizes = {"depth": 2, "depth_single_blocks": 1, "hidden_size": 256}
    named = import_module("comfy.utils").flux_to_diffusers(sizes, output_prefix="")
    found: State = {}
    seen = set()
    for name, place in named.items():
        whole, rows, *swap = (place, None) if isinstance(place, str) else place
        is_of_flux_2 = name.endswith("to_qkv_mlp_proj.weight")
        if whole in flux and not is_of_flux_2 and (whole, rows) not in seen:
            seen.add((whole, rows))
            weight = flux[whole] if rows is None else flux[whole].narrow(*rows)
            found[name] = torch.cat(weight.chunk(2)[::-1]) if swap else weight.clone()
    return found


def loaded(file: Path) -> State:
    """Return what the model has when it is loaded, and nothing if that is refused."""
    utils, loader = import_module("comfy.utils"), import_module("comfy.sd")
    state, metadata = utils.load_torch_file(str(file), return_metadata=True)
    try:
        patcher = loader.load_diffusion_model_state_dict(state, metadata=metadata)
    except RuntimeError as refusal:
        if "size mismatch" not in str(refusal):
            raise
        return {}
    model = patcher.model.diffusion_model
    return {name: decoded(weight.data) for name, weight in model.named_parameters()}


def decoded(weight: Any) -> torch.Tensor:
    """Return a weight in float32."""
    if isinstance(weight, import_module("comfy.quant_ops").QuantizedTensor):
        params = replace(weight._params, orig_dtype=torch.float32)
        weight = type(weight)(weight._qdata, weight._layout_cls, params).dequantize()
    return weight.to(torch.float32).contiguous()


def main(checkout: str, command: str, folder: str) -> None:
    sys.meta_path.insert(0, _Empty())
    sys.path.insert(0, checkout)
    import_module("comfy.cli_args").args.cpu = True
    if command == "make":
        for name, state in models():
            save_file(state, Path(folder, f"{name}.safetensors"))
    else:
        torch_order: Any = import_module("torch_order")  # which lies beside this file
        eager = [
            f"comfy_kitchen.backends.eager.{name}" for name in ("quantization", "convrot_w4a4")
        ]
        torch_order.settle([import_module(name) for name in eager])
        for file in sorted(Path(folder).glob("*.safetensors")):
            save_file(loaded(file), file.with_suffix(".loaded"))


if __name__ == "__main__":
    main(*sys.argv[1:])
