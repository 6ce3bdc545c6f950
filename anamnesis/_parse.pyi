from typing import Any, TypeAlias, TypeVar

from typing_extensions import Buffer

_TensorEntry: TypeAlias = tuple[str, str, tuple[int, ...], int, int, int]

_Tuple = TypeVar("_Tuple", bound=tuple[Any, ...])

def skip_strings(
    src: Buffer, pos: int, count: int, length_bytes: int, big_endian: bool, longest: int
) -> tuple[int, int]: ...
def read_strings(
    src: Buffer, pos: int, count: int, length_bytes: int, big_endian: bool
) -> tuple[list[str], int]: ...
def tensor_entries(header: bytes, pos: int, count: int) -> tuple[list[_TensorEntry], int, bool]: ...
def zip_members(
    end: bytes, end_start: int, make: type[_Tuple]
) -> tuple[int, dict[str, _Tuple], dict[int, int]] | None: ...
