"""Ranges of an object elsewhere: tried again, and all of one content."""

from __future__ import annotations

import errno
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.sources.urls import shown_url

_WAITS = (0.0, 0.1, 0.3, 0.9, 2.0, 5.0)  # seconds before each try

Item = TypeVar("Item")
Made = TypeVar("Made")


class PassingError(Exception):
    """A failure that another try may not have; `wait` is how long a server asks to wait."""

    def __init__(self, message: str, wait: float = 0) -> None:
        super().__init__(message)
        self.wait = wait


class Ranges(ABC):
    """An object that is asked for ranges. The first answer gives its size, and what identifies it.

    Each later answer must be of the same object.
    """

    name: str
    size = -1
    tag: str | None = None
    modified_ns = 0

    @abstractmethod
    def chunks(self, start: int, stop: int) -> Iterator[bytes | memoryview]:
        """Ask once for a range, and yield its bytes, of which a failure may cut some off."""

    def fill(self, start: int, view: memoryview) -> int:
        """Read from `start` on, to the end of the view or of the object; return how many bytes.

        A body that is cut is continued where it stops.
        """
        done, why, asked = 0, "", 0.0
        for wait in _WAITS:
            if wait := max(asked, wait * random.uniform(0.5, 1)):
                time.sleep(wait)
            try:
                for chunk in self.chunks(start + done, start + len(view)):
                    if done + len(chunk) > len(view):
                        raise ParseError("the server sends more than it is asked", source=self.name)
                    view[done : done + len(chunk)] = chunk
                    done += len(chunk)
                if done >= min(len(view), self.size - start):
                    return done
                why, asked = "the answer is cut off", 0.0
            except PassingError as error:
                why, asked = str(error), error.wait
        raise ConnectionError(
            errno.ECONNABORTED, f"gave up after {len(_WAITS)} tries: {why}", self.name
        )

    def replaced(self) -> ParseError:
        """Return the error that it is another object now."""
        return ParseError("was replaced while it was read; run again", source=self.name)


def at_once(do: Callable[[Item], Made], items: Iterable[Item], most: int) -> Iterator[Made]:
    """Do something for each of some items, for some at the same time; in their order."""
    pool = ThreadPoolExecutor(most)
    try:
        yield from pool.map(do, items)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def extra(name: str, url: str) -> Iterator[None]:
    """Say which extra of this package has what cannot be imported."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "another package").partition(".")[0]
        raise UnsupportedError(
            f"{shown_url(url)}: {package} is needed to read it",
            remedy=f"pip install 'anamnesis-tensors[{name}]'",
        ) from None
