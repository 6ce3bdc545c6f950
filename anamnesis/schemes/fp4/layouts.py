"""How each producer stores 4-bit floats: what repacking turns one into another by.

A layout is data: which format its numbers mean, what its tensors are called, and how codes, scales
and the second scale become them. The codes of one are those of all, and so are the scales; only the
second scale of NVFP4 may be another number for the same product (see `match`). Code 8 stays code 8,
which ModelOpt, DeepSeek and ggml read as +0 and the others as -0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Repack, RepackOnly
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.fp4.formats import FORMATS
from anamnesis.schemes.fp4.neutral import Fp4Codes, nibbles_swapped, of_weight, to_ggml
from anamnesis.schemes.fp4.second_scale import Match, match
from anamnesis.schemes.parts.tiles import tiled
from anamnesis.schemes.parts.views import constant, forbidding, padded, retyped
from anamnesis.schemes.says.comfy import MARKER

__all__ = ["LAYOUTS", "Fp4Layout", "Fp4Repack", "repack"]

_F32 = DTYPES["F32"]


class _Fitted(NamedTuple):
    """Codes in the format of a layout.

    Attributes
    ----------
    found : Fp4Codes
    scales : StoredTensor
        Checked: a byte that the layout reads otherwise stops the run.
    second : bytes
        One float32, or one for each matrix; empty where the layout has none.
    """

    found: Fp4Codes
    scales: StoredTensor
    second: bytes

    @property
    def module(self) -> str:
        """The name of the weight without its last word, but with the dot."""
        name = self.found.name_as_stored
        return name.removesuffix("weight") if f".{name}".endswith(".weight") else f"{name}."

    def second_part(self, name: str, lone: tuple[int, ...]) -> list[StoredTensor]:
        """Return the second scale, of this shape if it is one for all; or nothing."""
        n = len(self.second) // 4
        if not n:
            return []
        shape = lone if n == 1 else (n,)
        return [constant(Part(name, _F32, shape), self.second, self.found.codes)]


@dataclass(frozen=True, slots=True)
class Fp4Layout:
    """One producer's way to store what `format` means.

    Attributes
    ----------
    format : str
        A key of `FORMATS`.
    group : int
        How many codes share a scale.
    write : function
        Returns the tensors of codes that are fitted.
    """

    format: str
    group: int
    write: Callable[[_Fitted], Sequence[StoredTensor]]


def _compressed_tensors(fitted: _Fitted) -> list[StoredTensor]:
    codes, scales, name = fitted.found.codes, fitted.scales, fitted.module + "weight"
    kind = "F8_E4M3" if fitted.found.format.kind == "NVFP4" else "U8"
    return [
        retyped(codes, f"{name}_packed", "U8", codes.shape),
        retyped(scales, f"{name}_scale", kind, scales.shape),
        *fitted.second_part(f"{name}_global_scale", (1,)),
    ]


def _modelopt(fitted: _Fitted) -> list[StoredTensor]:
    codes, scales, name = fitted.found.codes, fitted.scales, fitted.found.name_as_stored
    between = "" if fitted.module != f"{name}." else "_weight"  # of stacks of experts
    kind = "F8_E4M3" if fitted.found.format.kind == "NVFP4" else "U8"
    return [
        retyped(codes, name, "U8", codes.shape),
        retyped(scales, f"{name}{between}_scale", kind, scales.shape),
        *fitted.second_part(f"{name}{between}_scale_2", ()),
    ]


def _mlx(fitted: _Fitted) -> list[StoredTensor]:
    codes, scales, module = fitted.found.codes, fitted.scales, fitted.module
    words = (*codes.shape[:-1], codes.shape[-1] // 4)
    return [
        retyped(codes, f"{module}weight", "U32", words),
        retyped(scales, f"{module}scales", "U8", scales.shape),
        *fitted.second_part(f"{module}global_scale", ()),
    ]


def _comfy(fitted: _Fitted) -> list[StoredTensor]:
    """Rows and columns padded to multiples of 16, scales in tiles, the high nibble first."""
    found, name = fitted.found, fitted.module + "weight"
    if len(found.shape) != 2:
        raise _refused(found, f"ComfyUI has matrices, not {list(found.shape)}")
    rows, cols = found.shape
    tall, wide = (-(-n // 16) * 16 for n in (rows, cols))
    codes = nibbles_swapped(padded(found.codes, tall, wide // 2))
    scales = tiled(fitted.scales)
    told = {"format": "nvfp4", "group_size": 16, "orig_dtype": "torch.bfloat16"}
    marker = json.dumps({**told, "orig_shape": [rows, cols]}).encode()
    return [
        retyped(codes, name, "U8", codes.shape),
        retyped(scales, f"{name}_scale", "F8_E4M3", scales.shape),
        *fitted.second_part(f"{name}_scale_2", ()),
        constant(Part(fitted.module + MARKER, DTYPES["U8"], (len(marker),)), marker, found.codes),
    ]


def _gpt_oss(fitted: _Fitted) -> list[StoredTensor]:
    """Stacks of experts, which transformers has the other way round: [experts, in, out].

    A stack that is no `weight` is as its model has it, which OpenAI's own names say.
    """
    found = fitted.found
    if len(found.shape) != 3:
        raise _refused(found, f"gpt-oss has stacks of experts, not {list(found.shape)}")
    stored = found.name_as_stored
    name = stored.removesuffix(".weight")
    join = "." if name == stored else "_"
    blocks = (*fitted.scales.shape, 16)
    return [
        retyped(found.codes, f"{name}{join}blocks", "U8", blocks),
        retyped(fitted.scales, f"{name}{join}scales", "U8", fitted.scales.shape),
    ]


def _gguf(fitted: _Fitted) -> list[StoredTensor]:
    found = fitted.found._replace(name=fitted.found.name_as_stored)
    blocks = to_ggml(found, fitted.scales)
    return [blocks, *fitted.second_part(f"{fitted.module}scale", (1,))]


# By the names of the encodings.
LAYOUTS = {
    "nvfp4": Fp4Layout("ct-nvfp4", 16, _compressed_tensors),
    "nvfp4-modelopt": Fp4Layout("modelopt-nvfp4", 16, _modelopt),
    "comfy-nvfp4": Fp4Layout("comfy-nvfp4", 16, _comfy),
    "mlx-nvfp4": Fp4Layout("mlx-nvfp4", 16, _mlx),
    "gguf-nvfp4": Fp4Layout("gguf-nvfp4", 16, _gguf),
    "mxfp4": Fp4Layout("mxfp4", 32, _compressed_tensors),
    "mxfp4-modelopt": Fp4Layout("mxfp4", 32, _modelopt),
    "mlx-mxfp4": Fp4Layout("mxfp4", 32, _mlx),
    "gptoss-mxfp4": Fp4Layout("gpt-oss-mxfp4", 32, _gpt_oss),
    "gguf-mxfp4": Fp4Layout("gguf-mxfp4", 32, _gguf),
}


def repack(weight: Weight, encoding: Encoding, layout: Fp4Layout) -> Repack | None:
    """Return a weight's codes in a layout; None if they are of another kind.

    Raises
    ------
    UnsupportedError
        If the layout cannot hold them, or no second scale gives the same products.
    """
    found = of_weight(weight)
    format = FORMATS[layout.format]
    if found is None or found.format.kind != format.kind:
        return None
    if found.group != layout.group:
        n = layout.group
        raise _refused(found, f"{found.group} codes share a scale, and {n} in {encoding.id}")
    if found.shape[-1] % found.group and layout.format != "comfy-nvfp4":
        raise _refused(found, f"rows of {found.shape[-1]:,} codes end within a group")
    matches = [_matched(found, second, layout) for second in _seconds(found)]
    differing = bytes(sorted({byte for one in matches for byte in one.differing}))
    why = f"which {encoding.id} reads as another scale than {found.format.words}"
    scales = forbidding(found.scales, differing, why)
    second = b"".join(one.second for one in matches)
    if len(second) not in (0, 4 * len(matches)):  # some need one, so that all are given one
        matches = [_matched(found, second, layout, always=True) for second in _seconds(found)]
        second = b"".join(one.second for one in matches)
    parts = layout.write(_Fitted(found, scales, second))
    return Repack((encoding,), tuple(parts), all(one.is_exact for one in matches))


def _seconds(found: Fp4Codes) -> list[bytes]:
    """Return each second scale; one empty one where there is none."""
    if found.second is None or not found.second.n_elements:
        return [b""]
    raw = found.second.read()
    return [raw[i : i + 4] for i in range(0, len(raw), 4)]


def _matched(found: Fp4Codes, second: bytes, layout: Fp4Layout, *, always: bool = False) -> Match:
    format = FORMATS[layout.format]
    one = match(found.format, second, format, always)
    if one is None:
        raise _refused(
            found, f"no second scale of {format.words} gives the values of {found.format.words}"
        )
    return one


def _refused(found: Fp4Codes, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{found.codes.source.name}: {found.name} {list(found.shape)} cannot be repacked: {why}; "
        "exclude this weight, so that it is written as values"
    )


@dataclass(frozen=True)
class Fp4Repack(RepackOnly):
    """A layout of 4-bit floats that only takes codes which are there already.

    Attributes
    ----------
    layout : str
        A key of `LAYOUTS`.
    """

    layout: str

    @property
    def id(self) -> str:
        """That of the layout."""
        return self.layout

    def repack(self, weight: Weight) -> Repack | None:
        """Return the codes of 4-bit floats in this layout."""
        return repack(weight, self, LAYOUTS[self.layout])
