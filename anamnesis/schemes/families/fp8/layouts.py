"""How each producer stores 8-bit floats: names, dtypes, shapes and configs.

codes  F8_E4M3 | F8_E5M2 [..., rows, cols], in words of four where MLX has them
scales F32 | F8_E8M0, or the weight's own dtype [..., grid rows, grid cols]
of MXFP8, U8 with powers of two [..., rows, cols / 32]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part
from anamnesis.schemes.core.codes import Out
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import Config, Field, Layers, Layout, Repack, Shapes
from anamnesis.schemes.families.fp8.layout import CODES, SCALE, InBlocks, OfAnyKind, OfFloats
from anamnesis.schemes.libraries.libraries import (
    OfCompressedTensors,
    OfMistral,
    OfModelOpt,
    OfTransformers,
    input_arguments,
    weight_arguments,
)
from anamnesis.schemes.views.kinds import Floats

if TYPE_CHECKING:
    from anamnesis.schemes.core.layout import StacksOf
    from anamnesis.schemes.libraries.stacks import Stacks

_SCALE_INV = Field("scales", "{weight}_scale_inv")
COMFY_SCALE = Field("scales", "{module}scale_weight")  # in ComfyUI's older files
_QSCALE = Field("scales", "{module}qscale_weight")  # Mistral's

# What scales beside codes are called; a weight has the first that there is.
SCALES = (
    _SCALE_INV,
    SCALE,
    *(Field("scales", "{weight}_weight_scale"), Field("scales", "{weight}_weight_scale_inv")),
    COMFY_SCALE,
    *(_QSCALE, Field("scales", "{module}scale")),
)
QUANTO = (Field("codes", "{weight}._data"), Field("scales", "{weight}._scale"))

# What vLLM has in codes where params.json says that the model is, and what it has plain even so.
_ALWAYS_CODED = re.compile(
    r"layers\.[0-9]+\.(?:attention\.w[qkvo]"
    r"|(?:feed_forward|shared_experts|experts\.[0-9]+)\.w[123])"
)
_NEVER_CODED = ("output.weight", "tok_embeddings.weight")
_BLOCK = (128, 128)
_MODELOPT = {"tensor": "FP8", "channel": "FP8_PER_CHANNEL_PER_TOKEN", "block": "fp8_pb_wo"}


@dataclass(frozen=True)
class FineGrained(InBlocks, OfTransformers):
    """transformers' `FineGrainedFP8Config`: F32 scales, or E8M0."""

    format: str
    powers_of_two: bool

    fields: ClassVar[tuple[Field, ...]] = (CODES, _SCALE_INV)

    @property
    def element(self) -> str:  # type: ignore[override]  # a setting
        return f"F8_{self.format}"

    @property
    def scale_dtypes(self) -> tuple[str, ...]:  # type: ignore[override]  # a setting
        return ("F8_E8M0",) if self.powers_of_two else ("F32",)

    def encoding(self, block_size: tuple[int, int]) -> Encoding:
        return encoding(self.kind, "transformers", self.format, block_size, self.powers_of_two)

    @property
    def stacks_of(self) -> StacksOf | None:  # type: ignore[override]  # a setting
        return "transformers" if self.kind == "block" else None

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        from anamnesis.schemes.libraries.stacks import is_stack

        is_block = self.kind == "block"
        if is_block and is_stack(name, shape) and not name.endswith(".weight"):
            why = None if dtype.kind == "float" else dtype.name
        else:
            why = super().refuses(name, shape, dtype)
        return why or (self._refuses_blocks(shape) if is_block else None)

    def _refuses_blocks(self, shape: tuple[int, ...]) -> str | None:
        if shape[-2] % self.block_size[0] or shape[-1] % self.block_size[1]:
            return "not in whole blocks of " + "x".join(map(str, self.block_size))
        return "no values" if 0 in shape else None

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.stacks import stacks_of

        found = dict(super().leaves(shapes, config))
        for stacks in stacks_of(shapes).values() if self.kind == "block" else ():
            why = self._why_not_experts(stacks, shapes)
            found.update(dict.fromkeys(stacks.names, why) if why else {})
        return found

    def _why_not_experts(self, stacks: Stacks, shapes: Shapes) -> str | None:
        if stacks.biases:
            return "experts with biases"
        if stacks.orientation != "linear":
            given = stacks.orientation == "transposed"
            return f"experts that {'are' if given else 'may be'} [in, out]"
        for name in stacks.names:
            why = self._refuses_blocks(shapes[name])
            if why is None and name.endswith("gate_up_proj"):
                halves = shapes[name][-2] >= 2 * self.block_size[0]
                why = None if halves else "experts whose gate and up projections share blocks"
            if why:
                return why
        return None

    def parts(
        self, name: str, shape: tuple[int, ...], outs: Sequence[Out], found: bytes = b""
    ) -> tuple[Part, ...]:
        from anamnesis.schemes.libraries.stacks import is_of_an_expert

        codes, scales = super().parts(name, shape, outs, found)
        is_lone_expert = self.kind == "tensor" and is_of_an_expert(name)
        return codes, scales._replace(shape=(1, 1)) if is_lone_expert else scales

    def declare(self, layers: Layers) -> dict[str, Any]:
        from anamnesis.schemes.libraries.left_plain import with_head

        return {
            "quant_method": "fp8" if self.format == "E4M3" else "fp8_e5m2",
            "modules_to_not_convert": with_head(layers.plain),
            "modules_to_convert": None,
            "activation_scheme": "dynamic",
            "weight_block_size": list(self.block_size) if self.kind == "block" else None,
            "dequantize": False,
            "scale_fmt": "ue8m0" if self.powers_of_two else "float",
            "expert_dtype": "fp8",
        }


