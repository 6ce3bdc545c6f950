"""4-bit floats of any layout in one form, all of it views."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.layout import Unmovable, unmovable
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.fp4.formats import FORMATS, Fp4Format
from anamnesis.schemes.families.fp4.weight import Fp4Weight
from anamnesis.schemes.views.bits import halved, paired
from anamnesis.schemes.views.transposed import Transposed
from anamnesis.schemes.views.views import Undone, forbidding, made_from, made_of

# ggml's blocks: bytes of scales, then of codes; and the codes that share a scale.
_BLOCKS = {"MXFP4": (1, 16, 32), "NVFP4": (4, 32, 16)}


class Fp4Codes(NamedTuple):
    """A weight's codes and scales."""

    name: str
    format: Fp4Format
    group: int
    shape: tuple[int, ...]
    codes: StoredTensor
    scales: StoredTensor
    second: StoredTensor | None
    is_turned: bool = False

    @property
    def name_as_stored(self) -> str:
        """The name of what is stored, which is not the weight's if that is its transpose."""
        return f"{self.name}.weight" if self.is_turned else self.name

    def refused(self, why: str) -> Unmovable:
        """Return why codes cannot be moved."""
        return unmovable(self.codes, self.name, self.shape, why)


def seen(weight: Weight) -> Fp4Codes | None:
    """Return a weight's codes; None if they are no 4-bit floats."""
    # Those that come out transposed are returned as they are stored.
    blocks, *more = weight.parts
    if blocks.dtype.kind == "block":  # ggml's, with a second scale or without
        found = of_blocks(blocks) if blocks.shape == weight.shape else None
        return found and found._replace(second=more[0] if more else None)
    stored = weight.stored if isinstance(weight, Transposed) else weight
    if not isinstance(stored, Fp4Weight) or (stored is not weight and len(stored.shape) != 3):
        return None
    if not stored.format.has_kin:
        return None
    shape = stored.shape
    if shape[-1] % 2:
        why = f"rows of {shape[-1]:,} codes end within a byte"
        raise unmovable(stored.parts[0], weight.name, shape, why)
    second, is_turned = next(iter(stored.parts[2:]), None), stored is not weight
    own = weight.name, stored.format, stored.group, shape
    return Fp4Codes(*own, *stored.in_rows, second, is_turned)


def of_blocks(stored: StoredTensor) -> Fp4Codes | None:
    """Return the codes and scales of ggml's blocks; None if they are no 4-bit floats."""
    kind = stored.dtype.name
    if kind not in _BLOCKS:
        return None
    n_scales, n_codes, group = _BLOCKS[kind]
    n = stored.n_bytes // (n_scales + n_codes)
    shape = stored.shape

    def split(units: range, blocks: NDArray[Any]) -> NDArray[Any]:
        return paired(blocks[:, n_scales:].reshape(-1, group // 2))

    def first(units: range, blocks: NDArray[Any]) -> NDArray[Any]:
        return blocks[:, :n_scales]

    def part(last: int) -> Part:
        return Part(stored.name, DTYPES["U8"], (*shape[:-1], last))

    undone = Undone(of_blocks, stored)
    codes = made_of(part(shape[-1] // 2), [stored], n, split, undone=undone)
    scales = made_of(part(shape[-1] // group), [stored], n, first, undone=undone)
    return Fp4Codes(stored.name, FORMATS[f"gguf-{kind.lower()}"], group, shape, codes, scales, None)


def scaled_blocks(blocks: StoredTensor, second: StoredTensor) -> Seen[Fp4Weight]:
    """Return NVFP4's blocks, in rows, and a second scale as the codes and scales that have both."""
    found = of_blocks(blocks)
    assert found is not None
    # ggml reads bytes from 127 on without their sign, and 127 as 0.
    scales = forbidding(found.scales, bytes(range(127, 256)), "which is no scale that ggml writes")
    name, shape, parts = blocks.name, blocks.shape, (found.codes, scales, second)
    values = Fp4Weight(name, shape, parts, found.format, found.group, shape[-1])
    return Seen(name, shape, (blocks, second), (values,))


def to_ggml(found: Fp4Codes, scales: StoredTensor) -> StoredTensor:
    """Return codes and checked scales as ggml's blocks."""
    kind = found.format.kind
    _, n_codes, group = _BLOCKS[kind]
    block = 2 * n_codes
    if found.shape[-1] % block:
        why = f"rows of {found.shape[-1]:,} codes are not of whole {kind} blocks of {block}"
        raise found.refused(why)
    part = Part(found.name, BLOCK_DTYPES[kind], found.shape)
    was = made_from(scales)
    if was and was.way is of_blocks and was == made_from(found.codes):
        return was.stored._replace(name=part.name)
    n = prod(found.shape) // block

    def joined(units: range, exponents: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        halves = halved(codes.reshape(-1, group // 2)).reshape(len(units), n_codes)
        return np.concatenate((exponents, halves), axis=1)

    return made_of(part, [scales, found.codes], n, joined)
