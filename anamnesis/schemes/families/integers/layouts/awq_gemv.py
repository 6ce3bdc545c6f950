"""AutoAWQ's layouts for single tokens: codes in rows, as in nn.Linear.

GEMV:

    qweight I32  [out features, in features / 8], low nibbles first
    qzeros  I32  [out features, words of groups], low nibbles first
    scales  F16 | BF16 | F32  [out features, 8 * words of groups]

GEMV-fast:

    qweight I16  [out features / 4, in features]: four rows and 64 columns take turns
    qzeros  F16  [8 * words of groups, out features], -scale * zero
    scales  F16  [8 * words of groups, out features]

As many words as `calculate_zeros_width` has are filled up with zeros.

    result[o, i] = round((float32)(code[o, i] - zero[o, g]) * float32(scale[o, g]))

These are the integers that AutoAWQ packs; it decodes them on a GPU only. The zero points of
GEMV-fast are found again in the products; its kernel adds these to code * scale in half floats.
"""

from __future__ import annotations

from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.families.integers.layouts.gptq_and_awq import OF_A_FILE, SCALES, Parts
from anamnesis.schemes.families.integers.ordered import FastWeight, GemvWeight
from anamnesis.schemes.families.integers.weight import IntegerWeight

GEMV, FAST = "gemv", "gemv_fast"  # as configs call them
_IN_WORD = 8
_SIZES = (32, 64, 128)  # of groups that AutoAWQ has, and one of all columns
_DTYPES = {GEMV: ("I32", "I32", SCALES), FAST: ("I16", "F16", ("F16",))}


def find(parts: Parts, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that a module holds in one of these layouts, None if in neither."""
    if any(len(part.shape) != 2 for part in parts.stored if part is not parts.g_idx):
        return None
    layout = FAST if parts.qweight.dtype.name == "I16" else GEMV
    (lines, across), scales = parts.qweight.shape, parts.scales.shape
    if layout == FAST:
        rows, cols, places = 4 * lines, across, scales[0]
        expected = ((places, rows), (places, rows))
    else:
        rows, cols, places = lines, _IN_WORD * across, scales[1]
        expected = ((rows, places // _IN_WORD), (rows, places))
        if scales[0] != rows:
            return None
    own = parts.qweight, parts.qzeros, parts.scales
    for part, dtypes in zip(own, _DTYPES[layout], strict=True):
        if part.dtype.name not in dtypes:
            raise parts.refusal(f"{part.name} is {part.dtype}, {dtypes} is expected")
    found = (parts.qzeros.shape, parts.scales.shape)
    if found != expected or 0 in (rows, cols) or (layout == FAST and cols % 64):
        raise parts.mismatch(f"the shapes are not those of AWQ {layout}")
    if parts.g_idx is not None:
        raise parts.refusal("AWQ has no g_idx")
    size = _group_size(parts, cols, places, facts)
    kind, name = (FastWeight, "AWQ GEMV-fast") if layout == FAST else (GemvWeight, "AWQ GEMV")
    stored = (parts.qweight, parts.scales, parts.qzeros)
    shape, block = (rows, cols), (1, size)
    return kind(parts.weight_name, shape, stored, "PACKED4", block, parts.qzeros, producer=name)


def _group_size(parts: Parts, cols: int, places: int, facts: QuantFacts) -> int:
    """Return the length of groups whose scales fill as many places; the config settles it."""
    given = {cols if size < 0 else size for size in facts.group_sizes if size}
    fitting = {
        s for s in (*_SIZES, cols, *given) if s and cols % s == 0 and 0 < places == _places(cols, s)
    }
    sizes = fitting & given or fitting
    if not sizes:
        raise parts.mismatch(f"{places} places for scales fit no groups of {cols:,} in features")
    if len(sizes) > 1:
        words = " or ".join(str(size) for size in sorted(sizes))
        raise parts.refusal(f"groups may be of {words}; say which with group_size{OF_A_FILE}")
    return sizes.pop()


def _places(cols: int, size: int) -> int:
    """Return `8 * calculate_zeros_width(cols, size)` of AutoAWQ's gemv.py."""
    multiple = {32: 4, 64: 2}.get(size, 1 if size >= 128 else 0)
    words = -(-(cols // size) // _IN_WORD)
    return -(-words // multiple) * multiple * _IN_WORD if multiple else 0
