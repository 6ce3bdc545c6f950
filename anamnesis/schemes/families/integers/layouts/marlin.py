"""Marlin: 4 or 8 bits without zero points, in tiles for the tensor cores of a GPU.

    B | qweight  I32  [in features / 16, bits / 2 * out features]
    s | scales   F16 | BF16 | F32  [groups, out features], permuted

    result[o, i] = round((float32)(code[o, i] - 2^(bits - 1)) * float32(scale[o, g]))

AutoGPTQ (`is_marlin_format`) and IST's Marlin call them B and s, AutoAWQ (`version` "marlin") as
AWQ's. AutoAWQ's `WQLinear_Marlin` and the table of its `_get_perms` define the layout; whatever
decodes it runs on a GPU only. Tools write it in 4 bits. In 8 bits it is what `gptq_marlin_repack`
makes of GPTQ's, and what vLLM and SGLang save of a model that they have loaded (`sharded_state`),
with empty qzeros and g_idx.
"""

from __future__ import annotations

from anamnesis.base.errors import ParseError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, module_of
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import SCALES
from anamnesis.schemes.families.integers.ordered import MarlinWeight

# AutoGPTQ's and IST's, and AutoAWQ's.
LAYOUTS = (
    (Field("codes", "{module}B", ("I32",)), Field("scales", "{module}s")),
    (Field("codes", "{module}qweight", ("I32",)), Field("scales", "{module}scales")),
)
_OTHERS = ("qzeros", "g_idx", "B_24", "B_meta", "s_channel", "s_group", "weight_scale")
_OF_KERNEL = ("workspace", "qzeros", "g_idx", "g_idx_sort_indices")
_TILE = (64, 16)


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take modules with the parts of Marlin, and no others; refuse what has its names."""
    for codes in ledger.free():
        fields = next((f for f in LAYOUTS if f[0].weight_of(codes.name) is not None), None)
        name = None if fields is None else fields[0].weight_of(codes.name)
        scale = None if fields is None or name is None else ledger.find(fields[1].named(name))
        if name is None or scale is None or codes.dtype.name != "I32":
            continue
        module = module_of(name)
        others = (ledger.stored.get(f"{module}{other}") for other in _OTHERS)
        if any(other is not None and 0 not in other.shape for other in others):
            continue
        if fields is LAYOUTS[1] and not _is_marlin(codes, scale):
            continue
        with ledger.refusing([codes.name, scale.name]):
            ledger.take(_weight(name, codes, scale, ledger))
            for part in _OF_KERNEL:
                if ledger.find(f"{module}{part}") is not None:
                    ledger.drop(f"{module}{part}", "workspace of a kernel")


def _is_marlin(codes: StoredTensor, scale: StoredTensor) -> bool:
    """Tell Marlin from others that have scales and no zero points."""
    if len(codes.shape) != 2 or len(scale.shape) != 2 or scale.dtype.name not in SCALES:
        return False
    return codes.shape[1] in (2 * scale.shape[1], 4 * scale.shape[1]) and scale.shape[1] > 0


def _weight(name: str, codes: StoredTensor, scale: StoredTensor, ledger: Ledger) -> MarlinWeight:
    if name in ledger.stored:
        raise codes.unsupported(f"{codes} is {name}, but that is stored as well")
    if not _is_marlin(codes, scale):
        raise mismatch(codes, scale, "these are not the shapes of Marlin")
    rows, cols = scale.shape[1], 16 * codes.shape[0]
    bits = 2 * codes.shape[1] // rows
    n_groups = scale.shape[0]
    if rows % _TILE[0] or cols == 0:
        raise mismatch(codes, scale, f"out features are no multiple of {_TILE[0]}")
    if n_groups == 0 or cols % n_groups:
        raise mismatch(codes, scale, f"{cols:,} in features do not make {n_groups:,} groups")
    kernel, block, half = f"PACKED{bits}", (1, cols // n_groups), 1 << bits - 1
    parts = (codes, scale)
    return MarlinWeight(name, (rows, cols), parts, kernel, block, constant=half, producer="Marlin")


def mismatch(codes: StoredTensor, scale: StoredTensor, why: str) -> ParseError:
    """Return the error for shapes that contradict each other."""
    return codes.malformed(f"{codes} and {scale}: {why}")
