"""Many strings as an array of GGUF has them, in a tenth of what Python's take."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

_LENGTH = struct.Struct("<Q")


class Strings(Sequence[str]):
    """Strings that are only added to: the length of each in 8 bytes, then its UTF-8."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.raw = bytearray()
        self._starts = array("L")
        for text in texts:
            self.add(text.encode())

    def add(self, text: bytes) -> None:
        """Add a string by its UTF-8."""
        self._starts.append(len(self.raw))
        self.raw += _LENGTH.pack(len(text))
        self.raw += text

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self._at(start) for start in self._starts[i]]
        return self._at(self._starts[i])

    def __iter__(self) -> Iterator[str]:
        return map(self._at, self._starts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Strings):
            return self.raw == other.raw
        if not isinstance(other, (list, tuple)) or len(other) != len(self):
            return NotImplemented if not isinstance(other, (list, tuple)) else False
        return all(one == text for one, text in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[str]:
        """Return them as Python has them."""
        return list(self)

    def __repr__(self) -> str:
        return f"<{len(self):,} strings>"

    def _at(self, start: int) -> str:
        first = start + _LENGTH.size
        (n,) = _LENGTH.unpack_from(self.raw, start)
        return self.raw[first : first + n].decode()
