from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Bytes: TypeAlias = Buffer | npt.NDArray[np.uint8]

LEVELS: dict[str, int]
OUTPUTS: dict[str, int]
ABSMAX: dict[str, int]
CODES: dict[str, int]
SCALES: dict[str, int]
FLOATS: dict[str, int]
BLOCKS: dict[str, int]
PACKINGS: dict[str, int]
STREAMED_BYTES: int
TILE_ROWS: int
CACHE_LINE: int
CRC32_SLICE: int
TORCH_LONGEST: int
USUAL_OPCODES: bytes
CRC32_BITS: tuple[int, ...]

_TensorEntry: TypeAlias = tuple[str, str, tuple[int, ...], int, int, int]

_Tuple = TypeVar("_Tuple", bound=tuple[Any, ...])

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

def supported_levels() -> tuple[str, ...]: ...
def kernels() -> tuple[Kernel, ...]: ...
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
def dequantize_blocks(
    type: int, out: int, src: _Bytes, dst: _Bytes, level: int | None = None
) -> int: ...
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
def skip_strings(
    src: _Bytes, pos: int, count: int, length_bytes: int, big_endian: bool, longest: int
) -> tuple[int, int]: ...
def read_strings(
    src: _Bytes, pos: int, count: int, length_bytes: int, big_endian: bool
) -> tuple[list[str], int]: ...
def pread_rows(fd: int, offset: int, stride: int, row_bytes: int, dst: _Bytes) -> int: ...
def copy_rows(src: _Bytes, offset: int, stride: int, row_bytes: int, dst: _Bytes) -> None: ...
def crc32(src: _Bytes, crc: int, bits: int | None = None) -> int: ...
def pread_crc32(fd: int, offset: int, dst: _Bytes) -> tuple[int, int]: ...
def tensor_entries(
    header: _Bytes, pos: int, count: int
) -> tuple[list[_TensorEntry], int, bool]: ...
def zip_members(
    end: bytes, end_start: int, make: type[_Tuple]
) -> tuple[int, dict[str, _Tuple], dict[int, int]] | None: ...
def run_usual(machine: Any, pos: int, costs: bytes, types: tuple[Any, ...]) -> int: ...
