"""INT8 and INT4 as compressed-tensors writes them.

    weight I8 [rows, cols]                         its scales [rows, 1]
    weight_packed I32 [rows, cols / 8]             its scales [rows, groups]
    zero points I32 [rows / 8, groups], of asymmetric INT4 only

They are its min-max calibration and compression, as blockwise.py has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.blockwise_encoding import BlockwiseEncoding
from anamnesis.schemes.core.encoding import Extent, Repack, RepackOnly
from anamnesis.schemes.core.long_rows import Tile
from anamnesis.schemes.core.weight import Band, Weight
from anamnesis.schemes.says.compressed_tensors import (
    config_of,
    input_arguments,
    pack_quantized,
    weight_arguments,
)

if TYPE_CHECKING:
    from anamnesis.schemes.integers.words_layouts import Words

__all__ = ["Int4", "Int8", "Int8Packed"]


def _repack(words: Words, encoding: Int4 | Int8Packed) -> Repack:
    """Return words as an encoding has them, with their own groups."""
    from anamnesis.schemes.integers.words_layouts import to_compressed_tensors

    own = replace(encoding, is_act_order=words.listed is not None)
    sizes = words.group_sizes(encoding.group_size, None)
    parts = tuple(to_compressed_tensors(words))
    return Repack(tuple(replace(own, group_size=n) for n in sizes), parts)


def _words_config(
    bits: int, plain: Sequence[str], encoding: Int4 | Int8Packed, **more: Any
) -> dict[str, Any]:
    if encoding.is_act_order:
        more["actorder"] = "group"
    return pack_quantized(bits, plain, encoding.group_size, **more)


@dataclass(frozen=True)
class Int8(BlockwiseEncoding):
    """8-bit integers with a scale for each row, as compressed-tensors' `int-quantized` has them."""

    code: ClassVar[str] = "INT8"

    @property
    def id(self) -> str:
        """`int8`."""
        return "int8"

    @property
    def rule(self) -> str:
        """By division."""
        return "divided"

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return a row."""
        return 1, shape[1]

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the codes and a scale for each row."""
        scales = Part(f"{name}_scale", self.scale_dtype, (shape[0], 1))
        return Part(name, DTYPES["I8"], shape), scales

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return compressed-tensors' config of W8A8: activations are quantised as they come."""
        weights, inputs = weight_arguments(8, "int", "channel"), input_arguments("int", "token")
        return config_of(weights, inputs, "int-quantized", plain)

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and scales as they are read."""
        from anamnesis.schemes.integers.weight import IntegerWeight

        return IntegerWeight(name, shape, parts, "INT8", (1, shape[1]))


@dataclass(frozen=True)
class Int4(BlockwiseEncoding):
    """4-bit integers in words, as compressed-tensors' `pack-quantized` has them.

    Attributes
    ----------
    group_size : int or None
        Columns that share a scale; None for all of a row.
    is_symmetric : bool
        Whether there are no zero points.
    is_act_order : bool
        Whether groups are no runs of columns; only codes that are there already have that.
    """

    group_size: int | None = 128
    is_symmetric: bool = True
    is_act_order: bool = False

    code: ClassVar[str] = "INT4"

    def __post_init__(self) -> None:
        """Check the group size.

        Raises
        ------
        ValueError
            If it is not positive.
        """
        if self.group_size is not None and self.group_size < 1:
            raise ValueError(f"group_size must be positive; got {self.group_size}")

    @property
    def id(self) -> str:
        """For instance `int4-128`, `int4-channel`, `int4-32-asym`."""
        more = ("" if self.is_symmetric else "-asym") + ("-actorder" if self.is_act_order else "")
        return f"int4-{self.group_size or 'channel'}{more}"

    @property
    def rule(self) -> str:
        """By division, of the largest magnitude or of the range."""
        return "divided" if self.is_symmetric else "asymmetric"

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return a group, or a row."""
        return 1, min(self.group_size or shape[1], shape[1])

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return whole rows, as many as a word of zero points is for."""
        return (1 if self.is_symmetric else 8) * shape[1]

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave also what compressed-tensors cannot quantise: a row that is not of whole groups."""
        why = BlockwiseEncoding.refuses(self, name, shape, dtype)
        if why is None and self.group_size and shape[1] % self.group_size:
            return f"rows are not in whole groups of {self.group_size}"
        return why

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return words of codes, scales, words of zero points if there are any, and the shape."""
        rows, cols = shape
        groups = self.grid(shape)[1]
        packed = [Part(f"{name}_packed", DTYPES["I32"], (rows, -(-cols // 8)))]
        packed += [Part(f"{name}_scale", self.scale_dtype, (rows, groups))]
        if not self.is_symmetric:
            packed += [Part(f"{name}_zero_point", DTYPES["I32"], (-(-rows // 8), groups))]
        return (*packed, Part(f"{name}_shape", DTYPES["I64"], (2,)))

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the shape."""
        place = len(self.parts(name, shape)) - 1
        return {place: b"".join(n.to_bytes(8, "little") for n in shape)}

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return words, scales and zero points of some rows, and nothing of the shape."""
        row_bytes = 4 * -(-shape[1] // 8)
        if isinstance(band, Tile):
            tile = band.place(shape, self.grain(shape) // shape[1])
            begin = tile.top * row_bytes + tile.left // 2
            found = [Extent(begin, 4 * -(-tile.cols // 8), row_bytes, tile.rows)]
            found += [self._tile_scales(shape, tile, 1, self.scale_dtype)]
            if not self.is_symmetric:
                found += [self._tile_scales(shape, tile, 8, DTYPES["I32"])]
            return (*found, Extent(0, 0))
        first, last = band.start // shape[1], band.stop // shape[1]
        found = [Extent(first * row_bytes, (last - first) * row_bytes)]
        found += [self._scale_extent(shape, band, 1, self.scale_dtype.n_bytes(1))]
        if not self.is_symmetric:
            found += [self._scale_extent(shape, band, 8, 4)]
        return (*found, Extent(0, 0))

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return compressed-tensors' config of W4A16."""
        return _words_config(4, plain, self, symmetric=self.is_symmetric)

    def repack(self, weight: Weight) -> Repack | None:
        """Return the words of 4-bit integers as compressed-tensors stores them."""
        return self.repacks([weight]).get(weight.name)

    def repacks(self, weights: Iterable[Weight]) -> dict[str, Repack]:
        """Return the same of several, without zero points if those of all are constant.

        Programs load them then. They stay if zero points are asked for.
        """
        from anamnesis.schemes.integers.words_layouts import all_symmetric, of_weights

        found = of_weights(weights)
        if self.is_symmetric:
            found = all_symmetric(found)
        return {
            name: _repack(words, replace(self, is_symmetric=words.is_symmetric))
            for name, words in found.items()
        }

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return words, scales and zero points as they are read."""
        from anamnesis.schemes.integers.weight import IntegerWeight

        zeros = None if self.is_symmetric else parts[2]
        return IntegerWeight(name, shape, parts, "PACKED4", (1, self.block(shape)[1]), zeros, 8)


@dataclass(frozen=True)
class Int8Packed(RepackOnly):
    """8-bit integers in words, in groups, as compressed-tensors' `pack-quantized` has them.

    Attributes
    ----------
    group_size : int or None
        Columns that share a scale; None for all of a row.
    is_act_order : bool
        Whether groups are no runs of columns.
    """

    group_size: int | None = 32
    is_act_order: bool = False

    @property
    def id(self) -> str:
        """For instance `int8-packed-32`."""
        more = "-actorder" if self.is_act_order else ""
        return f"int8-packed-{self.group_size or 'channel'}{more}"

    def repack(self, weight: Weight) -> Repack | None:
        """Return the codes of GPTQ, or of Q8_0, whose scales are for 32 each.

        Raises
        ------
        UnsupportedError
            If zero points are not all 128.
        """
        from anamnesis.schemes.integers.words_layouts import all_symmetric, of_weights

        for words in all_symmetric(of_weights([weight], bits=8)).values():
            if not words.is_symmetric:
                raise words.refused(f"its zero points are not all 128, and {self.id} has none")
            return _repack(words, self)
        return None

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return compressed-tensors' config of W8A16."""
        return _words_config(8, list(plain), self)
