"""4-bit integers with zero points, repacked: GPTQ, AWQ and compressed-tensors' `pack-quantized`.

All three have codes of 0 to 15, less a zero point, times a scale: `order.py` says
how their words lie. Zero points are in words of eight out features: [groups, out / 8] of GPTQ (less
1, in its first version) and AWQ (in its order), [out / 8, groups] of compressed-tensors, where 8
stands for all that are not stored. Scales are [groups, out], or [out, groups]. ggml's Q4_0 has the
symmetric codes of compressed-tensors, in groups of 32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Layers, Repack, RepackOnly
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.ggml.read import GgmlWeight
from anamnesis.schemes.ggml.repack import bytes_of_q8_0, rows_of_q4_0
from anamnesis.schemes.integers.layouts import gptq
from anamnesis.schemes.integers.order import (
    across_of_columns,
    columns_of_across,
    in_awq_order,
    in_plain_order,
    less_one,
    plus_one,
    rows_of_across,
    transposed,
)
from anamnesis.schemes.integers.weight import IntegerWeight
from anamnesis.schemes.integers.words import PackedWeight
from anamnesis.schemes.parts.views import constant, made_of, repeated, retyped

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "PackedRepack",
    "Words",
    "all_symmetric",
    "of_weights",
    "repacks",
    "to_awq",
    "to_compressed_tensors",
    "to_gptq",
]

_I32 = DTYPES["I32"]
_HALF = 8  # the zero point of symmetric codes
_PIECE = 1 << 20  # bytes of zero points that are read at once


class Words(NamedTuple):
    """A weight's codes, scales and zero points, as they are stored.

    Attributes
    ----------
    name : str
    shape : tuple of int
        [out, in]; more dimensions of stacked experts.
    kind : str
        `rows`, `columns` or `across`.
    codes, scales : StoredTensor
    zeros : StoredTensor or None
        None where all are 8.
    less_one : bool
        Whether zero points are stored less 1.
    listed : StoredTensor or None
        The group of each in feature, where groups are no runs.
    group : int
        In features that share a scale.
    is_symmetric : bool
        Whether zero points say nothing: there are none, or `all_symmetric` found them constant.
    bits : int
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    codes: StoredTensor
    scales: StoredTensor
    zeros: StoredTensor | None
    less_one: bool
    listed: StoredTensor | None
    group: int
    is_symmetric: bool
    bits: int = 4

    @property
    def module(self) -> str:
        """The name without `weight`."""
        return self.name.removesuffix("weight")

    @property
    def n_groups(self) -> int:
        """Scales of an out feature."""
        return self.scales.shape[-1] if self.kind == "rows" else self.scales.shape[0]

    def group_sizes(self, asked: int | None, all_of_a_row: int | None) -> list[Any]:
        """Return its group size, and what else says the same of it: of one group, any larger."""
        if self.n_groups > 1:
            return [self.group]
        larger = [asked] if asked is not None and asked > self.group else []
        return [self.group, *larger, all_of_a_row]

    def refused(self, why: str) -> UnsupportedError:
        """Return why it cannot be repacked."""
        return UnsupportedError(
            f"{self.codes.source.name}: {self.name} {list(self.shape)} cannot be repacked: {why};"
            " exclude this weight, so that it is written as values"
        )


