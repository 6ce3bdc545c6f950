"""A GGUF header's bytes, one after the other, and none behind the header.

The reader knows at every moment the least that the header must still hold, for each key and each
tensor that is to come takes some bytes, and reads no further ahead than that. So it needs few
reads (their number grows with the logarithm of the counts), and never touches the tensors.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import anamnesis._parse as _parse
from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.formats.gguf.limits import GGUF_MAX_STRING

_WINDOW = 1 << 18  # bytes read at a time: they are still in cache when they are looked at


class NumberForm(NamedTuple):
    """How a file writes numbers."""

    version: int
    big_endian: bool

    @property
    def length_bytes(self) -> int:
        """Width of counts, lengths and dimensions."""
        return 4 if self.version == 1 else 8

    @property
    def order(self) -> str:
        """The byte order, as `struct` spells it."""
        return ">" if self.big_endian else "<"

    @property
    def length_code(self) -> str:
        """The type of counts, lengths and dimensions, as `struct` spells it."""
        return "I" if self.version == 1 else "Q"

    @property
    def smallest_key(self) -> int:
        """The least number of bytes that a key takes: an empty name, a type, a byte."""
        return self.length_bytes + 4 + 1

    @property
    def smallest_entry(self) -> int:
        """The least number of bytes that a tensor's row takes: no name, no dimensions."""
        return self.length_bytes + 4 + 4 + 8


class HeaderReader:
    """A cursor over a header."""

    def __init__(self, source: Source, encoding: NumberForm, budget: Budget, offset: int) -> None:
        self.source = source
        self.encoding = encoding
        self.budget = budget
        self.owed = 0
        self._length = struct.Struct(encoding.order + encoding.length_code)
        self._u32 = struct.Struct(encoding.order + "I")
        self._base = offset  # where the buffer's first byte lies in the file
        self._pos = self._end = 0  # the cursor, and the end of what was read, in the buffer
        self._buffer = memoryview(bytearray())
        single = budget.limits.max_single_alloc
        self._window = _WINDOW if single is None else min(_WINDOW, single)

    @property
    def offset(self) -> int:
        """The position of the cursor in the file."""
        return self._base + self._pos

    @property
    def left(self) -> int:
        """Bytes between the cursor and the end of the file."""
        return self.source.size - self.offset

    def error(self, message: str, offset: int | None = None) -> ParseError:
        """Return an error at `offset`, by default the cursor's."""
        return self.source.error(message, self.offset if offset is None else offset)

    def exceeded(self, limit: str, message: str, most: int | None = None) -> LimitExceeded:
        """Return the error for one of the permanent caps."""
        allowed = "" if most is None else f"; {most:,} are allowed"
        return self.source.exceeded(limit, f"{message}{allowed} (at byte {self.offset:,})")

    def require(self, n: int, n_bytes: int, what: str) -> None:
        """Refuse `n` things that take at least `n_bytes` in all, if the file ends before."""
        if n_bytes > self.left:
            raise self.error(
                f"{n:,} {what} take at least {n_bytes:,} bytes, but only {self.left:,} follow:"
                " the file is truncated or malformed"
            )

    # --- primitives ----------------------------------------------------------------------------

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the numbers of `layout`."""
        pos = self._take(layout.size)  # first: it may change the buffer
        return layout.unpack_from(self._buffer, pos)

    def u32(self) -> int:
        """Return a number of 4 bytes."""
        value: int = self.unpack(self._u32)[0]
        return value

    def length(self) -> int:
        """Return a count or a length."""
        value: int = self.unpack(self._length)[0]
        return value

    def raw(self, n_bytes: int) -> bytes:
        pos = self._take(n_bytes)
        return bytes(self._buffer[pos : pos + n_bytes])

    def name(self, limit: str, longest: int, what: str) -> str:
        """Return a key or a name, which must be UTF-8 and not over `longest`, a cap's value."""
        n_bytes = self.length()
        if n_bytes > longest:
            raise self.exceeded(limit, f"{what} of {n_bytes:,} bytes", longest)
        self.budget.alloc(n_bytes, what)
        raw = self.raw(n_bytes)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not UTF-8: {raw[:40]!r}", self.offset - n_bytes) from None

    def string_length(self) -> int:
        """Return the length of a metadata string, checked."""
        n_bytes = self.length()
        if n_bytes > GGUF_MAX_STRING:
            raise self.exceeded(
                "GGUF_MAX_STRING", f"a string of {n_bytes:,} bytes", GGUF_MAX_STRING
            )
        if n_bytes > self.left:
            raise self.error(f"a string of {n_bytes:,} bytes, of which {self.left:,} follow")
        return n_bytes

    # --- stepping over -------------------------------------------------------------------------

    def skip(self, n_bytes: int) -> None:
        """Step over bytes, without reading those that were not read yet."""
        if n_bytes > self.left:
            raise self.error(f"{n_bytes:,} bytes are needed, but only {self.left:,} follow")
        self._pos += n_bytes
        self._jump()

    def skip_strings(self, n: int) -> None:
        """Step over strings, each found by the one before."""
        form = self.encoding
        owed_behind = self.owed
        while n:
            self.owed = owed_behind + (n - 1) * form.length_bytes
            self._ensure(form.length_bytes)
            self._pos, done = _parse.skip_strings(
                self._buffer[: self._end],
                self._pos,
                n,
                form.length_bytes,
                form.big_endian,
                GGUF_MAX_STRING,
            )
            if not done:
                self.string_length()  # it is too long: says so
            if self.left < 0:
                raise self.source.error(
                    f"a string ends at byte {self.offset:,}, the file at {self.source.size:,}",
                    self.source.size,
                )
            self._jump()
            n -= done
        self.owed = owed_behind

    # --- the buffer ----------------------------------------------------------------------------

    def _take(self, n_bytes: int) -> int:
        """Step over bytes that the buffer then holds; return where they begin in it."""
        self._ensure(n_bytes)
        pos = self._pos
        self._pos = pos + n_bytes
        return pos

    def _ensure(self, n_bytes: int) -> None:
        """Read on until the buffer holds `n_bytes` from the cursor on, and what is surely owed."""
        if self._pos + n_bytes <= self._end:
            return
        if n_bytes > self.left:
            raise self.error(
                f"the header ends after {self.source.size:,} bytes, {n_bytes - self.left:,} more"
                " are needed"
            )
        wanted = min(max(n_bytes, min(n_bytes + self.owed, self._window)), self.left)
        kept = self._buffer[self._pos : self._end]
        buffer = self._buffer
        if wanted > len(buffer):
            size = max(wanted, min(2 * len(buffer), self._window))
            self.budget.alloc(size, "the header's window")
            buffer = memoryview(bytearray(size))
        buffer[: len(kept)] = kept
        self._base += self._pos
        self._pos = 0
        self._buffer, self._end = buffer, wanted
        self.source.read_into(self._base + len(kept), buffer[len(kept) : wanted])

    def _jump(self) -> None:
        """Let go of the buffer if the cursor is past it."""
        if self._pos > self._end:
            self._base += self._pos
            self._pos = self._end = 0
