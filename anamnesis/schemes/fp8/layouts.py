"""How each producer stores 8-bit floats: names, dtypes, shapes and configs.

codes  F8_E4M3 | F8_E5M2 [..., rows, cols], in words of four where MLX has them
scales F32 | F8_E8M0, or the weight's own dtype [..., grid rows, grid cols]
of MXFP8, U8 with powers of two [..., rows, cols / 32]
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.codes import Out
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.encoding_names import Setting, spelt
from anamnesis.schemes.core.layout import (
    Field,
    Layers,
    Layout,
    Moves,
    Repack,
    Unmovable,
    each_moved,
)
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.fp8.moving import scales_as
from anamnesis.schemes.fp8.of_fp4 import as_eights
from anamnesis.schemes.fp8.weight import Fp8Weight
from anamnesis.schemes.libraries.libraries import (
    OfCompressedTensors,
    OfMistral,
    OfModelOpt,
    OfTransformers,
)
from anamnesis.schemes.views.grid import ScaleGrid, resolve
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.views import constant

if TYPE_CHECKING:
    from anamnesis.schemes.core.layout import StacksOf
    from anamnesis.schemes.libraries.stacks import Stacks

CODES = Field("codes", "{weight}")
_SCALE_INV = Field("scales", "{weight}_scale_inv")
SCALE = Field("scales", "{weight}_scale")
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
POWERS = ("U8", "F8_E8M0")
_BLOCK = (128, 128)
_MODELOPT = {"tensor": "FP8", "channel": "FP8_PER_CHANNEL_PER_TOKEN", "block": "fp8_pb_wo"}


def grid_of(shape: tuple[int, ...], kind: str, block: tuple[int, int]) -> ScaleGrid:
    """Return where scales are: one for each block or row of each matrix, or one for all."""
    if kind == "tensor":
        n = prod(shape)
        return ScaleGrid(kind, 1, 1, n, 1, max(n, 1))
    (rows, cols), (tall, wide) = shape[-2:], block
    size = (1, cols) if kind == "channel" else (min(tall, rows), min(wide, cols))
    return ScaleGrid(kind, prod(shape[:-2]), rows, cols, *size)


def _untold(
    shapes: Mapping[str, tuple[int, ...]], kind: str, block: tuple[int, int]
) -> dict[str, Any]:
    """Return the size of blocks, if the shapes of codes and scales do not show it."""
    codes, scales = shapes["codes"], shapes["scales"]
    if kind != "block" or prod(scales) == 1:
        return {}
    own = grid_of(codes, kind, block)
    try:
        found = resolve(codes, scales)
    except ValueError:  # several would fit
        found = None
    is_shown = found is not None and found[-2:] == own[-2:]
    return {} if is_shown else {"weight_block_size": list(block)}


class OfFloats(Layout):
    """Codes of a byte and scales, under any names."""

    takes = Floats
    element = "F8_E4M3"
    scale_dtypes: ClassVar[tuple[str, ...]] = ("F32",)

    @abstractmethod
    def grid(self, shape: tuple[int, ...]) -> ScaleGrid:
        """Return where scales are."""

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return Fp8Weight(name, shape, parts, self.grid(shape))

    def write(self, view: Floats, encoding: Encoding) -> Repack | None:
        is_cast = view.element == "E2M1"
        if not (is_cast or view.element.startswith("F8_")):
            return None
        if len(view.shape) < 2 or 0 in view.shape:
            return None
        if is_cast:
            view = as_eights(view, self.grid(view.shape))
        if view.scales is None and self.refuses(view.name, view.shape, DTYPES["BF16"]):
            return None
        if view.element != self.element:
            kinds = (one.removeprefix("F8_") for one in (view.element, self.element))
            raise view.refused("codes are {}, and {} in ".format(*kinds) + encoding.id)
        scales = scales_as(view, self.grid(view.shape), self.scale_dtypes)
        found = {"codes": view.codes, "scales": self.arranged(scales)}
        outs = [Out(role, one.dtype, one.shape) for role, one in found.items()]
        parts = self.parts(view.name, view.shape, outs)
        moved = zip(found.values(), parts, strict=False)
        own = zip(parts[2:], self.constants(view.name, view.shape).values(), strict=True)
        return Repack(
            (encoding,),
            (
                *(one._replace(**part._asdict()) for one, part in moved),
                *(constant(part, raw, view.codes) for part, raw in own),
            ),
            is_cast=is_cast,
        )

    def arranged(self, scales: StoredTensor) -> StoredTensor:
        """Return scales, which are in the order of blocks, as they are stored."""
        return scales


@dataclass(frozen=True)
class _InBlocks(OfFloats):
    """Scales of blocks, rows or whole weights."""

    kind: str
    block_size: tuple[int, int]

    @abstractmethod
    def encoding(self, block_size: tuple[int, int]) -> Encoding:
        """Return the encoding of this layout in blocks of a size."""

    def grid(self, shape: tuple[int, ...]) -> ScaleGrid:
        return grid_of(shape, self.kind, self.block_size)

    def untold(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
        return _untold(shapes, self.kind, self.block_size)

    def write_all(self, views: Mapping[str, Floats], encoding: Encoding) -> Moves:
        ways = [super().write_all(views, encoding)]
        stuck = [views[name] for name, made in ways[0].items() if not _is_moved(made)]
        stuck = [view for view in stuck if view.element != "E2M1"]  # whose groups are no blocks
        ways += [
            each_moved(views, partial(other.layout.write, encoding=other))
            for other in map(self.encoding, self._sizes_of(stuck))
        ]
        moved = {name for way in ways for name, made in way.items() if _is_moved(made)}
        for way in ways:
            if all(_is_moved(way[name]) for name in moved):
                return {name: (way if name in moved else ways[-1])[name] for name in way}
        return {
            name: next((way[name] for way in ways if _is_moved(way[name])), ways[-1][name])
            for name in ways[0]
        }

    def _sizes_of(self, views: Iterable[Floats]) -> list[tuple[int, int]]:
        """Return the sizes of blocks of some weights, other than this one; none of other kinds."""
        tall, wide = self.block_size
        sizes: dict[tuple[int, int], None] = {}
        for grid in [view.grid for view in views if view.grid.kind == self.kind == "block"]:
            size = (
                max(tall, grid.block_rows) if grid.grid_rows == 1 else grid.block_rows,
                max(wide, grid.block_cols) if grid.grid_cols == 1 else grid.block_cols,
            )
            sizes[size] = None
        return [size for size in sizes if size != self.block_size]


def _is_moved(made: Repack | Unmovable) -> bool:
    return isinstance(made, Repack)


@dataclass(frozen=True)
class FineGrained(_InBlocks, OfTransformers):
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
    def stacks_of(self) -> StacksOf | None:
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

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.stacks import stacks_of

        found = dict(super().leaves(shapes, config))
        for stacks in stacks_of(shapes).values() if self.kind == "block" else ():
            why = self._why_not_experts(stacks, shapes)
            found.update(dict.fromkeys(stacks.names, why) if why else {})
        return found

    def _why_not_experts(self, stacks: Stacks, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
        if stacks.has_biases:
            return "experts with biases"
        if stacks.orientation != "linear":
            told = stacks.orientation == "transposed"
            return f"experts that {'are' if told else 'may be'} [in, out]"
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
        from anamnesis.schemes.libraries.linear import with_head

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
class FloatQuantized(_InBlocks, OfCompressedTensors):
    """compressed-tensors' `float-quantized`: E4M3, and scales in the weight's dtype.

    Scales that are there already keep theirs, or become F32: that is what vLLM makes of any as it
    loads them. transformers makes of them what the model's plain weights are loaded as.
    """

    fields: ClassVar[tuple[Field, ...]] = (CODES, SCALE._replace(lone=(1,)))
    scale_dtypes: ClassVar[tuple[str, ...]] = ("F32", "BF16", "F16")

    def encoding(self, block_size: tuple[int, int]) -> Encoding:
        return encoding(self.kind, "compressed-tensors", block_size=block_size)

    def declare(self, layers: Layers) -> dict[str, Any]:
        from anamnesis.schemes.libraries.compressed_tensors import input_arguments, weight_arguments

        is_block = self.kind == "block"
        more = {"block_structure": list(self.block_size)} if is_block else {}
        weights = weight_arguments(8, "float", self.kind, **more)
        ranges = ("group", 128) if is_block else ("token", None)
        return self.config(weights, input_arguments("float", *ranges), "float-quantized", layers)


@dataclass(frozen=True)
class Fp8OfModelOpt(OfFloats, OfModelOpt):
    """ModelOpt's `FP8`, `FP8_PER_CHANNEL_PER_TOKEN` and `fp8_pb_wo`.

    `FP8` also has scales of activations, which no weights tell: it only takes codes, and what loads
    it must find those as they come.
    """

    kind: str

    fields: ClassVar[tuple[Field, ...]] = (CODES, SCALE)
    group = 0

    @property
    def algorithm(self) -> str:
        """What ModelOpt calls it."""
        return _MODELOPT[self.kind]

    def grid(self, shape: tuple[int, ...]) -> ScaleGrid:
        return grid_of(shape, self.kind, _BLOCK)

    def untold(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
        return _untold(shapes, self.kind, _BLOCK)

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

    def grid(self, shape: tuple[int, ...]) -> ScaleGrid:
        return grid_of(shape, "tensor", _BLOCK)

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
    from anamnesis.schemes.fp8 import encode  # only here: readers encode nothing

    is_ct = flavour == "compressed-tensors"
    if kind not in ("block", "channel", "tensor"):
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
        codes_of = None if kind == "tensor" else encode.Fp8OfModelOpt(kind)
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
    codes = encode.Fp8(kind, scaling, format, block_size)
    return Encoding(spelt(name, settings, SETTINGS), layout, codes)
