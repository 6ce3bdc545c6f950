"""How bitsandbytes stores weights: parts, settings and config.

The parts are those that its `QuantState.as_dict(packed=True)` and `Linear8bitLt` save, and the
config is that of transformers' `BitsAndBytesConfig`. An infinity or a NaN is refused: the library
gives all values of its block, or its row, the same code.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, NamedTuple

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import LimitExceeded
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import Beside, Config, Field, Layers, Repack, Shapes, unmovable
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.bnb.encode import NEST, FourBitCodes, Int8Codes
from anamnesis.schemes.families.bnb.weight import (
    PER_127,
    FourBitWeight,
    Int8Weight,
    Nested,
    recovered_absmax,
)
from anamnesis.schemes.libraries.endings import as_endings
from anamnesis.schemes.libraries.left_plain import with_head
from anamnesis.schemes.libraries.libraries import OfTransformers
from anamnesis.schemes.views.integer_casts import by_row
from anamnesis.schemes.views.kinds import Integers
from anamnesis.schemes.views.views import completed

QUANT_STATE = ".quant_state.bitsandbytes__"
BNB_MAX_QUANT_STATE = 65_536  # bytes; a real one has fewer than 300
END = 2**63  # of sizes: any larger one is a lie
STORAGE = ("U8", "I8", "BF16", "F16", "F32", "F64")
ABSMAX = ("F32", "BF16", "F16")

_EXPERT = re.compile(r"(.*\.experts)\.[0-9]+\.")
_OWN_LINEAR = {"falcon": "FalconLinear", "ibert": "QuantLinear"}
_F32 = struct.Struct("<f")


# --- layouts ------------------------------------------------------------------------------------


class _Bnb(OfTransformers):
    """The weights that transformers has bitsandbytes quantise."""

    # Those of a Conv1D are among them: `Bnb4bitQuantize` and `Bnb8bitQuantize` of its
    # integrations/bitsandbytes.py transpose them first.

    conv1d = "as linear"

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        own = _OWN_LINEAR.get(str(config.get("model_type")))
        if own is not None:
            return dict.fromkeys(shapes, f"{own}, which transformers does not quantise")
        experts = filter(_EXPERT.match, shapes)
        stacked = dict.fromkeys(experts, "expert, which transformers stacks")
        return {**stacked, **super().leaves(shapes, config)}

    def _config(self, layers: Layers, **settings: Any) -> dict[str, Any]:
        """Return `BitsAndBytesConfig.to_dict()`."""
        # transformers compares what is listed with the ends of its names; without a list it looks
        # for heads.
        is_4bit = "bnb_4bit_quant_type" in settings
        plain = as_endings(layers)
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
class FourBitLayout(_Bnb):
    """Parts behind the name of the weight, and a `quant_state` with its settings and shape."""

    kind: str = "nf4"
    block_size: int = 64
    is_nested: bool = False
    dtype: DType = DTYPES["BF16"]

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}"),
        Field("absmax", "{weight}.absmax"),
        Field("codebook", "{weight}.quant_map"),
        Field("nested absmax", "{weight}.nested_absmax", unless="absmax are no codes"),
        Field("nested codebook", "{weight}.nested_quant_map", unless="absmax are no codes"),
    )

    takes = FourBitWeight

    def fitted(self, dtype: DType) -> FourBitLayout:
        return replace(self, dtype=dtype) if dtype.name in _core.SOURCES else self

    def beside(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> Beside:
        # The JSON of the `quant_state`, its keys in the library's order.
        state: dict[str, Any] = {
            "quant_type": self.kind,
            "blocksize": self.block_size,
            "dtype": self.dtype.torch_name,
            "shape": list(shape),
        }
        if self.is_nested:
            state["nested_blocksize"] = NEST
            state["nested_dtype"] = "float32"
            (state["nested_offset"],) = _F32.unpack(found or bytes(4))  # before the survey
        raw = json.dumps(state).encode()
        return [(Part(f"{name}{QUANT_STATE}{self.kind}", DTYPES["U8"], (len(raw),)), raw)]

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return four_bit_weight(list(parts))

    def view(self, weight: Weight) -> FourBitWeight | None:
        return weight if isinstance(weight, FourBitWeight) else None

    def write(self, view: FourBitWeight, encoding: Encoding) -> Repack | None:
        if view.kind != self.kind.upper():
            return None
        layout = replace(self, block_size=view.block)
        own = Encoding(spelt(f"bnb-{self.kind}", vars(layout), SETTINGS), layout)
        if self.is_nested == (view.nested is not None):
            return Repack((own,), view.parts)
        if self.is_nested:
            why = f"its absmax are values, and codes in {encoding.id}"
            raise unmovable(view.parts[0], view.name, view.shape, why)
        codes, _, codebook, *_ = view.parts
        parts = codes, recovered_absmax(view), codebook
        return Repack((own,), completed(parts, self.beside(view.name, view.shape)), is_cast=True)

    def declare(self, layers: Layers) -> dict[str, Any]:
        return self._config(
            layers,
            bnb_4bit_quant_type=self.kind,
            bnb_4bit_use_double_quant=self.is_nested,
            bnb_4bit_compute_dtype=self.dtype.torch_name,
        )


@dataclass(frozen=True)
class Int8Layout(_Bnb):
    """Codes in rows, `SCB` beside them, and what says that they lie in rows."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("I8",)),
        Field("absmax", "{module}SCB", ("F32",)),
        Field("format", "{module}weight_format", ("U8",), unless="they lie in rows"),
    )
    takes = Integers

    def write(self, view: Integers, encoding: Encoding) -> Repack | None:
        if len(view.shape) != 2:
            raise view.refused(f"{encoding.id} has matrices only")
        codes, scales, view = by_row(view, PER_127)
        if scales.dtype.name != "F32":
            raise view.refused(f"its scales are {scales.dtype}, and F32 in {encoding.id}")
        found = {"codes": codes, "absmax": scales._replace(shape=view.shape[:1])}
        whole = completed(self.moved(view.name, found), self.beside(view.name, view.shape))
        return Repack((encoding,), whole, view.is_exact, view.is_cast)

    def beside(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> Beside:
        return [(self.fields[2].part(name, DTYPES["U8"], ()), b"\0")]

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return Int8Weight(name, shape, parts)

    def declare(self, layers: Layers) -> dict[str, Any]:
        return self._config(layers)


# --- parts as weights, and the sizes that they must have by a quant_state -----------------------


class State(NamedTuple):
    """What a quant_state says."""

    kind: str
    shape: tuple[int, ...]
    block: int
    nested: Nested | None


def check_four_bit(parts: Sequence[StoredTensor], state: State) -> None:
    """Raise ValueError unless all parts have the size that shape and block sizes ask for."""
    codes, absmax, codebook, *nested = parts
    n = prod(state.shape)
    if codes.n_bytes != (n + 1) // 2:
        raise ValueError(
            f"{codes.name} of {codes.n_bytes:,} bytes does not hold the {n:,} values of 4 bits "
            f"that shape {list(state.shape)} has"
        )
    _check_count(absmax, -(-n // state.block), f"{n:,} values in blocks of {state.block:,}")
    _check_count(codebook, 16, "4-bit codes")
    if state.nested is not None:
        n, block = absmax.n_elements, state.nested.block
        _check_count(nested[0], -(-n // block), f"{n:,} absmax in blocks of {block:,}")
        _check_count(nested[1], 256, "8-bit codes")


def check_int8(codes: StoredTensor, scb: StoredTensor) -> None:
    """Raise ValueError unless the codes are a matrix, and each row of it has an absmax."""
    if len(codes.shape) != 2:
        raise ValueError(f"{codes.name} of shape {list(codes.shape)} is not a matrix")
    _check_count(scb, codes.shape[0], f"the rows of shape {list(codes.shape)}")


def _check_count(stored: StoredTensor, n: int, of_what: str) -> None:
    if stored.n_elements != n:
        raise ValueError(
            f"{stored.name} of shape {list(stored.shape)} has {stored.n_elements:,} values, but "
            f"{of_what} need {n:,}"
        )


def read_state(stored: StoredTensor, *, nested: bool) -> State:
    """Return what the JSON of a quant_state says, its types and ranges checked."""
    # What it says of nested absmax counts where there are any, as bitsandbytes has it.
    if stored.n_bytes > BNB_MAX_QUANT_STATE:
        raise LimitExceeded(
            "BNB_MAX_QUANT_STATE",
            f"{stored.source.name}: {stored.name}: {stored.n_bytes:,} bytes of JSON",
        )
    try:
        given = json.loads(stored.read())
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ValueError("quant_state must hold a JSON object")
    kind, shape = given.get("quant_type"), given.get("shape")
    if not stored.name.endswith(f"{QUANT_STATE}{kind}") or kind not in ("nf4", "fp4"):
        raise ValueError(f"quant_type {kind!r:.40} does not match the name {stored.name}")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < END for n in shape):
        raise ValueError("quant_state must have a shape, a list of sizes")
    inner = None
    if nested and "nested_offset" in given:
        offset = given["nested_offset"]
        if type(offset) is not float and not (type(offset) is int and abs(offset) < END):
            raise ValueError("nested_offset of quant_state must be a number")
        inner = Nested(_block_size(given, "nested_blocksize"), float(offset))
    return State(kind, tuple(shape), _block_size(given, "blocksize"), inner)


def _block_size(given: dict[str, Any], key: str) -> int:
    block = given.get(key)
    if type(block) is not int or not 0 < block < END:
        raise ValueError(f"{key} of quant_state must be a positive whole number")
    return block


def four_bit_weight(parts: list[StoredTensor]) -> FourBitWeight:
    """Return the weight of parts that are all there, the quant_state last."""
    nested = len(parts) > 4
    state = read_state(parts[-1], nested=nested)
    _expect(parts[0], STORAGE)
    _expect(parts[1], ("U8",) if nested else ABSMAX)
    for part in parts[2:-1]:
        _expect(part, ("F32",))
    if nested and state.nested is None:
        raise ValueError("quant_state has no nested_blocksize and nested_offset for nested_absmax")
    check_four_bit(parts, state)
    kind = state.kind.upper()
    # bitsandbytes' kernels decode with their own codebook.
    own = memoryview(_core.BNB_CODEBOOKS[kind]).cast("f")
    if memoryview(parts[2].read()).cast("f") != own:
        raise parts[2].unsupported(
            f"{parts[2].name} is not the codebook of {kind}, which bitsandbytes' kernels decode "
            "with whatever a file says"
        )
    return FourBitWeight(parts[0].name, state.shape, tuple(parts), kind, state.block, state.nested)


def int8_weight(parts: list[StoredTensor]) -> Int8Weight:
    """Return the weight of its codes, its SCB and maybe its weight_format."""
    codes, scb, *marker = parts
    _expect(codes, ("I8",))
    _expect(scb, ("F32",))
    if marker and (marker[0].n_bytes > 8 or any(marker[0].read())):
        raise codes.unsupported(
            f"{codes.name} is not stored in rows, according to {marker[0].name}; bitsandbytes has "
            "dropped its other layouts"
        )
    check_int8(codes, scb)
    return Int8Weight(codes.name, codes.shape, tuple(parts))


def _expect(stored: StoredTensor, dtypes: tuple[str, ...]) -> None:
    if stored.dtype.name not in dtypes:
        raise stored.unsupported(
            f"{stored.name} has dtype {stored.dtype}; {' or '.join(dtypes)} is expected"
        )


# --- encodings ----------------------------------------------------------------------------------

SETTINGS = (
    Setting("is_nested", False, {True: "nested"}),
    Setting("block_size", 64, form="number"),
    Setting("has_second_zero", False, {True: "zeros"}),
)


def four_bit(
    kind: str = "nf4", block_size: int = 64, is_nested: bool = False, has_second_zero: bool = False
) -> Encoding:
    """Return `bnb-nf4`, `bnb-fp4-nested`, `bnb-nf4-128`, `bnb-fp4-zeros`, …"""
    codes = FourBitCodes(kind, block_size, is_nested, has_second_zero)
    layout = FourBitLayout(kind, block_size, is_nested)
    settings = vars(layout) | {"has_second_zero": has_second_zero}
    return Encoding(spelt(f"bnb-{kind}", settings, SETTINGS), layout, codes)


def int8() -> Encoding:
    """Return `bnb-int8`."""
    return Encoding("bnb-int8", Int8Layout(), Int8Codes())
