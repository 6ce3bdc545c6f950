"""AMD Quark's integers: 4 bits in words, and 8 bits in groups.

    weight I32, two's complement (int4) or not (uint4), with a scale for
        each group   [cols, rows / 8], weight_scale [groups, rows], as AWQ has them
        each channel [rows, cols / 8], weight_scale [rows]
        all of them  [rows, cols / 8], weight_scale []
    weight I8 [cols, rows], weight_scale [groups, rows]; with other scales a byte of `integers`
    weight_scale F32 | F16 | BF16
    weight_zero_point, packed as the codes are; those of groups and channels along the rows

    result = round((float32(code) - zero) * float32(scale))

Names and shapes do not tell int4 from uint4, nor whether words are in AWQ's order (`pack_method`
"reorder") or from the lowest bits on ("order"): the config does. Stored plus 8, codes and zero
points of two's complement have the same differences.
"""

from __future__ import annotations

from dataclasses import replace

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, stored_parts
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.awq_order import from_awq_order, to_awq_order
from anamnesis.schemes.families.integers.checks import SCALES, group_size
from anamnesis.schemes.families.integers.layouts.awq import PACKING
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.families.integers.words import PackedWeight
from anamnesis.sources.altered import recoded
from anamnesis.sources.strided import transposed

FIELDS = (
    Field("codes", "{weight}", ("I32", "I8")),
    Field("scales", "{weight}_scale"),
    Field("zeros", "{weight}_zero_point", unless="symmetric"),
)

_PRODUCER = "Quark"
_IN_WORD = 8
_SIGNS = 0x88888888  # flipped, two's complement is the code plus 8


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all of Quark's integers that nothing else reads."""
    ledger.take_found({"I32": [_find], "I8": [_find]}, facts)


def _find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    found = stored_parts(FIELDS, codes.name, ledger.find)
    is_weight = codes.name.rpartition(".")[2] == "weight" and len(codes.shape) == 2
    if not is_weight or missing(FIELDS, found):
        return None
    scale, zeros = found["scales"], found.get("zeros")
    if scale.dtype.name not in SCALES or 0 in codes.shape or 0 in scale.shape:
        return None
    if codes.dtype.name == "I32":
        coding = _Coding(codes, facts)
        return (_in_groups if len(scale.shape) == 2 else _in_rows)(codes, scale, zeros, coding)
    if (facts.method or "").lower() != "quark" or len(scale.shape) != 2:
        return None
    cols, rows = codes.shape
    if scale.shape[1] != rows:
        raise scale.misshapen(f"[groups, {rows}]", codes)
    if zeros is not None and (zeros.dtype.name, zeros.shape) != ("I8", scale.shape):
        raise zeros.misshapen(f"I8 {list(scale.shape)}", codes)
    size = group_size(codes, cols, scale.shape[0], facts.group_sizes)
    stored = (part for part in (codes, scale, zeros) if part is not None)
    parts = tuple([transposed(part, ledger.strips) for part in stored])
    own = codes.name, (rows, cols), parts, "INT8", (1, size), next(iter(parts[2:]), None)
    return IntegerWeight(*own, producer=_PRODUCER)


class _Coding:
    """What the config says of words."""

    def __init__(self, codes: StoredTensor, facts: QuantFacts) -> None:
        dtype = _settled(codes, facts.code_dtypes, ("int4", "uint4"), "dtype of weight")
        ways = "order", "reorder"
        order = _settled(codes, facts.pack_methods, ways, "export.pack_method")
        self.is_signed, self.is_awq = dtype == "int4", order == "reorder"
        self.sizes = facts.group_sizes
        self.id = f"{dtype}-{order}"

    def packed(self, words: StoredTensor, *, as_awq: bool) -> StoredTensor:
        """Return words with codes that are not signed, in AWQ's order or from the lowest bits."""
        order = to_awq_order if as_awq else from_awq_order
        orders = () if as_awq == self.is_awq else (order,)
        return recoded(words, _SIGNS if self.is_signed else 0, *orders)


def _settled(codes: StoredTensor, given: frozenset[str], known: tuple[str, ...], where: str) -> str:
    found = [word for word in known if word in given]
    if len(found) == 1:
        return found[0]
    raise codes.unsupported(
        f"{codes} may hold {' or '.join(known)}; say which with {where} in quantization_config of "
        "config.json"
    )


def _in_groups(
    codes: StoredTensor, scale: StoredTensor, zeros: StoredTensor | None, coding: _Coding
) -> PackedWeight:
    cols, rows = codes.shape[0], codes.shape[1] * _IN_WORD
    n_groups = scale.shape[0]
    if scale.shape[1] != rows:
        raise scale.misshapen(f"[groups, {rows}]", codes)
    words = [n_groups, codes.shape[1]]
    if zeros is None:
        raise codes.unsupported(
            f"{codes} has {scale.name}, but no {FIELDS[2].named(codes.name)}; give the whole "
            "directory if it lies in another shard"
        )
    if zeros.dtype.name != "I32" or list(zeros.shape) != words:
        raise zeros.misshapen(f"I32 {words}", codes)
    size = group_size(codes, cols, n_groups, coding.sizes)
    parts = (coding.packed(codes, as_awq=True), coding.packed(zeros, as_awq=True), scale)
    own = codes.name, (rows, cols), parts, PACKING, False, size
    return PackedWeight(*own, producer=_PRODUCER, coding=coding.id)


def _in_rows(
    codes: StoredTensor, scale: StoredTensor, zeros: StoredTensor | None, coding: _Coding
) -> IntegerWeight:
    rows, cols = codes.shape[0], codes.shape[1] * _IN_WORD
    if scale.shape not in ((), (rows,)):
        raise scale.misshapen(f"[{rows}], or one scale,", codes)
    plain = coding.packed(codes, as_awq=False)
    half = _IN_WORD if coding.is_signed else 0
    block = (1, cols) if scale.shape else (rows, cols)
    own = codes.name, (rows, cols), (plain, scale), "PACKED4", block
    weight = IntegerWeight(*own, constant=half, producer=_PRODUCER, coding=coding.id)
    if zeros is None:
        return weight
    words = [-(-rows // _IN_WORD)] if scale.shape else []
    if zeros.dtype.name != "I32" or list(zeros.shape) != words:
        raise zeros.misshapen(f"I32 {words}", codes)
    if not scale.shape:  # one number, not packed
        zero = int.from_bytes(zeros.read(), "little") & 15
        constant = (zero ^ half) if half else zero
        return replace(weight, parts=(*weight.parts, zeros), constant=constant)
    stacked = coding.packed(zeros, as_awq=False)
    return replace(weight, parts=(*weight.parts, stacked), zeros=stacked, constant=0)
