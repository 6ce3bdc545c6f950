"""What arguments must be, by their type hints.

What is plainly meant is taken; all else is refused in one line that names the argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial, wraps
from operator import index
from typing import Any, TypeAlias, TypeVar, cast

from anamnesis.base.printable import kind_of, shown

F = TypeVar("F", bound=Callable[..., Any])

Size: TypeAlias = int | str  # of bytes: 5_000_000_000, "5GB", "2GiB"
Word: TypeAlias = str | Enum  # a name, or a member of gguf-py's enums, which has one
Globs: TypeAlias = str | Iterable[str]
Path: TypeAlias = str | os.PathLike[str]
Lora: TypeAlias = Path | Iterable[Path] | Mapping[Path, float]  # adapters, and their weights


def taken(name: str, value: Any, hint: str) -> Any:
    """Return the value that an argument means, by its type hint."""
    kind = hint.removesuffix(" | None")
    if value is None and kind != hint:
        return None
    take = _TAKE.get(kind)
    return value if take is None else take(name, value)


def checked(function: F, more: Mapping[str, Any] | None = None) -> F:
    """Return a function that takes its arguments, and `more` keywords, by their type hints."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    said = {**function.__annotations__, **(more or {})}
    hints = {name: hint_of(hint) for name, hint in said.items()}

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        placed = [taken(n, v, hints.get(n, "")) for n, v in zip(names, args, strict=False)]
        rest = {n: taken(n, v, hints.get(n, "")) for n, v in given.items()}
        return function(*placed, *args[len(placed) :], **rest)

    return cast("F", call)


def hint_of(annotation: Any) -> str:
    """Return a type hint as it is written."""
    return str(getattr(annotation, "__forward_arg__", annotation))


# --- the kinds ------------------------------------------------------------------------------------


def check_kind(name: str, value: Any, kind: type, *, optional: bool = True) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, kind) and not (optional and value is None):
        raise TypeError(f"{name} must be a {kind.__name__}, not {shown(value)}")


def check_mapping(name: str, value: Any, of: tuple[type, ...] = ()) -> Any:
    """Return a mapping from texts, to values of a type; no list of pairs, say."""
    if not isinstance(value, Mapping):
        such = "{'*': function}" if callable(value) else "a dict"
        raise TypeError(f"{name} must be a mapping, such as {such}, not {kind_of(value)}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, of or object):
            raise TypeError(f"{name} cannot map {shown(key)} to {shown(item)}")
    return value


def as_float(text: str) -> float:
    """Return the number that a text is."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


def whole_number(name: str, value: Any, *, least: int | None = 1) -> int:
    """Return a number of at least `least`."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {shown(value)}") from None
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def word(name: str, value: Any) -> str:
    """Return a text; of a member of an enum, such as gguf-py's, its name."""
    if isinstance(value, Enum) and not isinstance(value, str):
        value = value.name.removeprefix("MOSTLY_").removeprefix("ALL_")  # of llama.cpp's files
    check_kind(name, value, str, optional=False)
    return str(value)


