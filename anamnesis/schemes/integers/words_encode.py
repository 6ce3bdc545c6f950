"""Encodings of rounded integers in GPTQ's and AWQ's layouts, which are [in, out].

    qweight I32  GPTQ: [in / 8, out], words of 8 in features; AWQ: [in, out / 8], words of 8 outputs
    qzeros  I32  [groups, out / 8]; in 8 bits, which GPTQ may have, a word has 4
    scales  F16  [groups, out]
    g_idx   I32  [in], of GPTQ: the group of each

Neither library looks at activations here, which their names promise: these are the codes of plain
rounding, as GPTQModel's `RTN` and AutoAWQ's `pseudo_quantize_tensor` give them, packed by
`TorchLinear.pack_block` and `WQLinear_GEMM.from_linear`.

GPTQModel takes the values of a group for symmetric, and a group without negative ones for one that
begins with 0: then all above 7 / 15 of the largest value (of 8 bits, 127 / 255) have the last code.
A group whose scale is 0 in float32, which takes values of a few units of 2^-149, gets codes of 0.
"""

from __future__ import annotations

import re
import struct
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.core.encoding import Extent, Layers, Repack
from anamnesis.schemes.core.packing import Packing
from anamnesis.schemes.core.weight import Band, Weight
from anamnesis.schemes.integers.layouts import awq, gptq
from anamnesis.schemes.integers.words import PackedWeight
from anamnesis.schemes.says.linear import linear_refusal

__all__ = ["GPTQ_BITS", "Awq", "Gptq", "quantised_layers"]

GPTQ_BITS = (2, 4, 8)  # of those whose codes fill words

_WORD_BITS = 32
_UNIT = 32  # both libraries want whole ones of features
_LINES = 64  # outputs that the kernel turns at once
# A layer of a block that repeats: where these lie, and its name in there; a layer of an expert.
_IN_BLOCK = re.compile(r"(.*?)\.[0-9]+\.(.+)")
_EXPERT = re.compile(r"(.*experts)\.[0-9]+\.")
# Where transformers looks for blocks by itself (`BLOCK_PATTERNS` of optimum's gptq/constants.py).
_KNOWN_BLOCKS = (
    *("transformer.h", "model.decoder.layers", "gpt_neox.layers", "model.layers"),
    *("model.language_model.layers", "h", "decoder.layers", "layers"),
)
# Types of models whose activations AWQ scales by numbers that come from data, and are parameters
# which programs look for (`AWQ_SCALES_MAPPINGS` of transformers' integrations/awq.py).
_SCALED = frozenset(
    {"starcoder2", "falcon", "RefinedWebModel", "mpt", "gptj", "gpt_neox", "gpt_bigcode", "bloom"}
)
_BAND_BYTES = 8 << 20  # of values: pieces of a column are short, and few make long ones


