"""MXFP6: 6-bit floats with a power of two for each 32 of a row.

    weight_packed U8 [rows, cols * 3 / 4], as compressed-tensors calls it; of Quark, weight
        four codes in three bytes, low bits first, the highest bit of a code its sign
    weight_scale U8 | F8_E8M0 [rows, cols / 32]

    result = round(value(code) * 2^(scale - 127)), and infinity for scale 255

compressed-tensors has E2M3 codes; of Quark's the config says `fp6_e2m3` or `fp6_e3m2`. All values
of either are such of E4M3, as whose codes they are decoded. `MXFP6PackedCompressor.decompress` of
compressed-tensors and `StaticScaledRealQuantizer` of Quark give these bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.views.grid import MX_BLOCK, resolve
from anamnesis.schemes.views.scaled import Scaled
from anamnesis.schemes.views.views import made_of

BYTES_PER_SCALE = 24
KINDS = ("fp6_e2m3", "fp6_e3m2")


def mxfp6(
    name: str, codes: StoredTensor, scale: StoredTensor, kind: str, producer: str
) -> Mxfp6Weight:
    """Return codes of one of `KINDS` with their scales, whose shapes fit, as a weight."""
    shape = (*codes.shape[:-1], codes.shape[-1] // 3 * 4)

    def as_e4m3(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        table, triples = _table_of_pairs(kind), lines.reshape(-1, 3).astype(np.uint16)
        pairs = np.empty((len(triples), 2), np.uint16)
        pairs[:, 0] = table[triples[:, 0] | (triples[:, 1] & 15) << 8]
        pairs[:, 1] = table[triples[:, 1] >> 4 | triples[:, 2] << 4]
        return pairs.reshape(-1).view(np.uint8)

    def as_float32(units: range, raw: NDArray[Any]) -> NDArray[Any]:
        powers: NDArray[Any] = _powers()[raw.reshape(-1)]
        return powers.view(np.uint8)

    part = Part(codes.name, DTYPES["F8_E4M3"], shape)
    as_codes = made_of(part, [codes], codes.n_bytes // 3, as_e4m3)
    part = Part(scale.name, DTYPES["F32"], scale.shape)
    decoded = as_codes, made_of(part, [scale], scale.n_bytes, as_float32)
    grid = resolve(shape, scale.shape, frozenset({MX_BLOCK}))
    return Mxfp6Weight(
        name, shape, (codes, scale), grid, kind=kind, producer=producer, decoded=decoded
    )


@dataclass(slots=True, eq=False)
class Mxfp6Weight(Scaled):
    """Codes and scales."""

    kind: str = field(kw_only=True)
    producer: str = field(kw_only=True)
    decoded: tuple[StoredTensor, StoredTensor] = field(kw_only=True)

    family: ClassVar[str] = "MXFP6"
    column_step: ClassVar[int] = MX_BLOCK[1]

    @property
    def id(self) -> str:
        return f"mxfp6-{self.kind}"

    @property
    def scheme(self) -> str:
        kind = " E3M2" if self.kind == "fp6_e3m2" else ""
        return f"{self.family}{kind} ({self.producer})"

    @property
    def shown(self) -> Shown:
        grid = self.grid
        return Shown("float", 6, (grid.rows, grid.cols), (grid.grid_rows, grid.grid_cols))

    @property
    def codes(self) -> StoredTensor:
        return self.decoded[0]

    @property
    def scales(self) -> StoredTensor:
        return self.decoded[1]


@cache
def _powers() -> NDArray[Any]:
    """Return 2^(byte - 127) of each byte as float32: of 255, infinity."""
    with np.errstate(over="ignore"):
        powers = np.ldexp(np.float32(1), np.arange(256) - 127)
    return powers.astype("<f4")


@cache
def _table_of_pairs(kind: str) -> NDArray[Any]:
    """Return two codes of E4M3 for each 12 bits."""
    import ml_dtypes

    dtype = ml_dtypes.float6_e2m3fn if kind == "fp6_e2m3" else ml_dtypes.float6_e3m2fn
    values = np.arange(64, dtype=np.uint8).view(dtype).astype(np.float32)
    codes = values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    both = np.arange(4096)
    return np.stack([codes[both & 63], codes[both >> 6]], -1).reshape(-1).view("<u2")
