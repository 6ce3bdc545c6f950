"""Many strings as an array of GGUF has them, in a tenth of what Python's take."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import anamnesis._parse as _parse

_LENGTH = struct.Struct("<Q")
_FEW = 4096  # strings that exist at the same time while all are looked at


class Strings:
    """Strings that are only added to: the length of each in 8 bytes, then its UTF-8."""

    # Bytes that are not UTF-8 become lone surrogates, as in `surrogateescape`.

    def __init__(
        self, texts: Iterable[str] = (), raw: bytes | memoryview = b"", n: int = 0
    ) -> None:
        self.raw = bytearray(raw)
        self._n = n
        self.extend(texts)

    def extend(self, texts: Iterable[str]) -> None:
        """Add strings; `UnicodeEncodeError` if UTF-8 has no such text."""
        rest = iter(texts)
        while some := [text.encode() for text in islice(rest, _FEW)]:
            lengths = map(_LENGTH.pack, map(len, some))
            self.raw += b"".join(chain.from_iterable(zip(lengths, some, strict=True)))
            self._n += len(some)

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[str]:
        at = 0
        for done in range(0, self._n, _FEW):
            few = min(_FEW, self._n - done)
            texts, at = _parse.read_strings(self.raw, at, few, _LENGTH.size, False)
            yield from texts

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Strings):
            return self.raw == other.raw
        return self.tolist() == list(other) if isinstance(other, (list, tuple)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        return f"<{len(self):,} strings>"
