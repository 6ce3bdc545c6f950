"""2:4 sparse Marlin: 4 or 8 bits of two of any four columns, in tiles for a GPU.

    weight_packed | B_24  I32  [in features / 32, bits / 2 * out features]
    scale_packed | s      F16 | BF16 | F32  [groups, out features], permuted
    meta | B_meta         I16  [in features / 32, 2 * out features]: which two of four columns;
                          in other words [out features, in features / 16], of the same bytes

    result[o, i] = round((float32)(code[o, i] - 2^(bits - 1)) * float32(scale[o, g]))

compressed-tensors (`marlin-24`) has the first names, GPTQ as vLLM and IST's Sparse-Marlin know it
(`checkpoint_format` "marlin_24") the others. What is not stored is 0. `Marlin24Compressor` and
`get_permutations_24` of compressed-tensors, to 0.14, define the layout; there is no decoder.
With two groups, that compressor leaves scales in order, for it takes half of the in features for
all of them.
"""

from __future__ import annotations

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, module_of, stored_parts
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import SCALES
from anamnesis.schemes.families.integers.layouts.marlin import mismatch
from anamnesis.schemes.families.integers.ordered import SparseMarlinWeight

_I16 = ("I16",)
# compressed-tensors', and vLLM's.
LAYOUTS = (
    (
        Field("codes", "{weight}_packed", ("I32",)),
        Field("scales", "{module}scale_packed", SCALES),
        Field("meta", "{module}meta", _I16),
    ),
    (
        Field("codes", "{module}B_24", ("I32",)),
        Field("scales", "{module}s", SCALES),
        Field("meta", "{module}B_meta", _I16),
    ),
)
_TILE = (64, 32)


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take modules with these parts; refuse what has their names."""
    for codes in ledger.free():
        for fields in LAYOUTS:
            name = fields[0].weight_of(codes.name)
            parts = {} if name is None else stored_parts(fields, name, ledger.find)
            if name is None or missing(fields, parts):
                continue
            with ledger.refusing(part.name for part in parts.values()):
                ledger.take(_weight(name, parts, fields))
                workspace = f"{module_of(name)}workspace"
                if ledger.find(workspace) is not None:
                    ledger.drop(workspace, "workspace of a kernel")
            break


def _weight(
    name: str, parts: dict[str, StoredTensor], fields: tuple[Field, ...]
) -> SparseMarlinWeight:
    codes, scale, meta = parts["codes"], parts["scales"], parts["meta"]
    for field in fields:
        if parts[field.role].dtype.name not in field.dtypes:
            raise codes.unsupported(f"{parts[field.role]}: {field.dtypes} is expected")
    if any(len(part.shape) != 2 for part in parts.values()):
        raise mismatch(codes, scale, "these are no matrices")
    rows, cols = scale.shape[1], _TILE[1] * codes.shape[0]
    bits = {2 * rows: 4, 4 * rows: 8}.get(codes.shape[1])
    if bits is None or rows == 0 or cols == 0:
        raise mismatch(codes, scale, "these are not the shapes of 2:4 sparse Marlin")
    if meta.shape not in ((codes.shape[0], 2 * rows), (rows, cols // 16)):
        raise meta.misshapen(f"[{codes.shape[0]}, {2 * rows}]", codes)
    if rows % _TILE[0]:
        raise mismatch(codes, scale, f"out features are no multiple of {_TILE[0]}")
    n_groups = scale.shape[0]
    if n_groups == 0 or cols % n_groups:
        raise mismatch(codes, scale, f"{cols:,} in features do not make {n_groups:,} groups")
    return SparseMarlinWeight(
        name,
        (rows, cols),
        (codes, scale, meta),
        f"PACKED{bits}",
        (1, cols // n_groups),
        constant=1 << bits - 1,
        producer="2:4 sparse Marlin",
        is_permuted=n_groups > (2 if fields is LAYOUTS[0] else 1),
    )
