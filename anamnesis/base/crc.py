"""CRC-32 of bytes in any order: the CRC of two runs from the CRC of each."""

from __future__ import annotations

import sys
import zlib
from bisect import bisect_left
from functools import cache, lru_cache
from typing import NamedTuple

import anamnesis._io as _io

_POLYNOMIAL = 0xEDB88320  # without x^32; the bit of x^31 is the lowest, as in all that follows
_ONE = 1 << 31
_BYTE = _ONE >> 8  # x^8

# Bytes that zlib sums up sooner than a call of ours is set up.
_FEW = 1 << 10 if _io.CRC32_BITS else sys.maxsize


def crc32(data: memoryview | bytes, crc: int = 0) -> int:
    """Return the CRC-32 of bytes that follow those of `crc`; many times as fast as zlib's."""
    return zlib.crc32(data, crc) if len(data) < _FEW else _io.crc32(data, crc)


def combined(first: int, second: int, n_second: int) -> int:
    """Return the CRC-32 of some bytes and `n_second` others, of their CRCs."""
    return _product(first, _shift(n_second)) ^ second


def share(crc: int, n_behind: int) -> int:
    """Return what a piece of bytes, given its CRC-32, adds to the CRC-32 of the whole."""
    # `n_behind` bytes follow them there. The shares of all parts, in any order, are joined by XOR.
    return _product(crc, _shift(n_behind))


@lru_cache(maxsize=1024)
def _shift(n_bytes: int) -> int:
    """Return x^(8 n), of powers by each digit of n to the base of 65,536."""
    power = _ONE
    for place in range((n_bytes.bit_length() + 15) // 16):
        digit = n_bytes >> 16 * place & 0xFFFF
        if digit:
            factor = _digit_power(place, digit)
            power = factor if power == _ONE else _product(power, factor)
    return power


@cache
def _digit_power(place: int, digit: int) -> int:
    """Return x^(8 d 65536^place), by squaring."""
    if digit == 1:
        if place == 0:
            return _BYTE
        half = _digit_power(place - 1, 1 << 15)
        return _product(half, half)
    half = _digit_power(place, digit // 2)
    power = _product(half, half)
    return _product(power, _digit_power(place, 1)) if digit % 2 else power


def _product(a: int, b: int) -> int:
    """Multiply two polynomials over GF(2), modulo the polynomial of CRC-32."""
    product = 0
    for i in range(31, -1, -1):
        if a >> i & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


class Run(NamedTuple):
    """Bytes `start` to `stop` of something, and their CRC-32."""

    start: int
    stop: int
    crc: int


class RunsRead:
    """What was read of something: the fewest runs, in order."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def add(self, new: Run, data: memoryview) -> None:
        """Add a run that was read, and its bytes; what is known of them already counts once."""
        first = behind = bisect_left(self.runs, new.start, key=lambda run: run.stop)
        joined: Run | None = None
        at = new.start
        while behind < len(self.runs) and self.runs[behind].start <= new.stop:
            known = self.runs[behind]
            if at < known.start:
                joined = _joined(joined, _part(new, data, at, known.start))
            joined = _joined(joined, known)
            at = known.stop
            behind += 1
        if at < new.stop:
            joined = _joined(joined, _part(new, data, at, new.stop))
        if joined is not None:
            self.runs[first:behind] = [joined]


def _part(run: Run, data: memoryview, start: int, stop: int) -> Run:
    if (start, stop) == (run.start, run.stop):
        return run
    return Run(start, stop, crc32(data[start - run.start : stop - run.start]))


def _joined(before: Run | None, run: Run) -> Run:
    if before is None:
        return run
    return Run(before.start, run.stop, combined(before.crc, run.crc, run.stop - run.start))
