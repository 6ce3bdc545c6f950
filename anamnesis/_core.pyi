from typing import NamedTuple, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Bytes: TypeAlias = Buffer | npt.NDArray[np.uint8]
_Floats: TypeAlias = Buffer | npt.NDArray[np.float32]

LEVELS: dict[str, int]
OUTPUTS: dict[str, int]
ABSMAX: dict[str, int]
CODES: dict[str, int]
SCALES: dict[str, int]
FLOATS: dict[str, int]
BLOCKS: dict[str, int]
PACKINGS: dict[str, int]
INTEGERS: dict[str, int]
INTEGER_UNITS: dict[str, tuple[int, int]]  # so many codes in so many bytes
TRELLISES: dict[str, int]
ZEROS: dict[str, int]
SOURCES: dict[str, int]
QUANTIZERS: dict[str, int]
RULES: dict[str, int]
PACKERS: dict[str, int]
ENCODERS: dict[str, int]
PACKING_RULES: dict[str, int]
ROUNDINGS: dict[str, int]
FLOAT_WORDS: dict[str, tuple[int, int, int, int]]
BNB_CODEBOOKS: dict[str, bytes]
STREAMED_BYTES: int
STREAMED_FROM: tuple[int, int]
TILE_ROWS: int
PANEL: int
W4A8_SIZE: int
CACHE_LINE: int
TRELLIS_BLOCK: int

class Kernel(NamedTuple):
    family: str
    name: str
    native: tuple[str, ...]

class BlockType(NamedTuple):
    id: int
    name: str
    elements: int
    bytes: int
    native: tuple[str, ...]

class Compared(NamedTuple):
    n_different: int  # in bits
    first_different: int | None
    n_not_finite: int  # pairs of which one is infinite or a NaN; in nothing that follows
    largest: float  # |a - b|, rounded to float32: infinite beyond that
    largest_at: int | None  # its first place
    absolute: float  # the sum of |a - b|
    error: float  # of (a - b)**2
    power_a: float  # of a**2
    power_b: float
    product: float  # of a * b

class Checked(NamedTuple):
    n_nan: int
    first_nan: int | None
    n_infinite: int
    first_infinite: int | None
    n_zero: int  # of both signs
    largest: int  # finite magnitude, in bits
    is_constant: bool  # whether all words are the same, if there are any
    n_zero_rows: int
    first_zero_row: int | None

