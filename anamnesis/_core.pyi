from typing import NamedTuple

from typing_extensions import Buffer

LEVELS: dict[str, int]
OUTPUTS: dict[str, int]
CODES: dict[str, int]
SCALES: dict[str, int]
FLOATS: dict[str, int]

class Kernel(NamedTuple):
    family: str
    name: str
    native: tuple[str, ...]

def supported_levels() -> tuple[str, ...]: ...
def kernels() -> tuple[Kernel, ...]: ...
def dequantize_scaled(
    code: int,
    out: int,
    src: Buffer,
    dst: Buffer,
    rows: int,
    cols: int,
    scales: Buffer,
    scale: int,
    scale_stride: int,
    block_rows: int,
    block_cols: int,
    row_phase: int = 0,
    col_phase: int = 0,
    level: int | None = None,
) -> int: ...
def convert(
    src_dtype: int, out: int, src: Buffer, dst: Buffer, level: int | None = None
) -> int: ...
