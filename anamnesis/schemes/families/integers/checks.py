"""What shapes and dtypes the parts of a weight of integers must have."""

from __future__ import annotations

from collections.abc import Sequence

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.views.grid import block_candidates

SCALES = ("F32", "F16", "BF16")
PACKED_MAX_GROUPS = 32_768  # that act-order may choose from; a band holds all scales of its rows


def check_scale_dtype(scale: StoredTensor, codes: StoredTensor) -> None:
    """Raise UnsupportedError if a scale is of no usual dtype."""
    if scale.dtype.name not in SCALES:
        raise scale.unsupported(
            f"scale {scale.name} of {codes.name} has dtype {scale.dtype}; one of "
            f"{', '.join(SCALES)} is expected"
        )


def group_size(codes: StoredTensor, cols: int, n_groups: int, given: frozenset[int]) -> int:
    """Return how many columns share a scale."""
    if n_groups == 1:
        return max(cols, 1)
    if not 0 < n_groups <= cols:
        raise codes.malformed(
            f"{codes.name}: {n_groups:,} scales do not fit rows of {cols:,} columns",
        )
    fitting = {size for size in given if size > 0 and -(-cols // size) == n_groups}
    sizes = fitting or block_candidates(cols, n_groups)
    if len(sizes) != 1:
        raise codes.unsupported(
            f"{codes.name}: {n_groups} scales for {cols} columns may be in groups of "
            f"{' or '.join(map(str, sorted(sizes))) or 'any size'}; say which with group_size in "
            "config.json"
        )
    return sizes.pop()


def check_one_of(setting: str, value: int, known: Sequence[int]) -> None:
    """Raise ValueError if programs that read an encoding do not know a setting of it."""
    if value not in known:
        names = ", ".join(map(str, known))
        raise ValueError(f"{setting} must be one of {names}; got {value}")