def size(name: str, value: Any) -> int:
    """Return a number of bytes, which a text may say in their units."""
    if not isinstance(value, str):
        return whole_number(name, value, least=None)
    from anamnesis.base.sizes import parse_size

    try:
        return parse_size(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def globs(name: str, value: Any) -> tuple[str, ...]:
    """Return patterns; a single one may come without a list around it."""
    if isinstance(value, str):
        return (value,)
    try:
        given: tuple[Any, ...] = tuple(value)
    except TypeError:
        given = (None,)
    if not all(isinstance(one, str) for one in given):
        raise TypeError(f"{name} must be a str or several, not {shown(value)}")
    return given


def pair(name: str, value: Any) -> tuple[int, int]:
    """Return two whole numbers of at least 1."""
    why = f"{name} must be two whole numbers, rows and columns, not {shown(value)}"
    if isinstance(value, (str, bytes)):
        raise TypeError(why)
    try:
        rows, columns = map(index, value)
    except (TypeError, ValueError):
        raise TypeError(why) from None
    if min(rows, columns) < 1:
        raise ValueError(f"{name} must be at least 1 by 1, not {shown(value)}")
    return rows, columns


def shape(name: str, value: Any) -> tuple[int, ...]:
    """Return whole numbers from 0 on."""
    try:
        return tuple([whole_number(name, one, least=0) for one in value])
    except TypeError:
        raise TypeError(f"{name} must be whole numbers, not {shown(value)}") from None


def check_path(name: str, value: Any) -> Any:
    """Return a path as it is given."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {shown(value)}")
    if "\0" in os.fspath(value):
        raise ValueError(f"{name} must be a path, without null characters: {shown(value)}")
    return value


def number(name: str, value: Any) -> Any:
    """Return a real number as it is given."""
    try:
        float("" if isinstance(value, (str, bytes)) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is torch's, of many
        raise TypeError(f"{name} must be a number, not {shown(value)}") from None
    return value


def _flag(name: str, value: Any) -> bool | None:
    if value is not None and type(value).__name__ not in ("bool", "bool_", "int"):
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return None if value is None else bool(value)


def _progress(name: str, value: Any) -> Any:
    if value is not True and not callable(value):
        raise TypeError(f"{name} must be a function or True, not {shown(value)}")
    return value


def _array(name: str, value: Any) -> Any:
    from anamnesis.base.arrays import numpy_of

    return numpy_of(name, value)


def _names(name: str, value: Any) -> Any:
    several = value if isinstance(value, (list, tuple)) else [value]
    return tuple([word(name, one) for one in several])


def _words(name: str, value: Any) -> dict[str, str]:
    check_mapping(name, value, (str, Enum))
    return {key: word(name, item) for key, item in value.items()}


def _layers(name: str, value: Any) -> tuple[int, ...]:
    several = value if isinstance(value, Iterable) else [value]
    return tuple(sorted({whole_number(name, one, least=0) for one in several}))


def _adapters(name: str, value: Any) -> dict[str, float]:
    """Return the paths of adapters, with the weight of each: 1 if none is given."""
    if isinstance(value, (str, os.PathLike)):
        value = [value]
    try:
        given = list(value.items() if isinstance(value, Mapping) else value)
    except TypeError:
        raise TypeError(f"{name} must be a path, several, or a mapping to weights") from None
    found: dict[str, float] = {}
    for one in given:
        path, weight = one if isinstance(one, tuple) else (one, 1.0)
        place = os.fspath(check_path(name, path))
        place = place if "://" in place else os.path.abspath(place)  # an address stays one
        if place in found:
            raise ValueError(f"{name}: {path} is named twice; give it the sum of both weights")
        found[place] = number(f"{name}: the weight of {path}", weight)
        if not abs(found[place]) < float("inf"):
            raise ValueError(f"{name}: the weight of {path} must be finite, not {weight}")
    return found


_TAKE: dict[str, Callable[[str, Any], Any]] = {
    "bool": _flag,
    "int": partial(whole_number, least=None),
    "float": number,
    "Size": size,
    "str": word,
    "Word": word,
    **dict.fromkeys(
        ("LayoutName", "LevelName", "MathName", "ExpertsName", "NamesName", "FrameworkName"), word
    ),
    "Globs": globs,
    "str | os.PathLike[str]": check_path,
    "Lora": _adapters,
    "tuple[int, int]": pair,
    "tuple[int, ...]": shape,
    "int | Sequence[int]": _layers,
    **dict.fromkeys(("Mapping[str, Any]", "Mapping[str, Named]"), check_mapping),
    **dict.fromkeys(("Mapping[str, str]", "Mapping[str, Word]"), _words),
    "Word | Sequence[Word]": _names,
    "Progress | Literal[True]": _progress,
    "NDArray[Any]": _array,
    "ArrayLike": _array,
}
