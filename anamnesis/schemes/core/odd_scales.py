"""Scales that make NaNs, infinities or zeros of all their codes, counted where they are stored."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, cached_property

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.roles import roles
from anamnesis.schemes.core.weight import Weight

__all__ = ["OddScales"]

_PIECE = 1 << 20
# What bytes of scales mean, by how the words for an encoding begin; others have codes there.
_AS_BYTES = {"NVFP4": "F8_E4M3", "MXFP": "F8_E8M0", "FP8": "F8_E8M0"}
_NARROW = frozenset({"F8_E4M3", "F8_E5M2", "F8_E8M0"})
_INFINITY = {"F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F800000, "F64": 0x7FF << 52}


class OddScales:
    """Counts the scales of weights that are `nan`, `infinite` or `zero`, of each part once.

    That is when the first weight that has the part is made, for its bytes are then read anyway.

    Parameters
    ----------
    weights : iterable of Weight
        All of the model.
    """

    def __init__(self, weights: Iterable[Weight] = ()) -> None:
        self._weights = weights
        self._found: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    @cached_property
    def _left(self) -> dict[str, tuple[StoredTensor, DType]]:
        coded = (weight for weight in self._weights if weight.own_dtype is None)
        return {part.name: (part, dtype) for weight in coded for part, dtype in _scales(weight)}

    def look_at(self, weight: Weight) -> None:
        """Count those of a weight, but of parts that are counted."""
        with self._lock:
            found = [self._left.pop(part.name, None) for part in weight.parts if self._left]
        self._count(one for one in found if one is not None)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many there are in each part that has some; count what is left."""
        with self._lock:
            left = [self._left.popitem()[1] for _ in range(len(self._left))]
        self._count(left)
        return dict(sorted(self._found.items()))

    def _count(self, parts: Iterable[tuple[StoredTensor, DType]]) -> None:
        for part, dtype in parts:
            counts = _counted(part, dtype)
            if counts:
                self._found[part.name] = counts


def _scales(weight: Weight) -> Iterator[tuple[StoredTensor, DType]]:
    for role, part in zip(roles(weight), weight.parts, strict=True):
        dtype = part.dtype
        if dtype.name == "U8":
            names = (name for key, name in _AS_BYTES.items() if weight.family.startswith(key))
            dtype = DTYPES[next(names, "U8")]
        if role.endswith("scales") and (dtype.name in _NARROW or dtype.name in _INFINITY):
            yield part, dtype


def _counted(part: StoredTensor, dtype: DType) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for at in range(0, part.n_bytes, _PIECE):
        piece = part.source.read(part.offset + at, min(_PIECE, part.n_bytes - at))
        counts.update(_in_bytes(piece, dtype) if dtype.name in _NARROW else _in(piece, dtype))
    return {kind: n for kind, n in counts.items() if n}


def _in(piece: bytes, dtype: DType) -> dict[str, int]:
    import numpy as np  # only here, for the sake of a quick start

    infinity = _INFINITY[dtype.name]
    sizes = np.frombuffer(piece, f"<u{dtype.bits // 8}") & ((1 << dtype.bits - 1) - 1)
    n_odd = np.count_nonzero(sizes >= infinity)
    n_infinite = np.count_nonzero(sizes == infinity) if n_odd else 0
    zeros = int(np.count_nonzero(sizes == 0))
    return {"nan": int(n_odd - n_infinite), "infinite": int(n_infinite), "zero": zeros}


def _in_bytes(piece: bytes, dtype: DType) -> dict[str, int]:
    import numpy as np  # only here, for the sake of a quick start

    codes = np.frombuffer(piece, "u1")
    return {
        kind: sum(int(np.count_nonzero(codes == code)) for code in odd)
        for kind, odd in _odd_codes(dtype.name).items()
    }


@cache
def _odd_codes(dtype: str) -> dict[str, list[int]]:
    """Return the codes of a byte that are odd."""
    import ml_dtypes
    import numpy as np

    values = np.arange(256, dtype="u1").view(getattr(ml_dtypes, DTYPES[dtype].numpy_name or ""))
    wide = values.astype(np.float32)
    kinds = {"nan": np.isnan(wide), "infinite": np.isinf(wide), "zero": wide == 0}
    return {kind: np.flatnonzero(found).tolist() for kind, found in kinds.items()}
