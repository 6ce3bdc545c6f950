"""Streams that take less than they are given, or do not say how much."""

from __future__ import annotations

import io

import pytest

import anamnesis as an
from anamnesis.convert.write.sinks import write_all

DATA = bytes(range(256)) * 9


class Short:
    """Takes a few bytes at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: bytes, /) -> int:
        self.taken += data[:100]
        return len(data[:100])


class Uncounted(Short):
    """Takes all, and returns nothing."""

    def write(self, data: bytes, /) -> None:  # type: ignore[override]
        self.taken += data


class Nothing:
    """Takes nothing."""

    def write(self, data: bytes, /) -> int:
        return 0


class Blocked(io.RawIOBase):
    """Would have to wait."""

    def write(self, data: object, /) -> None:
        return None


@pytest.mark.parametrize("stream", [Short(), Uncounted()])
def test_all_is_written(stream: Short) -> None:
    write_all(stream, DATA)
    assert stream.taken == DATA


@pytest.mark.parametrize(("stream", "said"), [(Nothing(), "0"), (Blocked(), "None")])
def test_stream_that_takes_nothing(stream: Nothing | Blocked, said: str) -> None:
    with pytest.raises(an.OutputError, match=rf"write\(\) returned {said}: "):
        write_all(stream, DATA)
