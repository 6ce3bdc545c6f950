"""Encodings that give bitsandbytes' own bytes: NF4 and FP4, plain and nested, and INT8.

The parts are those that its `QuantState.as_dict(packed=True)` and `Linear8bitLt` save, and the
config is that of transformers' `BitsAndBytesConfig`. An infinity or a NaN is refused: the library
gives all values of its block, or its row, the same code.
"""

from __future__ import annotations

import json
import math
import re
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.bnb.int8 import Int8Weight
from anamnesis.schemes.bnb.read import four_bit
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.core.encoding import Encoding, Extent, Layers, Loss, Survey, Task, not_finite
from anamnesis.schemes.core.weight import Band, Weight
from anamnesis.schemes.says.endings import as_endings
from anamnesis.schemes.says.linear import left_by_class, linear_refusal, with_head

__all__ = ["BLOCK_SIZES", "FourBit", "Int8"]

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)

_EXPERT = re.compile(r"(.*\.experts)\.[0-9]+\.")
_OWN_LINEAR = {"falcon": "FalconLinear", "ibert": "QuantLinear"}
_NEST = 256  # absmax that share a nested one
_NOTHING = memoryview(bytearray())
_F32 = struct.Struct("<f")
_NO_MEAN = _F32.pack(0)  # before the survey, or where none is needed


