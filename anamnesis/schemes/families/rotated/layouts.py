"""What the parts of ComfyUI's rotated integers are called, and what markers say."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import Field, Repack
from anamnesis.schemes.families.rotated.weight import (
    ROTATIONS,
    LevelsWeight,
    RotatedWeight,
    group_in,
)
from anamnesis.schemes.libraries.libraries import OfComfyUi
from anamnesis.schemes.views.integer_casts import in_float32
from anamnesis.schemes.views.kinds import Rotated
from anamnesis.schemes.views.views import completed, repeated

GROUP = 256  # columns, where nothing else is asked for
SIZE = _core.W4A8_SIZE  # of groups that levels have a scale for, where nothing else is said
SETTINGS = (Setting("group", GROUP, form="number"),)
FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class ComfyRotated(OfComfyUi):
    """What has a scale for each row."""

    group: int = GROUP

    encoding_name: ClassVar[str]
    bits: ClassVar[int]
    takes = Rotated
    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("I8",)),
        Field("scales", "{weight}_scale", FLOATS),
        OfComfyUi.marker,
    )

    def said(self, shape: tuple[int, ...]) -> bytes:
        rotated = {"convrot": True} if self.bits == 8 else {}
        group = {"convrot_groupsize": group_in(shape[-1], self.group)}
        return json.dumps({"format": self.comfy_format, **rotated, **group}).encode()

    def weight(
        self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]
    ) -> RotatedWeight:
        return RotatedWeight(name, shape, parts[:2], self.bits, group_in(shape[-1], self.group))

    def encoding(self) -> Encoding:
        from anamnesis.schemes.families.rotated.encode import RotatedInt4, RotatedInt8

        name = spelt(self.encoding_name, {"group": self.group}, SETTINGS)
        if self.bits == 4:
            return Encoding(name, self, RotatedInt4(self.group))
        codes = RotatedInt8("INT8", "whole", is_fitted=False, dtype=DTYPES["F32"], group=self.group)
        return Encoding(name, self, codes)

    def write(self, view: Rotated, encoding: Encoding) -> Repack | None:
        self.check_matrix(view)
        if view.group != group_in(view.shape[-1], self.group):
            other = replace(self, group=view.group).encoding()
            return other.layout.write(view, other)
        if self.bits < view.bits:
            return None
        codes = view.spread if self.bits == 8 else view.codes
        rows, scales = view.shape[0], in_float32(view.scales)  # a scale for each row
        own = (rows, 1) if self.bits == 8 else (rows,)
        if scales.n_elements == rows:
            scales = scales._replace(shape=own)
        else:
            raw = bytes(scales.source.read(scales.offset, scales.n_bytes))
            scales = repeated(self.fields[1].part(view.name, scales.dtype, own), raw, scales)
        parts = self.moved(view.name, {"codes": codes, "scales": scales})
        whole = completed(parts, self.beside(view.name, view.shape))
        return Repack((encoding,), whole, is_cast=codes is not view.codes)


class ComfyInt8Rotated(ComfyRotated):
    """ComfyUI's `int8_tensorwise`, rotated."""

    comfy_format, encoding_name, bits = "int8_tensorwise", "comfy-int8-convrot", 8


class ComfyInt4Rotated(ComfyRotated):
    """ComfyUI's `convrot_w4a4`."""

    comfy_format, encoding_name, bits = "convrot_w4a4", "comfy-convrot-w4a4", 4


@dataclass(frozen=True)
class ComfyLevels(OfComfyUi):
    """ComfyUI's `asym_w4a8_int8`: levels of 4 or 6 bits that stand for rotated INT8."""

    group: int = GROUP
    bits: int = 4

    takes = LevelsWeight
    comfy_format = "asym_w4a8_int8"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("I8",)),
        Field("row scales", "{weight}_s_channel", FLOATS),
        Field("scales", "{weight}_s_rel", ("F8_E4M3", "U8", "F32")),
        Field("codebook", "{weight}_codebook", FLOATS, unless="levels are even"),
        Field("correction", "{weight}_correction", FLOATS, unless="levels are symmetric"),
        OfComfyUi.marker,
    )

    def said(self, shape: tuple[int, ...]) -> bytes:
        groups = {"group_size": SIZE, "convrot_groupsize": group_in(shape[-1], self.group)}
        return json.dumps({"format": self.comfy_format, **groups}).encode()

    def weight(
        self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]
    ) -> LevelsWeight:
        group, has_book = group_in(shape[-1], self.group), self.bits == 4
        return LevelsWeight(name, shape, parts[: 3 + has_book], self.bits, group, SIZE, has_book)

    def encoding(self) -> Encoding:
        from anamnesis.schemes.families.rotated.encode import RotatedLevels

        name = spelt(f"comfy-convrot-w{self.bits}a8", {"group": self.group}, SETTINGS)
        return Encoding(name, self, RotatedLevels(self.group, self.bits))

    def write(self, view: LevelsWeight, encoding: Encoding) -> Repack | None:
        if (view.bits, view.size) != (self.bits, SIZE) or view.correction is not None:
            return None
        if view.group != group_in(view.shape[-1], self.group):
            other = replace(self, group=view.group).encoding()
            return other.layout.write(view, other)
        parts = [
            part._replace(name=field.named(view.name))
            for field, part in zip(self.fields, view.parts, strict=False)
        ]
        return Repack((encoding,), completed(parts, self.beside(view.name, view.shape)))


def int8(group: int = GROUP) -> Encoding:
    """Return `comfy-int8-convrot`."""
    return ComfyInt8Rotated(_known(group)).encoding()


def int4(group: int = GROUP) -> Encoding:
    """Return `comfy-convrot-w4a4`."""
    return ComfyInt4Rotated(_known(group)).encoding()


def levels(group: int = GROUP, bits: int = 4) -> Encoding:
    """Return `comfy-convrot-w4a8` or `comfy-convrot-w6a8`."""
    return ComfyLevels(_known(group), bits).encoding()


def _known(group: int) -> int:
    if group not in ROTATIONS:
        known = ", ".join(map(str, ROTATIONS))
        raise ValueError(f"group must be one of {known}; got {group}")
    return group
