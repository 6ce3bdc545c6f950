"""How each producer stores 4-bit floats: names, dtypes, shapes and configs.

The codes of one are those of all, and so are the scales; only the second scale of NVFP4 may be
another number for the same product (see `equal_scales`). Code 8 stays code 8, which ModelOpt,
DeepSeek and ggml read as +0 and the others as -0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.codes import Out
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Config, Field, Layers, Shapes, StacksOf, module_of
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.fp4.layout import Fp4Layout
from anamnesis.schemes.families.fp4.mxfp4_nvfp4 import Cast
from anamnesis.schemes.families.fp4.view import Fp4Codes, to_ggml
from anamnesis.schemes.families.fp4.weight import nibbles_swapped
from anamnesis.schemes.libraries.libraries import OfComfyUi, OfCompressedTensors, OfMlx, OfModelOpt
from anamnesis.schemes.views.tiles import tiled, untiled
from anamnesis.schemes.views.views import completed, padded

_E4M3, _E8M0 = ("F8_E4M3",), ("U8", "F8_E8M0")
_ALONE = "each scale is one by itself"  # so that there need be no second one


class CompressedTensors(OfCompressedTensors, Fp4Layout):
    """compressed-tensors' `nvfp4-pack-quantized` and `mxfp4-pack-quantized`."""

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        from anamnesis.schemes.libraries.merged import merged

        return list(merged(tuple(names))) if self.has_second else []

    def declare(self, layers: Layers) -> dict[str, Any]:
        scales = DTYPES[self.fields[1].dtypes[0]]
        return self.config_of_floats(4, self.group, scales, self.called, layers)


class ModelOpt(OfModelOpt, Fp4Layout):
    """ModelOpt's `W4A16_NVFP4` and `mxfp4`."""

    @property
    def needs_method(self) -> bool:  # type: ignore[override]  # as ComfyUI's NVFP4 is called
        return self.has_second

    @property
    def algorithm(self) -> str:
        """Its `quant_algo`."""
        return self.called

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        from anamnesis.schemes.libraries.merged import of_one_input

        return list(of_one_input(tuple(names))) if self.has_second else []


class Mlx(OfMlx, Fp4Layout):
    """MLX's modes `nvfp4` and `mxfp4`: codes in words of eight, the first in the lowest bits."""

    def declare(self, layers: Layers) -> dict[str, Any]:
        return {"group_size": self.group, "bits": 4, "mode": self.meaning.kind.lower()}


