"""What all layouts of 8-bit floats have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, ClassVar

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.codes import Out
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Layout, Moves, Repack, Shapes, each_moved
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.fp8.moving import scales_as
from anamnesis.schemes.families.fp8.of_fp4 import as_eights
from anamnesis.schemes.families.fp8.weight import Fp8Weight
from anamnesis.schemes.views.grid import Block, ScaleGrid, resolve
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.views import completed

CODES = Field("codes", "{weight}")
SCALE = Field("scales", "{weight}_scale")
POWERS = ("U8", "F8_E8M0")


class OfFloats(Layout):
    """Codes of a byte and scales, under any names."""

    takes = Floats
    element = "F8_E4M3"
    scale_dtypes: ClassVar[tuple[str, ...]] = ("F32",)

    kind: str  # `block`, `channel` or `tensor`
    block_size: Block

    def grid(self, shape: tuple[int, ...]) -> ScaleGrid:
        """Return where scales are: one for each block or row of each matrix, or one for all."""
        if self.kind == "tensor":
            n = prod(shape)
            return ScaleGrid(self.kind, 1, 1, n, 1, max(n, 1))
        (rows, cols), (tall, wide) = shape[-2:], self.block_size
        size = (1, cols) if self.kind == "channel" else (min(tall, rows), min(wide, cols))
        return ScaleGrid(self.kind, prod(shape[:-2]), rows, cols, *size)

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
        made = [one._replace(**part._asdict()) for one, part in moved]
        whole = completed(made, self.beside(view.name, view.shape))
        return Repack((encoding,), whole, is_cast=is_cast)

    def arranged(self, scales: StoredTensor) -> StoredTensor:
        """Return scales, which are in the order of blocks, as they are stored."""
        return scales


class OfAnyKind(OfFloats):
    """Scales of blocks, rows or whole weights."""

    def undetermined(self, shapes: Shapes) -> Mapping[str, Any]:
        """Return the size of blocks, if the shapes of codes and scales do not show it."""
        codes, scales = shapes["codes"], shapes["scales"]
        if self.kind != "block" or prod(scales) == 1:
            return {}
        try:
            found = resolve(codes, scales)
        except ValueError:  # several would fit
            found = None
        is_shown = found is not None and found[-2:] == self.grid(codes)[-2:]
        return {} if is_shown else {"weight_block_size": list(self.block_size)}


@dataclass(frozen=True)
class InBlocks(OfAnyKind):
    """Those whose blocks may be of any size."""

    kind: str
    block_size: Block

    @abstractmethod
    def encoding(self, block_size: tuple[int, int]) -> Encoding:
        """Return the encoding of this layout in blocks of a size."""

    def write_all(self, views: Mapping[str, Floats], encoding: Encoding) -> Moves:
        ways = [super().write_all(views, encoding)]
        stuck = [views[name] for name, made in ways[0].items() if not isinstance(made, Repack)]
        stuck = [view for view in stuck if view.element != "E2M1"]  # whose groups are no blocks
        ways += [
            each_moved(views, partial(other.layout.write, encoding=other))
            for other in map(self.encoding, self._sizes_of(stuck))
        ]
        moved = [{name for name, made in way.items() if isinstance(made, Repack)} for way in ways]
        all_moved = set[str]().union(*moved)
        for way, own in zip(ways, moved, strict=True):
            if own == all_moved:
                return {name: (way if name in own else ways[-1])[name] for name in way}
        return {
            name: next((way[name] for way in ways if isinstance(way[name], Repack)), ways[-1][name])
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
