"""What shapes and dtypes the parts of a weight of integers must have."""

from __future__ import annotations

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.parts.grid import block_candidates

__all__ = ["SCALES", "check_scale_dtype", "group_size", "misshapen"]

SCALES = ("F32", "F16", "BF16")


def misshapen(part: StoredTensor, codes: StoredTensor, expected: str) -> ParseError:
    """Return the error for a part that does not go with the codes."""
    return ParseError(
        f"{part.name} ({part.describe()}) does not fit {codes.name} ({codes.describe()}); "
        f"{expected} is expected",
        offset=part.offset,
        source=part.source.name,
    )


def check_scale_dtype(scale: StoredTensor, codes: StoredTensor) -> None:
    """Raise UnsupportedError if a scale is of no usual dtype."""
    if scale.dtype.name not in SCALES:
        raise UnsupportedError(
            f"{scale.source.name}: scale {scale.name} of {codes.name} has dtype {scale.dtype}; "
            f"one of {', '.join(SCALES)} is expected"
        )


def group_size(codes: StoredTensor, cols: int, n_groups: int, told: frozenset[int]) -> int:
    """Return how many columns share a scale.

    Raises
    ------
    ParseError
        If a row has more scales than columns, or none.
    UnsupportedError
        If several sizes fit, and the config does not tell which.
    """
    if n_groups == 1:
        return max(cols, 1)
    if not 0 < n_groups <= cols:
        raise ParseError(
            f"{codes.name}: {n_groups:,} scales do not fit rows of {cols:,} columns",
            offset=codes.offset,
            source=codes.source.name,
        )
    fitting = {size for size in told if size > 0 and -(-cols // size) == n_groups}
    sizes = fitting or block_candidates(cols, n_groups)
    if len(sizes) != 1:
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name}: {n_groups} scales for {cols} columns may be in "
            f"groups of {' or '.join(map(str, sorted(sizes))) or 'any size'}; say which with "
            "group_size in config.json"
        )
    return sizes.pop()