def of_weight(weight: Weight, bits: int = 4) -> Words | None:
    """Return a weight's words; None if it has none of so many bits.

    Of other bits than 4, only words in GPTQ's columns and the blocks of Q8_0 are told of.
    """
    if isinstance(weight, IntegerWeight):
        return _of_rows(weight) if bits == 4 else None
    if isinstance(weight, GgmlWeight):
        return _of_blocks(weight, bits)
    if not isinstance(weight, PackedWeight) or weight.packing.bits != bits:
        return None
    if bits != 4 and (weight.producer or weight.packing != gptq.PACKINGS.get(bits)):
        return None
    codes, zeros, scales = weight.parts[:3]
    listed = weight.parts[3] if len(weight.parts) > 3 else None
    size = weight.group_size
    if listed is not None:
        _check_groups(listed, scales.shape[0])
    if listed is not None and size is not None and _is_runs(listed, size):
        listed = None
    kind = "across" if weight.packing.along_rows else "columns"
    group = size or -(-weight.shape[1] // max(scales.shape[0], 1))
    return Words(
        *(weight.name, weight.shape, kind, codes, scales, zeros, weight.zeros_less_one),
        *(listed, group, False, bits),
    )


def of_weights(weights: Iterable[Weight], bits: int = 4) -> dict[str, Words]:
    """Return the words of those weights that have some, by their names."""
    found = ((weight.name, of_weight(weight, bits)) for weight in weights)
    return {name: words for name, words in found if words is not None}


def all_symmetric(found: dict[str, Words]) -> dict[str, Words]:
    """Return the same words as symmetric ones, if all zero points of all are the middle code.

    Of all or of none: one config describes them, and programs merge layers of one kind.
    Zero points are read piece by piece, up to the first that differs.
    """
    if not all(map(_is_symmetric, found.values())):
        return found
    return {name: words._replace(is_symmetric=True) for name, words in found.items()}


def _is_symmetric(words: Words) -> bool:
    if words.zeros is None:
        return True
    if words.shape[-2] * words.bits % 32:  # the last word of a group is not full
        return False
    middle = (1 << words.bits - 1) - words.less_one
    word = sum(middle << at for at in range(0, 32, words.bits)).to_bytes(4, "little")
    return all(piece == word * (len(piece) // 4) for piece in _pieces(words.zeros))


def _pieces(stored: StoredTensor) -> Iterator[bytes]:
    for at in range(0, stored.n_bytes, _PIECE):
        yield stored.source.read(stored.offset + at, min(_PIECE, stored.n_bytes - at))


def _of_blocks(weight: GgmlWeight, bits: int) -> Words | None:
    split = {("Q4_0", 4): rows_of_q4_0, ("Q8_0", 8): bytes_of_q8_0}
    parts = split.get((weight.parts[0].dtype.name, bits))
    if parts is None:
        return None
    kept = (weight.name, weight.shape, "rows", *parts(weight))
    return Words(*kept, None, False, None, group=32, is_symmetric=True, bits=bits)


def _of_rows(weight: IntegerWeight) -> Words | None:
    is_ours = weight.kernel in ("PACKED4", "PADDED4") and not weight.producer
    if not is_ours or weight.biases is not None or weight.constant != _HALF:
        return None
    codes, scales = weight.parts[:2]
    group = weight.block[1]
    if weight.groups is not None:
        group = -(-weight.shape[-1] // max(scales.shape[-1], 1))
        _check_groups(weight.groups, scales.shape[-1])
    return Words(
        *(weight.name, weight.shape, "rows", codes, scales, weight.zeros, False),
        *(weight.groups, group, weight.zeros is None),
    )


def _check_groups(listed: StoredTensor, n_groups: int) -> None:
    """Raise ParseError if an index is no group: what is only copied is decoded by nobody."""
    import numpy as np

    told = np.frombuffer(listed.read(), "<i4")
    bad = np.flatnonzero((told < 0) | (told >= n_groups))
    if len(bad):
        at = int(bad[0])
        raise ParseError(
            f"{listed.name}: column {at:,} is in group {int(told[at]):,}, but there are "
            f"{n_groups:,} groups",
            offset=listed.offset + listed.dtype.n_bytes(at),
            source=listed.source.name,
        )


def _is_runs(listed: StoredTensor, size: int) -> bool:
    """Tell whether a g_idx is that of runs, which says nothing."""
    import numpy as np

    told = np.frombuffer(listed.read(), "<i4")
    return bool((told == np.arange(len(told)) // size).all())


# --- compressed-tensors -----------------------------------------------------------------------


def to_compressed_tensors(words: Words) -> list[StoredTensor]:
    """Return `weight_packed`, `weight_scale`, `weight_zero_point`, `weight_shape`, `weight_g_idx`.

    Raises
    ------
    UnsupportedError
        If rows end within a word.
    """
    name, codes, scales = words.name, words.codes, words.scales
    zeros = None if words.is_symmetric else words.zeros
    if words.kind != "rows":
        in_word = 32 // words.bits
        if any(n % in_word for n in words.shape):
            raise words.refused(f"in and out features must be multiples of {in_word}")
        codes = transposed(codes) if words.kind == "columns" else rows_of_across(codes)
        scales = transposed(scales)
        zeros = None if zeros is None else transposed(_plain_zeros(words))
    shape = struct.pack(f"<{len(words.shape)}q", *words.shape)
    made = [
        retyped(codes, f"{name}_packed", "I32", codes.shape),
        scales._replace(name=f"{name}_scale"),
    ]
    if zeros is not None:
        made.append(retyped(zeros, f"{name}_zero_point", "I32", zeros.shape))
    part = Part(f"{name}_shape", DTYPES["I64"], (len(words.shape),))
    made.append(constant(part, shape, words.codes))
    if words.listed is not None:
        made.append(retyped(words.listed, f"{name}_g_idx", "I32", words.listed.shape))
    return made


def _plain_zeros(words: Words) -> StoredTensor:
    """Return zero points as they are, words [groups, out / 8] of out features in order."""
    zeros, n_out = words.zeros, words.shape[0]
    if zeros is None:
        part = Part(f"{words.name}_zero_point", _I32, (words.n_groups, n_out // 8))
        return repeated(part, bytes([17 * _HALF]) * 4, words.codes)
    if words.kind == "rows":
        return transposed(zeros)
    if words.kind == "across":
        zeros = in_plain_order(zeros)
    return plus_one(zeros) if words.less_one else zeros


# --- GPTQ and AWQ -----------------------------------------------------------------------------


def to_gptq(words: Words) -> list[StoredTensor]:
    """Return `qweight`, `qzeros` less 1, `scales` and `g_idx`.

    Raises
    ------
    UnsupportedError
        If GPTQ cannot hold it.
    """
    _check(words, "GPTQ")
    codes, zeros, n_in = words.codes, words.zeros, words.shape[1]
    if words.kind != "columns":
        codes = transposed(codes) if words.kind == "rows" else columns_of_across(codes)
    if zeros is None or not words.less_one:
        zeros = less_one(_plain_zeros(words))
    listed = words.listed or _runs(words)
    return [
        retyped(codes, f"{words.module}qweight", "I32", codes.shape),
        retyped(zeros, f"{words.module}qzeros", "I32", zeros.shape),
        _scales(words),
        retyped(listed, f"{words.module}g_idx", "I32", (n_in,)),
    ]


def to_awq(words: Words) -> list[StoredTensor]:
    """Return `qweight`, `qzeros` and `scales` of the GEMM layout.

    Raises
    ------
    UnsupportedError
        If AWQ cannot hold it.
    """
    _check(words, "AWQ")
    if words.listed is not None:
        raise words.refused("its groups are in act-order, which AWQ has not")
    codes, zeros = words.codes, words.zeros
    if words.kind != "across":
        codes = across_of_columns(transposed(codes) if words.kind == "rows" else codes)
    if zeros is None or words.kind != "across":
        zeros = in_awq_order(_plain_zeros(words))
    return [
        retyped(codes, f"{words.module}qweight", "I32", codes.shape),
        retyped(zeros, f"{words.module}qzeros", "I32", zeros.shape),
        _scales(words),
    ]


def _check(words: Words, whose: str) -> None:
    """Refuse what neither of them has."""
    if not f".{words.name}".endswith(".weight"):
        raise words.refused(f"it is not called a weight, and {whose} names parts after modules")
    if len(words.shape) != 2:
        raise words.refused(f"{whose} has matrices only")
    if words.shape[0] % 8 or words.shape[1] % 8:
        raise words.refused(f"in and out features must be multiples of 8 in {whose}")
    if words.scales.dtype.name != "F16":
        raise words.refused(f"its scales are {words.scales.dtype}, and F16 in {whose}")


def _scales(words: Words) -> StoredTensor:
    scales = transposed(words.scales) if words.kind == "rows" else words.scales
    return scales._replace(name=f"{words.module}scales")


def _runs(words: Words) -> StoredTensor:
    """Return the group of each in feature, where groups are runs."""
    group, n_in = words.group, words.shape[1]

    def told(units: range) -> NDArray[Any]:
        import numpy as np

        return (np.arange(units.start, units.stop) // group).astype("<i4")

    return made_of(Part("", _I32, (n_in,)), [], n_in, told, words.codes.source)


@dataclass(frozen=True)
class PackedRepack(RepackOnly):
    """GPTQ's or AWQ's layout of codes that are there already, with settings of any kind.

    Attributes
    ----------
    layout : str
        `gptq-4bit`, `gptq-8bit` or `awq-4bit`.
    group_size : int
        In features that share a scale; -1 for all.
    is_symmetric : bool
        Whether all zero points are 8.
    is_act_order : bool
        Whether groups are no runs.
    """

    layout: str
    group_size: int
    is_symmetric: bool
    is_act_order: bool

    @property
    def id(self) -> str:
        """For instance `gptq-4bit`, `gptq-4bit-32-asym`, `awq-4bit-64`: those of the encoders."""
        size = {128: "", -1: "-channel"}.get(self.group_size, f"-{self.group_size}")
        is_gptq = self.layout.startswith("gptq")
        more = "-asym" if is_gptq and not self.is_symmetric else ""
        return self.layout + size + more + ("-actorder" if self.is_act_order else "")

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return what the encoder says, with these settings."""
        from anamnesis.schemes.integers.words_encode import Awq, Gptq

        if self.layout.startswith("awq"):
            return {**Awq().declare(plain), "group_size": self.group_size}
        return {
            **Gptq(bits=_bits_of(self.layout)).declare(plain),
            "group_size": self.group_size,
            "desc_act": self.is_act_order,
            "sym": self.is_symmetric,
        }

    def declare_with(self, layers: Layers) -> dict[str, Any]:
        """Return the same with the layers that transformers makes quantised ones of."""
        from anamnesis.schemes.integers.words_encode import quantised_layers

        more = {} if self.layout.startswith("awq") else quantised_layers(layers)
        return {**self.declare(layers.plain), **more}


def _bits_of(layout: str) -> int:
    return int(layout.partition("-")[2].removesuffix("bit"))


def repacks(weights: Iterable[Weight], layout: str, group_size: int) -> dict[str, Repack]:
    """Return the words of weights in GPTQ's or AWQ's layout, by their names; of these bits alone.

    Parameters
    ----------
    weights : iterable of Weight
    layout : str
        `gptq-4bit` or `awq-4bit`; `gptq-8bit` and `gptq-2bit`, which take what is in it already.
    group_size : int
        What was asked for, which says of a weight of one group as much as its own does.

    Raises
    ------
    UnsupportedError
        If the layout cannot hold them.
    """
    bits = _bits_of(layout)
    found = of_weights(weights, bits)
    if bits != 4:  # these stay as they are
        found = {name: words for name, words in found.items() if words.less_one}
    return {
        name: _repack(words, layout, group_size) for name, words in all_symmetric(found).items()
    }


def _repack(words: Words, layout: str, group_size: int) -> Repack:
    parts = (to_gptq if layout.startswith("gptq") else to_awq)(words)
    settings = (words.is_symmetric, words.listed is not None)
    sizes = words.group_sizes(group_size, -1)
    return Repack(tuple(PackedRepack(layout, n, *settings) for n in sizes), tuple(parts))
