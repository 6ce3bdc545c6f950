"""GGUF's block types: Q4_K, IQ2_XXS, MXFP4 and all the others that ggml has.

    blocks  Q4_0 | … | Q2_0  [..., n elements], of which a block holds 32 to 256 and all they need

    result = round(what ggml's dequantize_row_* gives in float32)

A block is independent of others, so a weight is one stored tensor, and a band any run of blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DType, output_dtype
from anamnesis.base.levels import resolve_level
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.core.weight import Band, Bands, Scratch, Weight, cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anamnesis.base.dtypes import DTypeLike
    from anamnesis.base.levels import LevelName

__all__ = ["GgmlWeight", "dequantize", "find_all"]


class GgmlWeight(Weight):
    """A stored tensor of whole blocks."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """The block type: `q4_k`."""
        return self.parts[0].dtype.name.lower()

    @property
    def scheme(self) -> str:
        """ggml's name of the type."""
        return self.parts[0].dtype.name

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut between any two blocks."""
        per_band = n_bytes // dtype.n_bytes(1)
        return cut(1, self.n_elements, per_band, step=self.parts[0].dtype.block_elements)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the band's blocks and decode them."""
        stored = self.parts[0]
        start, stop = (stored.dtype.n_bytes(n) for n in band)
        blocks = scratch.read(0, stored, start, stop - start)
        return _core.dequantize_blocks(
            _core.BLOCKS[stored.dtype.name], _core.OUTPUTS[dtype.name], blocks, out, level
        )


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take every stored tensor of a block type: its dtype says all."""
    for stored in ledger.free():
        if stored.dtype.kind == "block":
            ledger.take(GgmlWeight(stored.name, stored.shape, (stored,)))


def dequantize(
    blocks: NDArray[Any],
    type: str,
    *,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the values of GGUF blocks: ggml's in float32, then one rounding.

    Parameters
    ----------
    blocks : ndarray of uint8
        [..., bytes]: whole blocks along the last axis.
    type : str
        ggml's name of the block type, such as `Q4_K`, in either case.
    dtype : str, numpy.dtype, scalar type or torch.dtype
        `bf16` (ml_dtypes.bfloat16), `f16` or `f32`.
    out : ndarray, optional
        C-contiguous, of the result's shape and of `dtype`; written and returned.
    threads : int, optional
        By default one for each CPU, at most 8 and at most one for each megabyte.
    level : str, optional
        Kernel level, see `anamnesis.base.levels`.

    Returns
    -------
    ndarray
        [..., elements]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If `blocks` is not of uint8, or `out` of another dtype than asked for.
    ValueError
        If there is no such type, or the last axis is not a whole number of blocks.

    Notes
    -----
    In float32 equal to the bit to ggml's own C, and to `gguf.dequantize(blocks, type)` where that
    package has the type; then rounded to nearest, ties to even.
    """
    from anamnesis.schemes.core import arrays as memory

    stored_type = BLOCK_DTYPES.get(type.upper())
    if stored_type is None:
        raise ValueError(f"type must be one of {', '.join(BLOCK_DTYPES)}; got {type!r}")
    stored = memory.stored(blocks, "blocks", ("U8",))
    *lead, n_bytes = stored.shape or (0,)
    if not stored.shape or n_bytes % stored_type.block_bytes:
        raise ValueError(
            f"blocks of shape {list(stored.shape)} are not whole {stored_type} blocks of "
            f"{stored_type.block_bytes} bytes along the last axis"
        )
    shape = (*lead, n_bytes // stored_type.block_bytes * stored_type.block_elements)
    weight = GgmlWeight("blocks", shape, (stored._replace(dtype=stored_type, shape=shape),))
    return memory.decode(weight, output_dtype(dtype), out, threads, resolve_level(level))