@dataclass(frozen=True)
class FloatQuantized(InBlocks, OfCompressedTensors):
    """compressed-tensors' `float-quantized`: E4M3, and scales in the weight's dtype."""

    # Scales that are there already keep theirs, or become F32: that is what vLLM makes of any as it
    # loads them. transformers makes of them what the model's plain weights are loaded as.

    fields: ClassVar[tuple[Field, ...]] = (CODES, SCALE._replace(lone=(1,)))
    scale_dtypes: ClassVar[tuple[str, ...]] = ("F32", "BF16", "F16")

    def encoding(self, block_size: tuple[int, int]) -> Encoding:
        return encoding(self.kind, "compressed-tensors", block_size=block_size)

    def declare(self, layers: Layers) -> dict[str, Any]:
        is_block = self.kind == "block"
        more = {"block_structure": list(self.block_size)} if is_block else {}
        weights = weight_arguments(8, "float", self.kind, **more)
        ranges = ("group", 128) if is_block else ("token", None)
        return self.config(weights, input_arguments("float", *ranges), "float-quantized", layers)


@dataclass(frozen=True)
class Fp8OfModelOpt(OfAnyKind, OfModelOpt):
    """ModelOpt's `FP8`, `FP8_PER_CHANNEL_PER_TOKEN` and `fp8_pb_wo`."""

    # `FP8` also has scales of activations, which no weights tell: it only takes codes, and what
    # loads it must find those as they come.

    kind: str

    fields: ClassVar[tuple[Field, ...]] = (CODES, SCALE)
    block_size = _BLOCK
    group = 0

    @property
    def algorithm(self) -> str:
        return _MODELOPT[self.kind]

    def parts(
        self, name: str, shape: tuple[int, ...], outs: Sequence[Out], found: bytes = b""
    ) -> tuple[Part, ...]:
        codes, scales = super().parts(name, shape, outs, found)
        of = scales.shape
        if self.kind == "channel":
            of = of[:-1]
        elif self.kind == "block":
            of = (*of[:-2], of[-2], 1, of[-1], 1)
        return codes, scales._replace(shape=of)