@dataclass(frozen=True)
class _Columns(Packing):
    """What both share.

    Attributes
    ----------
    group_size : int
        In features that share a scale.
    """

    group_size: int = 128

    group_sizes: ClassVar[tuple[int, ...]] = (32, 64, 128, 256, 512, 1024)
    bits: ClassVar[int] = 4

    @property
    def kernel(self) -> str:
        """That of its bits."""
        return f"PACKED{self.bits}"

    @property
    def _in_word(self) -> int:
        return _WORD_BITS // self.bits

    @property
    @abstractmethod
    def method(self) -> str:
        """What the config calls it."""

    @property
    def id(self) -> str:
        """For instance `gptq-4bit`, `awq-4bit-64`."""
        return self._layout + ("" if self.group_size == 128 else f"-{self.group_size}")

    @property
    def _layout(self) -> str:
        return f"{self.method}-{self.bits}bit"

    @property
    def _places(self) -> tuple[int, int, int]:
        return 0, 2, 1

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave all but the matrices of linear layers whose features fill words and groups."""
        return linear_refusal(name, shape, dtype) or self.refuses_features(shape)

    def refuses_features(self, shape: tuple[int, ...]) -> str | None:
        """Return why a matrix does not fill words and groups; None if it does."""
        if shape[0] % _UNIT or shape[1] % _UNIT:
            return f"features are no multiple of {_UNIT}"
        return self._refuses_rows(shape)

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Leave layers outside of the blocks that repeat, as both libraries do.

        A model without any such block has no layers to tell these by.
        """
        outside = [name for name in shapes if not _IN_BLOCK.match(name)]
        return {} if len(outside) == len(shapes) else dict.fromkeys(outside, "in no block")

    def repack(self, weight: Weight) -> Repack | None:
        """Return the words of integers of as many bits in this layout."""
        return self.repacks([weight]).get(weight.name)

    def repacks(self, weights: Iterable[Weight]) -> dict[str, Repack]:
        """Return the same of several; they are symmetric if the zero points of all are constant."""
        from anamnesis.schemes.integers.words_layouts import repacks

        return repacks(weights, self._layout, self.group_size)

    @abstractmethod
    def _codes_shape(self, shape: tuple[int, ...]) -> tuple[int, int]: ...

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return words of codes, words of zero points, and scales."""
        n_groups = shape[1] // self.group_size
        return (
            Part(sibling(name, "qweight"), DTYPES["I32"], self._codes_shape(shape)),
            Part(sibling(name, "qzeros"), DTYPES["I32"], (n_groups, shape[0] // self._in_word)),
            Part(sibling(name, "scales"), DTYPES["F16"], (n_groups, shape[0])),
        )

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return as many whole rows as make pieces of columns worth writing."""
        rows = _BAND_BYTES // (shape[1] * self.dtype.n_bytes(1)) // _LINES * _LINES
        return max(rows, _LINES) * shape[1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return a piece of each line of a part, which has all outputs."""
        first, last = band.start // shape[1], band.stop // shape[1]
        found = []
        for part in _Columns.parts(self, "weight", shape):
            line = part.n_bytes // part.shape[0]
            begin, end = first * line // shape[0], last * line // shape[0]
            if (begin, end) == (0, line):
                found.append(Extent(0, part.n_bytes))
            else:
                found.append(Extent(begin, end - begin, line, part.shape[0]))
        return tuple(found)


@dataclass(frozen=True)
class Gptq(_Columns):
    """GPTQ's layout in its first format, symmetric, as GPTQModel's round-to-nearest saves it.

    Attributes
    ----------
    bits : int
        2, 4 or 8.
    """

    bits: int = 4  # type: ignore[misc]  # of AWQ it is none of the settings

    rule: ClassVar[str] = "mirrored"

    def __post_init__(self) -> None:
        """Check the bits, and what others have.

        Raises
        ------
        ValueError
            If there is no such layout.
        """
        _Columns.__post_init__(self)
        if self.bits not in GPTQ_BITS:
            raise ValueError(
                f"bits must be one of {', '.join(map(str, GPTQ_BITS))}; got {self.bits}"
            )

    @property
    def method(self) -> str:
        """`gptq`."""
        return "gptq"

    def _codes_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return shape[1] // self._in_word, shape[0]

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the same, and the group of each in feature."""
        listed = Part(sibling(name, "g_idx"), DTYPES["I32"], (shape[1],))
        return (*_Columns.parts(self, name, shape), listed)

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the groups."""
        groups = [col // self.group_size for col in range(shape[1])]
        return {3: struct.pack(f"<{len(groups)}i", *groups)}

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return the same, and nothing of the groups."""
        return (*_Columns.extents(self, shape, band), Extent(0, 0))

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return GPTQModel's config; its `dynamic` names the layers that are left as they are.

        Those outside of the blocks that repeat are left anyway.
        """
        repeated = [name for name in plain if any(map(str.isdecimal, name.split(".")[1:-1]))]
        left: dict[str, Any] = {f"-:^{re.escape(name)}$": {} for name in repeated}
        return {
            "quant_method": "gptq",
            "bits": self.bits,
            "group_size": self.group_size,
            "desc_act": False,
            "sym": True,
            "lm_head": False,
            "checkpoint_format": "gptq",
            "pack_dtype": "int32",
            **({"dynamic": left} if left else {}),
        }

    def declare_with(self, layers: Layers) -> dict[str, Any]:
        """Return the same with the layers that transformers makes quantised ones of."""
        return {**self.declare(layers.plain), **quantised_layers(layers)}

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return the parts as they are read."""
        return PackedWeight(name, shape, parts, gptq.PACKINGS[self.bits], True, self.group_size)


@dataclass(frozen=True)
class Awq(_Columns):
    """AWQ's GEMM layout with zero points, as AutoAWQ packs it, whose arithmetic is in half floats.

    A weight with a group whose range is 65504 or more is refused, as are larger values.
    """

    rule: ClassVar[str] = "half"

    @property
    def method(self) -> str:
        """`awq`."""
        return "awq"

    def _codes_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return shape[1], shape[0] // self._in_word

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Leave all of a model whose activations have scales, which no file of weights has."""
        kind = config.get("model_type")
        if kind in _SCALED:
            return dict.fromkeys(shapes, f"AWQ scales activations of {kind}, by what data says")
        return _Columns.leaves(self, shapes, config)

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return AutoAWQ's config, as transformers has it."""
        return {
            "quant_method": "awq",
            "bits": 4,
            "group_size": self.group_size,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": list(plain) or None,
        }

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return the parts as they are read."""
        return PackedWeight(name, shape, parts, awq.PACKING, False, self.group_size)


def quantised_layers(layers: Layers) -> dict[str, Any]:
    """Return the part of GPTQ's config that transformers reads where it does not guess right.

    `modules_in_block_to_quantize` names the layers if not all in the blocks are quantised, since
    transformers and optimum know no `dynamic`; vLLM reads both.
    """
    found = [match for match in map(_IN_BLOCK.fullmatch, layers.quantised) if match]
    left = [match[0] for match in map(_IN_BLOCK.fullmatch, layers.plain) if match]
    config: dict[str, Any] = {}
    blocks = {match[1] for match in found}
    if len(blocks) == 1 and not any(block.startswith(_KNOWN_BLOCKS) for block in blocks):
        config["block_name_to_quantize"] = blocks.pop()
    if found and left:
        named = list(dict.fromkeys(match[2] for match in found))
        if any(name.endswith(tuple(named)) for name in left):
            named = [match[0] for match in found]
        # vLLM asks for the place of all experts.
        places = [m[1] if (m := _EXPERT.match(layer)) else layer for layer in named]
        config["modules_in_block_to_quantize"] = [list(dict.fromkeys(places))]
    return config