def supported_levels() -> tuple[str, ...]: ...
def kernels() -> tuple[Kernel, ...]: ...
def encoder_weights(type: int) -> int: ...
def block_types() -> tuple[BlockType, ...]: ...
def dequantize_scaled(
    code: int,
    out: int,
    src: _Bytes,
    dst: _Bytes,
    rows: int,
    cols: int,
    scales: _Bytes,
    scale: int,
    scale_stride: int,
    block_rows: int,
    block_cols: int,
    row_phase: int = 0,
    col_phase: int = 0,
    level: int | None = None,
    rounded: int | None = None,
) -> int: ...
def dequantize_absmax(
    code: int,
    out: int,
    src: _Bytes,
    dst: _Bytes,
    count: int,
    codebook: _Bytes,
    absmax: _Bytes,
    absmax_dtype: int,
    block: int,
    phase: int = 0,
    level: int | None = None,
) -> int: ...
def recover_absmax(
    src: _Bytes,
    dst: _Bytes,
    codebook: _Bytes,
    absmax: _Bytes,
    block: int,
    offset: float,
    phase: int = 0,
) -> None: ...
def convert(
    src_dtype: int, out: int, src: _Bytes, dst: _Bytes, level: int | None = None
) -> int: ...
def add_product(
    values: _Floats,
    left: _Floats,
    right: _Floats,
    scale: float,
    cols: int,
    inner: int,
    first: int = 0,
    level: int | None = None,
) -> None: ...
def dequantize_blocks(
    type: int, out: int, src: _Bytes, dst: _Bytes, level: int | None = None
) -> int: ...
def encode_blocks(
    type: int,
    src: _Bytes,
    rows: int,
    cols: int,
    weights: _Bytes,
    dst: _Bytes,
    measure: bool = False,
    level: int | None = None,
) -> tuple[float, float, float, float] | int: ...
def dequantize_packed(
    packing: int,
    out: int,
    codes: _Bytes,
    dst: _Bytes,
    rows: int,
    cols: int,
    zeros: _Bytes,
    scales: _Bytes,
    scale: int,
    zeros_less_one: bool,
    group_size: int,
    first_col: int,
    groups: _Bytes,
    level: int | None = None,
    first_row: int = 0,
    n_rows: int | None = None,
) -> int: ...
def dequantize_integers(
    code: int,
    out: int,
    src: _Bytes,
    dst: _Bytes,
    rows: int,
    cols: int,
    stride: int,
    scales: _Bytes,
    scale: int,
    scale_stride: int,
    block_rows: int,
    block_cols: int,
    zeros_kind: int,
    zeros: _Bytes,
    constant: int = 0,
    zeros_phase: int = 0,
    biases: _Bytes = ...,
    groups: _Bytes = ...,
    row_phase: int = 0,
    col_phase: int = 0,
    phase: int = 0,
    planes: tuple[int, int, int, int, int] = (0, 0, 1, 0, 1),
    level: int | None = None,
    rounded: int | None = None,
    roundings: int = 0,
) -> int: ...
def rotate(src: _Bytes, dst: _Bytes, group: int, level: int | None = None) -> None: ...
def w4a8_fit(
    values: _Floats,
    cols: int,
    numbers: _Floats,
    scales: _Floats,
    channels: _Floats,
    level: int | None = None,
) -> None: ...
def w4a8_code(
    values: _Floats,
    cols: int,
    numbers: _Floats,
    scales: _Floats,
    channels: _Floats,
    codes: _Bytes,
    chosen: _Bytes,
    level: int | None = None,
) -> None: ...
def dequantize_rotated(
    out: int,
    src: _Bytes,
    dst: _Bytes,
    rows: int,
    cols: int,
    scales: _Bytes,
    group: int,
    level: int | None = None,
) -> int: ...
def dequantize_trellis(
    code: int,
    out: int,
    tiles: _Bytes,
    dst: _Bytes,
    bits: int,
    cols: int,
    in_scales: _Bytes,
    out_scales: _Bytes,
    first_row: int = 0,
    n_rows: int | None = None,
    first_col: int = 0,
    n_cols: int | None = None,
    level: int | None = None,
) -> int: ...
def quantize(
    source: int,
    code: int,
    rule: int,
    src: _Bytes,
    rows: int,
    cols: int,
    block_rows: int,
    block_cols: int,
    codes: _Bytes,
    scales: _Bytes,
    zeros: _Bytes,
    found: _Bytes = ...,
    measure: bool = False,
    level: int | None = None,
) -> tuple[float, float, float, float] | None: ...
def pack(
    source: int,
    code: int,
    rule: int,
    src: _Bytes,
    rows: int,
    cols: int,
    group: int,
    codes: _Bytes,
    scales: _Bytes,
    shifts: _Bytes,
    measure: bool = ...,
    level: int | None = ...,
) -> tuple[float, float, float, float] | None: ...
def amax(source: int, src: _Bytes, level: int | None = None) -> float | None: ...
def blocks_amax(
    source: int, src: _Bytes, block: int, dst: _Bytes, level: int | None = None
) -> bool: ...
def compare(
    a: _Bytes,
    b: _Bytes,
    level: int | None = None,
    source: int = ...,
    source_b: int | None = None,
) -> Compared: ...
def check_values(dtype: str, src: _Bytes, cols: int, level: int | None = None) -> Checked: ...

@final
class Sum:
    def __new__(cls, total: int) -> Self: ...
    def add(self, values: Buffer | npt.NDArray[np.float32]) -> float | None: ...
