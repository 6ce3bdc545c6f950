"""File objects that cannot seek are copied, and read like any other."""

from __future__ import annotations

import io
import os
import threading
from typing import BinaryIO

import numpy as np
import pytest

import anamnesis as an
from anamnesis.sources import stream


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.arange(100_000, dtype=np.float32))
    return file.getvalue()


def piped(data: bytes) -> BinaryIO:
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb") as file:
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return open(reading, "rb")


class OnlyReads:
    """What has no `seek` at all."""

    def __init__(self, data: bytes) -> None:
        self.read = io.BytesIO(data).read


@pytest.mark.parametrize("most", [1000, 16 << 20])
@pytest.mark.parametrize("opened", [piped, OnlyReads])
def test_parse(opened: type[OnlyReads], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_IN_MEMORY", most)
    file = opened(npz())
    with an.parse(file) as model:  # type: ignore[arg-type]
        if isinstance(file, io.IOBase):
            file.close()
        assert model["a"].numpy("f32").tolist() == list(range(100_000))


def test_scan() -> None:
    with piped(npz()) as file:
        assert an.scan(file).verdict == "safe"


def test_what_gives_text() -> None:
    class Text:
        def read(self, size: int) -> str:
            return "a"

    with pytest.raises(TypeError, match="must return bytes"):
        an.parse(Text())  # type: ignore[arg-type]


def test_what_gives_nothing_yet() -> None:
    class Waits:
        def read(self, size: int) -> None:
            return None

    with pytest.raises(BlockingIOError):
        an.parse(Waits())  # type: ignore[arg-type]
