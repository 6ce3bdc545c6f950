"""The exception tree: any byte string gives a result or one of these errors.

`OSError` passes through.
"""

from __future__ import annotations

from typing import Any

from anamnesis.base.printable import printable, shortened

__all__ = [
    "AnamnesisError",
    "Cancelled",
    "DisallowedGlobal",
    "LimitExceeded",
    "OutputError",
    "ParseError",
    "UnsupportedError",
]


_LONGEST = 2000  # characters of a message; a name may have a hundred million


class AnamnesisError(Exception):
    """Base of everything this package raises about its input and its output.

    Names and texts of a file may stand in any text of an error, its attributes included. They are
    made printable here, once for all, and cut if they are long: neither a terminal nor a log that
    an error is written to can be made to show what it does not say.

    Attributes
    ----------
    message : str
        What is wrong, and where.
    remedy : str or None
        What to do about it, in our own words. Options are named as arguments with a value
        (`force=True replaces it`), so that the command line can name its own (`--force`).
    source, tensor : str or None
        The file and the stored tensor in question, where there is one of each.
    """

    source: str | None = None
    tensor: str | None = None

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(_tame(message))
        self.remedy = remedy

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, _tame(value) if isinstance(value, str) else value)

    @property
    def message(self) -> str:
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what it says, not the arguments that it was made of."""
        return _remade, (type(self), self.args), self.__dict__


def _tame(text: str) -> str:
    """Return a text that may hold names of a file as it can be shown anywhere."""
    if len(text) <= _LONGEST and text.isprintable():
        return text
    return _cut(printable(_cut(text)))  # escapes are longer than what they stand for


def _cut(text: str) -> str:
    """Leave out what is in the middle of a long text: its ends say what is wrong, and where."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 500]} … {text[-400:]}"


def _remade(kind: type[AnamnesisError], args: tuple[object, ...]) -> AnamnesisError:
    error = kind.__new__(kind)
    error.args = args
    return error


class ParseError(AnamnesisError):
    """The input is malformed.

    Attributes
    ----------
    offset : int or None
        Byte offset in the file where it was noticed, where one can be named.
    source : str or None
        The file, or what replaces it; empty for arrays, whose messages give no offset.
    """

    def __init__(
        self,
        message: str,
        *,
        offset: int | None = None,
        source: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.offset = offset
        self.source = source
        where = f"{source}: " if source else ""
        at = f" (at byte {offset:,})" if offset is not None and source != "" else ""
        super().__init__(f"{where}{message}{at}", remedy=remedy)


class UnsupportedError(AnamnesisError):
    """The input is well formed, but holds something that is not handled, or not safe to guess.

    Attributes
    ----------
    encoding : str or None
        In words, that of a weight which cannot be decoded yet: `MXFP4 (gpt-oss)`.
    """

    encoding: str | None = None


class LimitExceeded(AnamnesisError):
    """A `ParseLimits` budget or one of the permanent caps would be exceeded.

    Attributes
    ----------
    limit : str
        Name of the limit: a field of `ParseLimits`, or `<FORMAT>_MAX_<THING>`.
    """

    def __init__(self, limit: str, message: str) -> None:
        self.limit = limit
        super().__init__(f"{message} [{limit}]")


class DisallowedGlobal(AnamnesisError):
    """A pickle refers to a global that is not needed to rebuild tensors.

    Attributes
    ----------
    module, name : str
        The global, as the pickle spells it; of what does not print escapes, of a long one the
        beginning.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module = shortened(module)
        self.name = shortened(name)
        super().__init__(
            f"pickle refers to {self.module}.{self.name}, which no tensor needs",
            remedy="allow_foreign=True reads the tensors, and runs nothing",
        )


class Cancelled(AnamnesisError):
    """The caller stopped the call, by what it gave as `cancel`."""


class OutputError(AnamnesisError):
    """The output cannot be written as asked: it exists, is the input, or another run holds it."""
