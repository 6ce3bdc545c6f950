"""quanto's qint4 and qint2.

    weight._data._data U8 [scales / (8 / bits), size of a group], of whose bytes the lowest bits
        hold the first rows; [scales, size] are a view of the weight
    weight._scale, weight._shift F32 | F16 | BF16 [scales, 1]

    result = round(float32(code * scale) - shift)

Its `QBitsDequantizer` does the same in the model's dtype, and so rounds more often; in float32 it
gives these bits.

The shape of the weight is stored nowhere. `QModuleMixin` has groups only in rows of more than 128
columns, of which each has as many of the largest of 128, 96, 64 and 32 columns as there are. What
that leaves open, a bias or the sizes in config.json must settle.
"""

from __future__ import annotations

from math import prod

from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, stored_parts
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.families.integers.checks import check_scale_dtype
from anamnesis.schemes.families.integers.rows import Planes
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.sources.altered import recoded

FIELDS = (
    Field("codes", "{weight}._data._data", ("U8",)),
    *(Field("scales", "{weight}._scale"), Field("shifts", "{weight}._shift")),
)
_SIZES = (128, 96, 64, 32)
_SIGNS = {"F32": 0x80000000, "F16": 0x80008000, "BF16": 0x80008000}

# Layers between the stream of a transformer and something else, as transformers calls them.
_TABLE = json_table(__file__)
_FROM_HIDDEN, _TO_HIDDEN = (
    frozenset(_TABLE[layers].split()) for layers in ("from hidden", "to hidden")
)

_REFERENCE = Rounding(("products", "sums"))


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    name = FIELDS[0].weight_of(codes.name)
    if name is None or not name.endswith(".weight") or len(codes.shape) < 2:
        return None
    found = stored_parts(FIELDS, name, ledger.find)
    if missing(FIELDS, found) or found["shifts"].dtype.kind != "float" or 0 in codes.shape:
        return None
    scale, shift = found["scales"], found["shifts"]
    check_scale_dtype(scale, codes)
    n_scales = scale.n_elements
    if shift.shape != scale.shape or shift.dtype != scale.dtype:
        raise shift.misshapen(f"{scale.describe()}, as of {scale.name},", codes)
    if scale.shape != (n_scales, *([1] * (len(codes.shape) - 1))) or n_scales == 0:
        raise scale.misshapen(f"[scales{', 1' * (len(codes.shape) - 1)}]", codes)
    bits = _bits(codes, scale)
    biases = recoded(shift, _SIGNS[shift.dtype.name])  # what is added
    size = prod(codes.shape[1:])
    shape: tuple[int, ...] = (n_scales, *codes.shape[1:])
    if len(codes.shape) == 2:
        bias = ledger.stored.get(sibling(name, "bias"))
        shape = _shape(codes, name, n_scales, size, bias, facts)
    return IntegerWeight(
        *(name, shape, (codes, scale, biases), "PACKED8", (1, size)),
        biases=biases,
        planes=Planes(bits, in_parts=True),
        matrix=(n_scales, size),
        producer="quanto",
        reference=_REFERENCE,
    )


def _bits(codes: StoredTensor, scale: StoredTensor) -> int:
    n_scales = scale.n_elements
    fitting = [bits for bits in (4, 2) if -(-n_scales * bits // 8) == codes.shape[0]]
    if not fitting:
        raise codes.misshapen(f"{-(-n_scales // 2)} or {-(-n_scales // 4)} rows of bytes", scale)
    if len(fitting) > 1:
        raise codes.unsupported(
            f"{codes} may hold qint4 or qint2: {n_scales} rows take as many bytes in both"
        )
    return fitting[0]


def _shape(
    codes: StoredTensor,
    name: str,
    n_scales: int,
    size: int,
    bias: StoredTensor | None,
    facts: QuantFacts,
) -> tuple[int, int]:
    """Return rows and columns of the weight that `n_scales` groups of `size` columns are."""
    if size not in _SIZES:
        return n_scales, size
    n, sizes, layer = n_scales * size, facts.sizes, name.split(".")[-2:][0]
    by_layer = {(n // n_cols, n_cols) for n_cols in facts.hidden_sizes if layer in _FROM_HIDDEN}
    by_layer |= {(n_rows, n // n_rows) for n_rows in facts.hidden_sizes if layer in _TO_HIDDEN}
    by_sizes = {(n // n_cols, n_cols) for n_cols in sizes}
    if bias is not None and len(bias.shape) == 1:
        by_layer = {shape for shape in by_layer if shape[0] == bias.shape[0]}
        by_sizes = {shape for shape in by_sizes if shape[0] == bias.shape[0]}
    else:
        by_sizes = {shape for shape in by_sizes if shape[0] in sizes}
    for given in (by_layer, by_layer & by_sizes, by_sizes):
        fitting = [shape for shape in given if prod(shape) == n and _group(shape[1]) == size]
        if len(fitting) == 1:
            return fitting[0]
    raise codes.unsupported(
        f"{name} is stored as {n_scales:,} groups of {size} values and no shape: what config.json "
        "says of sizes does not settle it"
    )


def _group(cols: int) -> int:
    """Return how many of so many columns share a scale."""
    if cols <= _SIZES[0]:
        return cols
    return next((size for size in _SIZES if cols % size == 0), cols)