class Fp8OfMistral(OfFloats, OfMistral):
    """Mistral's `fp8_e4m3`, which only takes codes; activations are quantised as they come."""

    fields: ClassVar[tuple[Field, ...]] = (CODES, _QSCALE)
    scale_dtypes: ClassVar[tuple[str, ...]] = ("F32", "BF16", "F16")
    kind = "tensor"

    def write(self, view: Floats, encoding: Encoding) -> Repack | None:
        made = super().write(view, encoding)
        if made is not None and len(view.shape) > 2:
            raise view.refused(f"{encoding.id} has a matrix for each expert")
        if made is not None and view.name in _NEVER_CODED:
            raise view.refused(f"{encoding.id} has embeddings and the head plain")
        return made

    def declare(self, layers: Layers) -> dict[str, Any]:
        for name in layers.plain:
            if _ALWAYS_CODED.fullmatch(name):
                raise UnsupportedError(
                    f"params.json cannot say that {name!r} is not quantised, while others are"
                )
        return {"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}


# --- encodings --------------------------------------------------------------------------------

SETTINGS = (
    Setting("block_size", (128, 128), form="block"),
    Setting("format", "E4M3", {"E5M2": "e5m2"}),
    Setting("powers_of_two", False, {True: "ue8m0"}),
)


def encoding(
    kind: str = "block",
    flavour: str = "transformers",
    format: str = "E4M3",
    block_size: tuple[int, int] = (128, 128),
    powers_of_two: bool = False,
) -> Encoding:
    """Return 8-bit floats with a scale for each block, each row or in all."""
    from anamnesis.schemes.families.fp8 import encode

    is_ct = flavour == "compressed-tensors"
    shared = {"block": block_size, "channel": (1, 0), "tensor": (0, 0)}.get(kind)
    if shared is None:
        raise ValueError(f"kind must be block, channel or tensor; got {kind!r}")
    is_modelopt = flavour == "ModelOpt"
    if flavour not in ("transformers", "compressed-tensors", "ModelOpt", "Mistral"):
        raise ValueError(f"there is no flavour {flavour!r}")
    if format not in ("E4M3", "E5M2"):
        raise ValueError(f"format must be E4M3 or E5M2; got {format!r}")
    if is_ct and (powers_of_two or format != "E4M3"):
        raise ValueError("compressed-tensors has neither E5M2 nor powers of two as scales")
    if is_modelopt and (powers_of_two or format != "E4M3" or block_size != _BLOCK):
        raise ValueError("ModelOpt has E4M3, in blocks of 128x128, and no powers of two as scales")
    if flavour == "Mistral":
        if (kind, format, powers_of_two) != ("tensor", "E4M3", False):
            raise ValueError("Mistral has E4M3 with one scale for each weight")
        return Encoding("fp8-tensor-mistral", Fp8OfMistral())
    if is_modelopt:
        codes_of = None
        if kind != "tensor":
            codes_of = encode.ModelOptFp8("F8_E4M3", "divided", *shared, dtype=DTYPES["F32"])
        return Encoding(f"fp8-{kind}-modelopt", Fp8OfModelOpt(kind), codes_of)
    if min(block_size) < 1:
        raise ValueError(f"block_size must be positive; got {block_size}")
    name = f"fp8-{kind}" + ("-ct" if is_ct and kind != "channel" else "")
    name += "-float" if not is_ct and kind == "channel" else ""
    settings = {"format": format, "powers_of_two": powers_of_two}
    settings |= {"block_size": block_size} if kind == "block" else {}
    scaling = "power of two" if powers_of_two else "reciprocal"
    layout: Layout = FineGrained(kind, block_size, format, powers_of_two)
    if is_ct:
        scaling, layout = "divided", FloatQuantized(kind, block_size)
    codes = encode.Fp8(f"F8_{format}", scaling, *shared)
    return Encoding(spelt(name, settings, SETTINGS), layout, codes)
