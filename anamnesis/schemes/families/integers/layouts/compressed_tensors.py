"""compressed-tensors' integers: `pack-quantized` of 1 to 8 bits, `int-quantized`.

    weight_packed I32 [..., rows, words]
    weight_scale F32 | F16 | BF16 [..., rows, groups] or [..., rows, 1]
    weight_shape I64 [2], or [3] of stacked experts
    weight_zero_point I32 [..., words of rows, groups], of asymmetric ones
    weight_g_idx I32 [cols], the group of each column where they are in act-order

Codes and zero points are stored plus 2^(bits - 1), which makes no difference to (code - zero).
Since 0.18.0 they are a dense stream of bits; before, a word had as many codes of 3, 5, 6 or 7 bits
as it can hold whole. Names and config are the same: the number of words tells, else the version.

`_dequantize` computes in the scale's dtype, but products with BF16 and F16 scales are exact in
float32, so that the one rounding here gives its bits.

    weight I8 [..., rows, cols]
    weight_scale F32 | F16 | BF16 [rows, 1], which `one_byte.py` reads in all its forms
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import LimitExceeded
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import (
    Beside,
    ExpertsTool,
    Field,
    Layers,
    Moves,
    Repack,
    Shapes,
    each_moved,
    missing,
    stored_parts,
)
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import (
    PACKED_MAX_GROUPS,
    check_scale_dtype,
    group_size,
)
from anamnesis.schemes.families.integers.rows import bits_of, row_bytes, zero_words
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.libraries.libraries import (
    OfCompressedTensors,
    input_arguments,
    weight_arguments,
)
from anamnesis.schemes.views.kinds import Integers, Words, worded

_KERNELS = tuple(name for name in _core.INTEGERS if name.startswith("PA"))
_DENSE_SINCE = (0, 18)


@dataclass(frozen=True)
class IntQuantized(OfCompressedTensors):
    """`int-quantized`: a byte for each code, and a scale for each row."""

    fields = (
        Field("codes", "{weight}", ("I8",)),
        Field("scales", "{weight}_scale"),
        Field("zeros", "{weight}_zero_point", ("I8",), unless="symmetric"),
    )
    takes = Integers

    def write(self, view: Integers, encoding: Encoding) -> Repack | None:
        from anamnesis.schemes.views.integer_casts import by_row

        if len(view.shape) != 2:
            raise view.refused(f"{encoding.id} has matrices only")
        codes, scales, view = by_row(view, 1.0)
        parts = self.moved(view.name, {"codes": codes, "scales": scales})
        return Repack((encoding,), parts, view.is_exact, view.is_cast)

    def declare(self, layers: Layers) -> dict[str, Any]:
        weights, inputs = weight_arguments(8, "int", "channel"), input_arguments("int", "token")
        return self.config(weights, inputs, "int-quantized", layers)

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return IntegerWeight(name, shape, parts, "INT8", (1, shape[1]))


@lru_cache(maxsize=1024)  # a model has many weights, but few shapes
def _is_open(bits: int, n_words: int) -> bool:
    """Return whether codes of other bits may take as many words."""
    in_word = 32 // bits
    return any(
        row_bytes(kernel, cols) == 4 * n_words
        for cols in range((n_words - 1) * in_word + 1, n_words * in_word + 1)
        for kernel in _KERNELS
        if bits_of(kernel) != bits
    )


@dataclass(frozen=True)
class PackQuantized(OfCompressedTensors):
    """`pack-quantized`: words of codes, in groups."""

    bits: int = 4
    group_size: int | None = 128
    is_symmetric: bool = True
    is_act_order: bool = False

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}_packed", ("I32",)),
        Field("scales", "{weight}_scale"),
        Field("zeros", "{weight}_zero_point", ("I32",), unless="symmetric"),
        Field("shape", "{weight}_shape", ("I64", "I32")),
        Field("groups", "{weight}_g_idx", ("I32",), unless="runs of columns"),
    )
    takes = Words

    @property
    def experts_tool(self) -> ExpertsTool | None:  # type: ignore[override]  # of 4 bits alone
        return "llm-compressor" if self.bits == 4 else None

    def beside(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> Beside:
        n = len(shape)
        return [(Part(f"{name}_shape", DTYPES["I64"], (n,)), struct.pack(f"<{n}q", *shape))]

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        zeros = None if self.is_symmetric else parts[2]
        size = min(self.group_size or shape[1], shape[1])
        kernel, half = f"PACKED{self.bits}", 1 << self.bits - 1
        return IntegerWeight(name, shape, parts, kernel, (1, size), zeros, half)

    def view(self, weight: Weight) -> Words | Integers | None:
        return worded(weight, self.bits)

    def write_all(self, views: Mapping[str, Words | Integers], encoding: Encoding) -> Moves:
        from anamnesis.schemes.families.integers.moving import all_symmetric, of_bits

        found, refused = of_bits(self.bits, views)
        if self.bits == 4:
            found = all_symmetric(found) if self.is_symmetric else found
            return {**refused, **each_moved(found, self._moved)}

        def moved(words: Words) -> Repack:
            (words,) = all_symmetric({words.name: words}).values()
            if not words.is_symmetric:
                raise words.refused(f"its zero points are not all 128, and {encoding.id} has none")
            return self._moved(words)

        return {**refused, **each_moved(found, moved)}

    def _moved(self, words: Words) -> Repack:
        from anamnesis.schemes.families.integers.moving import rows
        from anamnesis.schemes.views.views import constant

        ((part, shape),) = self.beside(words.name, words.shape)
        made = constant(part, shape, words.codes)
        parts = self.moved(words.name, {**rows(words), "shape": made})
        is_act_order = words.listed is not None
        own = replace(self, is_symmetric=words.is_symmetric, is_act_order=is_act_order)
        sizes = words.group_sizes(self.group_size, None)
        ways = [_encoding(replace(own, group_size=n)) for n in sizes]
        return Repack(tuple(ways), parts, is_cast=words.is_cast)

    def undetermined(self, shapes: Shapes) -> Mapping[str, Any]:
        return {"bits": self.bits} if _is_open(self.bits, shapes["codes"][-1]) else {}

    def declare(self, layers: Layers) -> dict[str, Any]:
        strategy = "group" if self.group_size else "channel"
        more = {"actorder": "group"} if self.is_act_order else {}
        size, symmetric = self.group_size, self.is_symmetric
        weights = weight_arguments(
            self.bits, "int", strategy, group_size=size, symmetric=symmetric, **more
        )
        return self.config(weights, None, "pack-quantized", layers)


# --- encodings --------------------------------------------------------------------------------

SETTINGS = (
    Setting("group_size", 128, {None: "channel"}, "number", is_always_said=True),
    Setting("is_symmetric", True, {False: "asym"}),
    Setting("is_act_order", False, ids_alone={True: "actorder"}),
    Setting("is_lattice", False, {True: "qat"}),
)


def _encoding(layout: PackQuantized) -> Encoding:
    name = "int4" if layout.bits == 4 else "int8-packed"
    return Encoding(spelt(name, vars(layout), SETTINGS), layout)


def int_quantized() -> Encoding:
    """Return 8-bit integers with a scale for each row."""
    from anamnesis.schemes.families.integers.encode import INT8

    return Encoding("int8", IntQuantized(), INT8)


def pack_quantized(
    group_size: int | None = 128, is_symmetric: bool = True, is_lattice: bool = False
) -> Encoding:
    """Return 4-bit integers in groups."""
    from anamnesis.schemes.families.integers.encode import int4

    if group_size is not None and group_size < 1:
        raise ValueError(f"group_size must be positive; got {group_size}")
    if is_lattice and not (is_symmetric and group_size is not None and group_size <= 1024):
        raise ValueError("qat is for symmetric codes in groups of at most 1,024")
    layout = PackQuantized(4, group_size, is_symmetric)
    name = spelt("int4", vars(layout) | {"is_lattice": is_lattice}, SETTINGS)
    return Encoding(name, layout, int4(group_size, is_symmetric, is_lattice))


def pack_quantized_8bit() -> Encoding:
    """Return 8-bit integers in words, of GPTQ or of Q8_0, which has a scale for each 32."""
    return _encoding(PackQuantized(8, 32))


# --- reading ----------------------------------------------------------------------------------


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    name = PackQuantized.fields[0].weight_of(codes.name)
    if name is None or name.rpartition(".")[2] != "weight" or name in ledger.stored:
        return None
    found = stored_parts(PackQuantized.fields, name, ledger.find)
    if missing(PackQuantized.fields, found):
        return None
    scale, shape = found["scales"], found["shape"]
    zeros, listed = found.get("zeros"), found.get("groups")
    if f"{name}_global_scale" in ledger.stored or len(codes.shape) < 2:
        return None
    check_scale_dtype(scale, codes)
    given = _read_shape(shape, codes)
    kernel = _kernel(codes, given, zeros, scale, facts)
    rows, cols = given[-2:]
    if len(scale.shape) != len(given) or scale.shape[:-1] != given[:-1]:
        raise scale.misshapen(f"[{', '.join(map(str, given[:-1]))}, groups]", codes)
    n_groups = scale.shape[-1]
    if zeros is not None:
        stacked = (*given[:-2], zero_words(kernel, rows), n_groups)
        if zeros.dtype.name != "I32" or zeros.shape != stacked:
            raise zeros.misshapen(f"I32 {list(stacked)}", codes)
    if listed is not None:
        if listed.dtype.name != "I32" or listed.shape != given[-1:] or prod(given[:-2]) != 1:
            raise listed.misshapen(f"I32 [{given[-1]}] beside one matrix", codes)
        if n_groups > PACKED_MAX_GROUPS:
            raise LimitExceeded("PACKED_MAX_GROUPS", f"{codes.name}: {n_groups:,} groups")
    size = cols if listed is not None else group_size(codes, cols, n_groups, facts.group_sizes)
    parts = (codes, scale, shape, *(part for part in (zeros, listed) if part is not None))
    half = 1 << bits_of(kernel) - 1
    return IntegerWeight(name, given, parts, kernel, (1, max(size, 1)), zeros, half, groups=listed)


def _read_shape(shape: StoredTensor, codes: StoredTensor) -> tuple[int, ...]:
    n = len(codes.shape)
    if shape.shape != (n,) or shape.dtype.name not in ("I64", "I32"):
        raise shape.unsupported(f"{shape} must be I64 [{n}]")
    given = struct.unpack(f"<{n}{'q' if shape.dtype.name == 'I64' else 'i'}", shape.read())
    if min(given) < 0 or given[:-1] != codes.shape[:-1] or 0 in given:
        size = " x ".join(map(str, given))
        raise shape.malformed(f"{shape.name}: {size} is no shape of {codes}")
    return given


def _kernel(
    codes: StoredTensor,
    shape: tuple[int, ...],
    zeros: StoredTensor | None,
    scale: StoredTensor,
    facts: QuantFacts,
) -> str:
    """Return the bits and the packing that explain the shapes, and the config where several do."""
    rows, cols = shape[-2:]
    fitting = [k for k in _KERNELS if row_bytes(k, cols) == 4 * codes.shape[-1]]
    if not fitting:
        raise codes.misshapen(f"words of 1 to 8 bits for rows of {cols:,} columns", scale)
    if zeros is not None and len(zeros.shape) == len(shape):
        by_zeros = [k for k in fitting if zero_words(k, rows) == zeros.shape[-2]]
        if not by_zeros:
            raise zeros.misshapen(f"zero points of {rows:,} rows in words", codes)
        fitting = by_zeros
    given = [k for k in fitting if bits_of(k) in facts.bits]
    fitting = given or fitting
    version = _version(facts.version)
    if len({bits_of(k) for k in fitting}) == 1 and len(fitting) > 1 and version is not None:
        wanted = "PACKED" if version >= _DENSE_SINCE else "PADDED"
        fitting = [k for k in fitting if k.startswith(wanted)]
    if len(fitting) > 1:
        padded = {k: ", padded" if k.startswith("PADDED") else "" for k in fitting}
        named = " or ".join(f"{bits_of(k)} bits{more}" for k, more in padded.items())
        raise codes.unsupported(
            f"{codes} holds rows of {cols:,} codes of {named}, which take as many words; "
            "say which with num_bits, and with the version of compressed-tensors, in "
            "quantization_config of config.json"
        )
    return fitting[0]


def _version(given: str | None) -> tuple[int, int] | None:
    major, _, rest = (given or "").partition(".")
    minor = rest.partition(".")[0]
    if not all(n.isascii() and n.isdecimal() and len(n) < 10 for n in (major, minor)):
        return None
    return int(major), int(minor)