class _MeanAbsmax(Survey):
    """The mean of the largest magnitudes of all blocks, as torch has it on one thread."""

    def __init__(self, dtype: DType, block: int, n: int) -> None:
        self._source, self._item, self._block = _core.SOURCES[dtype.name], dtype.n_bytes(1), block
        self._count = -(-n // block)
        self._sum = _core.Sum(self._count)
        self._total: float | None = None
        self._waiting: dict[int, tuple[int, bytearray]] = {}  # for the bands before them
        self._next = 0
        self._lock = threading.Lock()

    def see(self, values: memoryview, band: Band, level: int) -> None:
        """Take the largest magnitudes of a band, and add up what is complete from the start on."""
        absmax = bytearray(4 * -(-(band.stop - band.start) // self._block))
        _core.blocks_amax(self._source, values, self._block, absmax, level)
        with self._lock:
            self._waiting[band.start] = band.stop, absmax
            while self._next in self._waiting:
                self._next, absmax = self._waiting.pop(self._next)
                self._total = self._sum.add(memoryview(absmax).cast("f"))

    def found(self) -> bytes:
        """Return the mean, a float32; no finite one if a value is not."""
        assert self._total is not None
        (count,) = _F32.unpack(_F32.pack(self._count))
        return _F32.pack(self._total / count)


class _Bnb(Encoding):
    """What all of them share: the weights that transformers has bitsandbytes quantise.

    Those of a Conv1D are among them: `Bnb4bitQuantize` and `Bnb8bitQuantize` of its
    integrations/bitsandbytes.py transpose them first.
    """

    conv1d = "as linear"

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave all but the matrices of linear layers, and output heads."""
        return linear_refusal(name, shape, dtype, "transformers")

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Leave experts, which transformers stacks, and classes of layers that it does not know.

        Of both it neither quantises the weights nor loads the codes.
        """
        own = _OWN_LINEAR.get(str(config.get("model_type")))
        if own is not None:
            return dict.fromkeys(shapes, f"{own}, which transformers does not quantise")
        experts = filter(_EXPERT.match, shapes)
        return {
            **left_by_class(shapes, "transformers"),
            **dict.fromkeys(experts, "expert, which transformers stacks"),
        }

    def declare_with(self, layers: Layers) -> dict[str, Any]:
        """Return the same; transformers compares what is listed with the ends of its names."""
        return self.declare(as_endings(layers))

    def _config(self, plain: Sequence[str], **settings: Any) -> dict[str, Any]:
        """Return `BitsAndBytesConfig.to_dict()`; without a list transformers looks for heads."""
        is_4bit = "bnb_4bit_quant_type" in settings
        # Of the experts of a layer, their place is enough: names are patterns, and slow.
        skipped = [m.group(1) if (m := _EXPERT.match(f"{name}.")) else name for name in plain]
        config = {
            "quant_method": "bitsandbytes",
            "_load_in_8bit": not is_4bit,
            "_load_in_4bit": is_4bit,
            "llm_int8_threshold": 6.0,
            "llm_int8_skip_modules": with_head(list(dict.fromkeys(skipped))) if plain else None,
            "llm_int8_enable_fp32_cpu_offload": False,
            "llm_int8_has_fp16_weight": False,
            "bnb_4bit_quant_type": "fp4",
            "bnb_4bit_use_double_quant": False,
            "bnb_4bit_compute_dtype": "float32",
            "bnb_4bit_quant_storage": "uint8",
            "load_in_4bit": is_4bit,
            "load_in_8bit": not is_4bit,
        }
        return {**config, **settings}


@dataclass(frozen=True)
class FourBit(_Bnb):
    """NF4 or FP4: codes of 4 bits, and the largest magnitude of each block.

    Attributes
    ----------
    kind : str
        `nf4` or `fp4`.
    block_size : int
        Values that share an absmax: a power of two from 32 to 4096.
    is_nested : bool
        Whether the absmax are quantised themselves ("double quantisation").
    has_second_zero : bool
        Whether -0 becomes FP4's second zero, which is decoded to -0. The library writes the first
        one for it, and the second one for small positive values.
    dtype : DType
        BF16, F16 or F32: what the weight is in.
    """

    kind: str = "nf4"
    block_size: int = 64
    is_nested: bool = False
    has_second_zero: bool = False
    dtype: DType = field(default=DTYPES["BF16"], kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings.

        Raises
        ------
        ValueError
            If there are no such ones.
        """
        if self.kind not in ("nf4", "fp4"):
            raise ValueError(f"kind must be nf4 or fp4; got {self.kind!r}")
        if self.block_size not in BLOCK_SIZES:
            sizes = ", ".join(map(str, BLOCK_SIZES))
            raise ValueError(f"the block size must be one of {sizes}; got {self.block_size}")
        if self.has_second_zero and self.kind != "fp4":
            raise ValueError("only FP4 has a second zero")

    @property
    def id(self) -> str:
        """For instance `bnb-nf4`, `bnb-fp4-nested`, `bnb-nf4-128`, `bnb-fp4-zeros`."""
        size = "" if self.block_size == 64 else f"-{self.block_size}"
        nested = "-nested" if self.is_nested else ""
        return f"bnb-{self.kind}{nested}{size}" + ("-zeros" if self.has_second_zero else "")

    @property
    def values(self) -> DType:
        """The weight's own dtype, which the library widens to float32."""
        return self.dtype

    def fitted(self, dtype: DType) -> FourBit:
        """Return the same for a weight of a dtype, which the `quant_state` names."""
        return replace(self, dtype=dtype) if dtype.name in _core.SOURCES else self

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        """Look for the mean of the absmax, where they are quantised."""
        return _MeanAbsmax(self.dtype, self.block_size, prod(shape)) if self.is_nested else None

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return codes, absmax, codebook, those of the absmax, and the `quant_state`."""
        n = prod(shape)
        n_blocks = -(-n // self.block_size)
        state = f"{name}.quant_state.bitsandbytes__{self.kind}"
        parts = [
            Part(name, DTYPES["U8"], (-(-n // 2), 1)),
            Part(f"{name}.absmax", DTYPES["U8" if self.is_nested else "F32"], (n_blocks,)),
            Part(f"{name}.quant_map", DTYPES["F32"], (16,)),
        ]
        if self.is_nested:
            parts += [
                Part(f"{name}.nested_absmax", DTYPES["F32"], (-(-n_blocks // _NEST),)),
                Part(f"{name}.nested_quant_map", DTYPES["F32"], (256,)),
            ]
        size = len(self._state(shape, found or _NO_MEAN))
        return (*parts, Part(state, DTYPES["U8"], (size,)))

    def _state(self, shape: tuple[int, ...], found: bytes) -> bytes:
        """Return the JSON of the `quant_state`, its keys in the library's order."""
        state: dict[str, Any] = {
            "quant_type": self.kind,
            "blocksize": self.block_size,
            "dtype": self.dtype.torch_name,
            "shape": list(shape),
        }
        if self.is_nested:
            state["nested_blocksize"] = _NEST
            state["nested_dtype"] = "float32"
            (state["nested_offset"],) = _F32.unpack(found)
        return json.dumps(state).encode()

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the codebooks and the `quant_state`.

        Raises
        ------
        UnsupportedError
            If the survey found an infinity or a NaN.
        """
        found = found or _NO_MEAN
        if not math.isfinite(*_F32.unpack(found)):
            raise not_finite(name, self.id)
        constants = {2: _core.BNB_CODEBOOKS[self.kind.upper()]}
        if self.is_nested:
            constants[4] = _core.BNB_CODEBOOKS["dynamic"]
        return {**constants, len(constants) * 2 + 1: self._state(shape, found)}

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return the blocks whose absmax share a nested one: what is lost is added up by them."""
        return _NEST * self.block_size

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return the bytes of some blocks."""
        n = band.stop - band.start
        first, n_blocks = band.start // self.block_size, -(-n // self.block_size)
        item, constant = (1 if self.is_nested else 4), Extent(0, 0)
        codes = Extent(band.start // 2, -(-n // 2))
        absmax = Extent(first * item, n_blocks * item)
        if not self.is_nested:
            return codes, absmax, constant, constant
        nested = Extent(first // _NEST * 4, -(-n_blocks // _NEST) * 4)
        return codes, absmax, constant, nested, constant, constant

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole blocks, and what is left behind the last.

        Raises
        ------
        UnsupportedError
            If a value is infinite or a NaN.
        """
        errors = _core.quantize(
            _core.SOURCES[self.dtype.name],
            _core.QUANTIZERS[self.kind.upper() + ("_ZEROS" if self.has_second_zero else "")],
            _core.RULES["nested" if self.is_nested else "absmax"],
            values,
            1,
            task.n,
            1,
            self.block_size,
            outs[0],
            outs[1],
            outs[3] if self.is_nested else _NOTHING,
            task.found if self.is_nested else b"",
            task.measures,
            task.level,
        )
        return task.loss(errors, self.id)

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return the config of `load_in_4bit`; layers compute in the weights' dtype."""
        return self._config(
            plain,
            bnb_4bit_quant_type=self.kind,
            bnb_4bit_use_double_quant=self.is_nested,
            bnb_4bit_compute_dtype=self.dtype.torch_name,
        )

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return the parts as they are read."""
        return four_bit(list(parts))


@dataclass(frozen=True)
class Int8(_Bnb):
    """LLM.int8(): rows of codes, and the largest magnitude of each row.

    Attributes
    ----------
    dtype : DType
        BF16, F16 or F32: what the weight is in. The library rounds it to half floats first.
    """

    dtype: DType = field(default=DTYPES["BF16"], kw_only=True)

    @property
    def id(self) -> str:
        """`bnb-int8`."""
        return "bnb-int8"

    @property
    def values(self) -> DType:
        """The weight's own dtype."""
        return self.dtype

    def fitted(self, dtype: DType) -> Int8:
        """Return the same for a weight of a dtype."""
        return replace(self, dtype=dtype) if dtype.name in _core.SOURCES else self

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return codes, SCB, and what says that they lie in rows."""
        return (
            Part(name, DTYPES["I8"], shape),
            Part(sibling(name, "SCB"), DTYPES["F32"], (shape[0],)),
            Part(sibling(name, "weight_format"), DTYPES["U8"], ()),
        )

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the format: 0 for rows."""
        return {2: b"\0"}

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return a row."""
        return shape[1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return the bytes of some rows."""
        first, last = band.start // shape[1], band.stop // shape[1]
        scb = Extent(4 * first, 4 * (last - first))
        return Extent(band.start, band.stop - band.start), scb, Extent(0, 0)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole rows.

        Raises
        ------
        UnsupportedError
            If a value is infinite or a NaN, as one beyond half floats is.
        """
        errors = _core.quantize(
            _core.SOURCES[self.dtype.name],
            _core.QUANTIZERS["INT8_ABSMAX"],
            _core.RULES["absmax"],
            values,
            *task.matrix,
            1,
            task.shape[1],
            outs[0],
            outs[1],
            _NOTHING,
            b"",
            task.measures,
            task.level,
        )
        return task.loss(errors, self.id, "the values, as half floats")

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return the config of `load_in_8bit`."""
        return self._config(plain)

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return the parts as they are read."""
        return Int8Weight(name, shape, parts)
