"""What a library's layouts share: which weights its tools encode, its config.

Their rules are imported when they are asked, for readers do not need them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.core.layout import Beside, Config, Field, Layers, Layout, Shapes
from anamnesis.schemes.libraries.comfy_metadata import MARKER

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DType
    from anamnesis.schemes.core.encoding import Encoding
    from anamnesis.schemes.core.layout import ExpertsTool, StacksOf
    from anamnesis.schemes.libraries.left_plain import Tool


class _OfLinearLayers(Layout):
    """The libraries that take layers whose class is nn.Linear, and no Conv1D."""

    conv1d: ClassVar[Literal["as stored", "as linear", "left"]] = "left"
    tool: ClassVar[Tool]

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        from anamnesis.schemes.libraries.left_plain import linear_refusal

        return linear_refusal(name, shape, dtype, self.tool)

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.left_plain import left_by_class
        from anamnesis.schemes.libraries.mtp import left_drafts

        return {**left_by_class(shapes, self.tool), **left_drafts(shapes, config, self.tool)}


class OfTransformers(_OfLinearLayers):
    """What transformers' own quantisers take; it has experts as stacks."""

    tool = "transformers"


# --- compressed-tensors ------------------------------------------------------------------------

_VERSION = "0.20.0"  # whose config it is


def weight_arguments(num_bits: int, type: str, strategy: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of one quantisation, as compressed-tensors lists them."""
    settings = {"symmetric": True, "group_size": None, **more}
    return {"num_bits": num_bits, "type": type, **settings, "strategy": strategy, "dynamic": False}


def input_arguments(type: str, strategy: str, group_size: int | None = None) -> dict[str, Any]:
    """Return the arguments of activations, which are quantised as they come."""
    return {**weight_arguments(8, type, strategy, group_size=group_size), "dynamic": True}


class OfCompressedTensors(_OfLinearLayers):
    """What llm-compressor takes, from which compressed-tensors has its codes."""

    tool = "llm-compressor"

    experts_tool: ClassVar[ExpertsTool | None] = "llm-compressor"

    def config(
        self,
        weights: dict[str, Any],
        inputs: dict[str, Any] | None,
        format: str,
        layers: Layers,
    ) -> dict[str, Any]:
        """Return the config of one group of linear layers, by names that fit transformers too."""
        # As `ModelCompressor.update_config` has it.
        from anamnesis.schemes.libraries.endings import as_patterns
        from anamnesis.schemes.libraries.left_plain import with_head

        group = {
            "targets": ["Linear"],
            "weights": weights,
            "input_activations": inputs,
            "output_activations": None,
            "format": format,
        }
        return {
            "version": _VERSION,
            "quant_method": "compressed-tensors",
            "sparsity_config": {},
            "transform_config": {},
            "config_groups": {"group_0": group},
            "kv_cache_scheme": None,
            "format": format,
            "quantization_status": "compressed",
            "global_compression_ratio": None,
            "ignore": with_head(as_patterns(layers)),
            "moe_sparsity_config": None,
        }

    def config_of_floats(
        self, bits: int, group_size: int, scales: DType, format: str, layers: Layers
    ) -> dict[str, Any]:
        """Return the config of floats with a small scale for each group, beside plain activations.

        A scale that has a scale itself is in E4M3.
        """
        strategy = "tensor_group" if scales.name == "F8_E4M3" else "group"
        weights = weight_arguments(bits, "float", strategy, group_size=group_size)
        weights["scale_dtype"] = f"torch.{scales.torch_name}"
        return self.config(weights, None, format, layers)


# --- others ------------------------------------------------------------------------------------


class OfModelOpt(_OfLinearLayers):
    """What ModelOpt takes, and what its `export_hf_checkpoint` says."""

    tool = "ModelOpt"

    if TYPE_CHECKING:

        @property
        def algorithm(self) -> str: ...

        @property
        def group(self) -> int: ...

    experts_tool: ClassVar[ExpertsTool | None] = "ModelOpt"

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        from anamnesis.schemes.libraries.modelopt import modelopt_refusal

        return super().refuses(name, shape, dtype) or modelopt_refusal(name)

    def declare(self, layers: Layers) -> dict[str, Any]:
        from anamnesis.schemes.libraries.modelopt import config_of

        return config_of(self.algorithm, self.group, layers)

    def files(self, layers: Layers) -> dict[str, dict[str, Any]]:
        from anamnesis.schemes.libraries.modelopt import file_of

        return {"hf_quant_config.json": file_of(self.algorithm, self.group, layers)}


class OfMistral(_OfLinearLayers):
    """What Mistral publishes: params.json, and names of its own; it lists no plain layers."""

    tool = "transformers"  # which takes linear layers, and no more
    config_name = "params.json"
    config_keys = ("quantization",)


class OfMlx(Layout):
    """What mlx-lm's `quantize_model` takes; layers of some models are plain, or in 8 bits."""

    conv1d = "left"
    config_keys = ("quantization", "quantization_config")
    moves_left = False

    stacks_of: ClassVar[StacksOf | None] = "mlx-lm"

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        from anamnesis.schemes.libraries.mlx_models import mlx_refusal

        return mlx_refusal(name, shape, dtype)

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.mlx_models import left_in

        return left_in(shapes, config)

    def others(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.mlx_models import in_8_bits

        return in_8_bits(shapes, config)

    def declare_each(self, layers: Mapping[str, Encoding], config: Config) -> dict[str, Any] | None:
        from anamnesis.schemes.libraries.mlx_models import with_each

        return with_each(self.declare(Layers([], [], {})), layers, config)


class OfComfyUi(Layout):
    """What ComfyUI's tools take of diffusion models; a marker beside each layer says its format."""

    conv1d = "left"
    marker: ClassVar[Field] = Field("marker", "{module}" + MARKER, ("U8",))

    comfy_format: ClassVar[str]  # what ComfyUI calls it

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        from anamnesis.schemes.libraries.left_plain import refusal

        return refusal(name, shape, dtype, (), 2)  # linear layers alone have codes in ComfyUI

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.comfy_left import comfy_left

        return comfy_left(shapes)

    def beside(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> Beside:
        said = self.said(shape)
        return [(self.marker.part(name, DTYPES["U8"], (len(said),)), said)]

    def said(self, shape: tuple[int, ...]) -> bytes:
        """Return the marker's JSON, as ComfyUI writes it."""
        return json.dumps({"format": self.comfy_format}).encode()

    @staticmethod
    def check_matrix(view: Any) -> None:
        """Refuse what is no matrix, as those of layers are."""
        if len(view.shape) != 2:
            raise view.refused(f"ComfyUI has matrices, not {list(view.shape)}")