class GptOss(Fp4Layout):
    """gpt-oss's MXFP4, of its experts and of nothing else: blocks of 16 bytes."""

    # transformers has the stacks the other way round, [experts, in, out]; those of OpenAI's own
    # names are as they are stored.

    conv1d = "left"

    stacks_of: ClassVar[StacksOf | None] = "transformers"

    def turns(self, name: str, shape: tuple[int, ...]) -> bool:
        from anamnesis.schemes.libraries.stacks import is_stack

        return is_stack(name, shape)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        if dtype.kind != "float":
            return dtype.name
        if not self.turns(name, shape) or name.endswith(".weight"):
            return "no stack of gpt-oss's experts"
        if shape[-1] % self.group:
            return f"inputs are not in whole groups of {self.group}"
        return "no values" if 0 in shape else None

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.sections import model_types
        from anamnesis.schemes.libraries.stacks import stacks_of

        given = model_types(config)
        is_other = bool(given) and "gpt_oss" not in given
        found = {}
        for stacks in stacks_of(shapes).values():
            if is_other or not stacks.biases:
                found.update(dict.fromkeys(stacks.names, "experts of another model than gpt-oss"))
            elif stacks.orientation != "transposed":
                found.update(dict.fromkeys(stacks.names, "experts that are [out, in], or may be"))
        return found

    def parts(
        self, name: str, shape: tuple[int, ...], outs: Sequence[Out], found: bytes = b""
    ) -> tuple[Part, ...]:
        codes, scales = super().parts(name, shape, outs, found)
        return codes._replace(shape=(*scales.shape, self.group // 2)), scales

    def tensors(self, view: Fp4Codes, second: bytes) -> list[StoredTensor]:
        if len(view.shape) != 3:
            raise view.refused(f"gpt-oss has stacks of experts, not {list(view.shape)}")
        name = view.name_as_stored.removesuffix(".weight")
        fields = self.bare if name == view.name_as_stored else self.fields
        codes, scales = self._under(fields, name, view, second)
        return [codes._replace(shape=(*scales.shape, self.group // 2)), scales]

    def declare(self, layers: Layers) -> dict[str, Any]:
        return {"quant_method": "mxfp4", "modules_to_not_convert": list(layers.plain)}


class AutoRound(Fp4Layout):
    """AutoRound's own numbers under compressed-tensors' names: only the config tells."""


class ComfyUi(OfComfyUi, Fp4Layout):
    """ComfyUI's NVFP4: ModelOpt's names, but scales in tiles, and the high nibble first."""

    # Rows and columns of codes that are moved are padded to multiples of 16; then the marker says
    # the shape, which ComfyUI does not look for.

    comfy_format = "nvfp4"

    def said(self, shape: tuple[int, ...]) -> bytes:
        if not any(n % self.group for n in shape):
            return super().said(shape)
        return json.dumps({"format": self.comfy_format, "orig_shape": list(shape)}).encode()

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        rows, cols = shape
        scales = untiled(parts[1], rows, cols // self.group)
        return super().weight(name, shape, (parts[0], scales, parts[2]))

    def _check(self, view: Fp4Codes) -> None:
        self.check_matrix(view)

    def tensors(self, view: Fp4Codes, second: bytes) -> list[StoredTensor]:
        rows, cols = view.shape
        tall, wide = (-(-n // self.group) * self.group for n in (rows, cols))
        codes = nibbles_swapped(padded(view.codes, tall, wide // 2))
        name = f"{module_of(view.name_as_stored)}weight"
        own = view._replace(codes=codes, scales=tiled(view.scales))
        parts = self._under(self.fields, name, own, second)
        return [*completed(parts, self.beside(name, view.shape))]


class Gguf(Fp4Layout):
    """ggml's blocks, with llama.cpp's second scale beside them if there is one."""

    def _for_each(self, cast: Cast) -> Cast:
        return cast._replace(second=cast.second * prod(cast.view.shape[:-2]))

    def tensors(self, view: Fp4Codes, second: bytes) -> list[StoredTensor]:
        name = view.name_as_stored
        blocks = to_ggml(view._replace(name=name), view.scales)
        return [blocks, *self._second(name, view, second, self.fields)]


def _fields(
    codes: str,
    scales: tuple[str, tuple[str, ...]],
    second: str = "",
    *,
    dtype: str = "U8",
    lone: tuple[int, ...] | None = None,
    unless: str = "",
) -> tuple[Field, ...]:
    found = (Field("codes", codes, (dtype,)), Field("scales", *scales))
    return (*found, Field("second", second, ("F32",), lone, unless)) if second else found


_PACKED = "{module}weight_packed"
_CT_SCALE, _CT_SECOND = "{module}weight_scale", "{module}weight_global_scale"
_WORDS, _MLX_SCALE = "{module}weight", "{module}scales"
_BESIDE, _BESIDE_BARE = "{weight}_scale", "{weight}_weight_scale"
_MLX_SECOND = "{module}global_scale"

# By the names of the encodings.
LAYOUTS: dict[str, Fp4Layout] = {
    "nvfp4": CompressedTensors(
        "ct-nvfp4",
        _fields(_PACKED, (_CT_SCALE, _E4M3), _CT_SECOND, lone=(1,)),
        called="nvfp4-pack-quantized",
    ),
    "mxfp4": CompressedTensors(
        "mxfp4", _fields(_PACKED, (_CT_SCALE, _E8M0)), called="mxfp4-pack-quantized"
    ),
    "comfy-nvfp4": ComfyUi(
        "comfy-nvfp4",
        (
            *_fields("{weight}", (_BESIDE, _E4M3), "{weight}_scale_2"),
            OfComfyUi.marker,
        ),
    ),
    "nvfp4-modelopt": ModelOpt(
        "modelopt-nvfp4",
        _fields("{weight}", (_BESIDE, _E4M3), "{weight}_scale_2"),
        _fields("{weight}", (_BESIDE_BARE, _E4M3), "{weight}_weight_scale_2"),
        called="W4A16_NVFP4",
    ),
    "mxfp4-modelopt": ModelOpt(  # Quark and others give MXFP4 the same names
        "mxfp4",
        _fields("{weight}", (_BESIDE, _E8M0)),
        _fields("{weight}", (_BESIDE_BARE, _E8M0)),
        called="mxfp4",
    ),
    "gptoss-mxfp4": GptOss(
        "gpt-oss-mxfp4",
        _fields("{weight}_blocks", ("{weight}_scales", ("U8",))),
        _fields("{weight}.blocks", ("{weight}.scales", ("U8",))),
    ),
    "mlx-nvfp4": Mlx(
        "mlx-nvfp4",
        _fields(_WORDS, (_MLX_SCALE, ("U8",)), _MLX_SECOND, dtype="U32", unless=_ALONE),
    ),
    "mlx-mxfp4": Mlx("mxfp4", _fields(_WORDS, (_MLX_SCALE, ("U8",)), dtype="U32")),
    "gguf-nvfp4": Gguf(
        "gguf-nvfp4",
        (
            Field("codes", "{weight}", ("NVFP4",)),
            Field("second", "{module}scale", ("F32",), (1,), _ALONE),
        ),
    ),
    "gguf-mxfp4": Gguf("gguf-mxfp4", (Field("codes", "{weight}", ("MXFP4",)),)),
}

# Those that are read, and not written.
READ_ONLY = (
    # Experts of DeepSeek-V4.
    Fp4Layout("deepseek-fp4", _fields("{weight}", ("{module}scale", ("F8_E8M0",)), dtype="I8")),
    AutoRound("autoround-mxint4", _fields(_PACKED, (_CT_SCALE, ("U8",)))),
    AutoRound("autoround-e5m3", _fields(_PACKED, (_CT_SCALE, ("U8",)))),
)


def encoding(name: str) -> Encoding:
    """Return 4-bit floats in the layout of a name, whose codes, if any, are called alike."""
    from anamnesis.schemes.families.fp4.encode import CODES

    return Encoding(name, LAYOUTS[name], CODES.get(name))
