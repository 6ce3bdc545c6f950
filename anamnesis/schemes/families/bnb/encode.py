"""bitsandbytes' numbers: NF4 and FP4 in blocks, and rows of INT8."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Extent, FloatCodes, Loss, NotFinite, Out, Survey, Task

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
NEST = 256  # absmax that share a nested one

_NOTHING = memoryview(bytearray())
_F32 = struct.Struct("<f")


class _MeanAbsmax(Survey):
    """The mean of the largest magnitudes of all blocks, as in torch on one thread."""

    def __init__(self, dtype: DType, block: int, n: int) -> None:
        self._source, self._item, self._block = _core.SOURCES[dtype.name], dtype.n_bytes(1), block
        self._count = -(-n // block)
        self._sum = _core.Sum(self._count)
        self._total: float | None = None
        self._waiting: dict[int, tuple[int, bytearray]] = {}  # for the bands before them
        self._next = 0
        self._lock = threading.Lock()

    def see(self, values: memoryview, band: Band, level: int) -> None:
        absmax = bytearray(4 * -(-(band.stop - band.start) // self._block))
        _core.blocks_amax(self._source, values, self._block, absmax, level)
        with self._lock:
            self._waiting[band.start] = band.stop, absmax
            while self._next in self._waiting:
                self._next, absmax = self._waiting.pop(self._next)
                self._total = self._sum.add(memoryview(absmax).cast("f"))

    def found(self) -> bytes:
        assert self._total is not None
        (count,) = _F32.unpack(_F32.pack(self._count))
        return _F32.pack(self._total / count)


@dataclass(frozen=True)
class FourBitCodes(FloatCodes):
    """NF4 or FP4: codes of 4 bits, and the largest magnitude of each block."""

    kind: str = "nf4"
    block_size: int = 64
    is_nested: bool = False
    has_second_zero: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.kind not in ("nf4", "fp4"):
            raise ValueError(f"kind must be nf4 or fp4; got {self.kind!r}")
        if self.block_size not in BLOCK_SIZES:
            sizes = ", ".join(map(str, BLOCK_SIZES))
            raise ValueError(f"the block size must be one of {sizes}; got {self.block_size}")
        if self.has_second_zero and self.kind != "fp4":
            raise ValueError("only FP4 has a second zero")

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        return _MeanAbsmax(self.dtype, self.block_size, prod(shape)) if self.is_nested else None

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        n = prod(shape)
        n_blocks = -(-n // self.block_size)
        outs = (
            Out("codes", DTYPES["U8"], (-(-n // 2), 1)),
            Out("absmax", DTYPES["U8" if self.is_nested else "F32"], (n_blocks,)),
            Out("codebook", DTYPES["F32"], (16,)),
        )
        if not self.is_nested:
            return outs
        nested = Out("nested absmax", DTYPES["F32"], (-(-n_blocks // NEST),))
        return (*outs, nested, Out("nested codebook", DTYPES["F32"], (256,)))

    def constants(self, shape: tuple[int, ...], found: bytes = b"") -> dict[str, bytes]:
        if found and not math.isfinite(*_F32.unpack(found)):
            raise NotFinite()
        codebooks = {"codebook": _core.BNB_CODEBOOKS[self.kind.upper()]}
        if self.is_nested:
            codebooks["nested codebook"] = _core.BNB_CODEBOOKS["dynamic"]
        return codebooks

    def grain(self, shape: tuple[int, ...]) -> int:
        return NEST * self.block_size

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        n = band.stop - band.start
        first, n_blocks = band.start // self.block_size, -(-n // self.block_size)
        item, constant = (1 if self.is_nested else 4), Extent(0, 0)
        codes = Extent(band.start // 2, -(-n // 2))
        absmax = Extent(first * item, n_blocks * item)
        if not self.is_nested:
            return codes, absmax, constant
        nested = Extent(first // NEST * 4, -(-n_blocks // NEST) * 4)
        return codes, absmax, constant, nested, constant

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        kind = self.kind.upper() + ("_ZEROS" if self.has_second_zero else "")
        rule = _core.RULES["nested" if self.is_nested else "absmax"]
        kernel = _core.SOURCES[self.dtype.name], _core.QUANTIZERS[kind], rule
        made = outs[0], outs[1], outs[3] if self.is_nested else _NOTHING
        mean = task.found if self.is_nested else b""
        errors = _core.quantize(
            *kernel, values, 1, task.n, 1, self.block_size, *made, mean, task.measures, task.level
        )
        return task.measured(errors)


@dataclass(frozen=True)
class Int8Codes(FloatCodes):
    """LLM.int8(): rows of codes, and the largest magnitude of each row."""

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        return Out("codes", DTYPES["I8"], shape), Out("absmax", DTYPES["F32"], (shape[0],))

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        source = _core.SOURCES[self.dtype.name]
        kernel = source, _core.QUANTIZERS["INT8_ABSMAX"], _core.RULES["absmax"]
        sizes, made = (*task.matrix, 1, task.shape[1]), (outs[0], outs[1], _NOTHING)
        errors = _core.quantize(*kernel, values, *sizes, *made, b"", task.measures, task.level)
        return task.measured(errors, what="the values, as half floats")
