"""Kinds of options: how a command line and a recipe write their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.arguments import as_float, whole_number

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target

# Parsers import what they need when they run: a command has many options, and is given few.

_MOST = 2**31


class Kind(NamedTuple):
    """What values an option takes; functions raise ValueError for others."""

    read: Callable[[str], Any] = str  # from a text of the command line
    metavar: str | None = None
    take: Callable[[Any], Any] | None = None  # from a value of a recipe; by default a text
    check: Callable[[str, Any], object] | None = None  # of an argument in Python, with its name
    listed: Callable[[], Iterable[str]] = tuple  # for completion
    choices: tuple[str, ...] = ()
    many: bool = False
    is_table: bool = False  # in a recipe
    path: Mapping[str, bool] | None = None  # as click.Path takes it
    value: Any = None  # of a flag without a text

    def taken(self, value: Any) -> Any:
        """Return the value that a recipe's means."""
        return self.read(_text(value)) if self.take is None else self.take(value)


def one_of(*choices: str) -> Kind:
    """Return the kind of options that take one of a few words."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise ValueError(f"{name} must be {_or(tuple(map(repr, choices)))}, not {value!r}")

    def take(value: Any) -> str:
        if _text(value) not in choices:
            raise ValueError(f"must be {_or(choices)}, not {value!r}")
        return _text(value)

    return Kind(take=take, check=check, choices=choices)


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(", ".join(words).rsplit(", ", 1))


# --- values in a recipe ---------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be a text, not {value!r}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"must be true or false, not {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else (_text(value),)


def _taken_size(value: Any) -> int:
    n_bytes: int = _size(str(value) if type(value) is int else _text(value))
    return n_bytes


def _taken_target(value: Any) -> str:
    return read_target(_text(value)).text


def _taken_override(value: Any) -> str:
    _check_encoding(_text(value), "keep", "drop")
    return _text(value)


def _taken_layers(value: Any) -> tuple[int, ...]:
    several = value if isinstance(value, list) else [value]
    return tuple([whole_number("a layer", one, least=0) for one in several])


# --- texts of a command line ----------------------------------------------------------------------


def _of(module: str, name: str) -> Callable[[str], Any]:
    """Return a function of another module, which is imported when it is called."""
    return lambda text: getattr(import_module(f"anamnesis.{module}"), name)(text)


_size = _of("base.sizes", "parse_size")
_block_type = _of("convert.request.request", "block_type")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:10]) < _MOST):
        raise ValueError(f"{text!r} must be a whole number, 1 or more")
    return int(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _ratio(text: str) -> float:
    if not _float(text) >= 1:  # NaN is not, either
        raise ValueError(f"{text!r} must be a number, 1 or more")
    return _float(text)


def _bits(text: str) -> float:
    if not _float(text) > 0:
        raise ValueError(f"write a number above 0, such as 4.5, not {text!r}")
    return _float(text)


def _block(text: str) -> tuple[int, int]:
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(s.isdecimal() and 0 < int(s[:11]) < _MOST for s in sides):
        raise ValueError(f"{text!r} is not rows x columns, like 128x128")
    return int(sides[0]), int(sides[1])


def _layers(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(one.strip().isdecimal() for one in numbers):
        raise ValueError(f"write numbers of layers with commas, such as 4,5; not {text!r}")
    return tuple(map(int, numbers))


def _dtype(text: str) -> str:
    """Return the short name of an output dtype, for other tools' names, too."""
    from anamnesis.base.dtypes import OUTPUT_DTYPES
    from anamnesis.convert.request.spellings import spelt

    name = spelt(text, OUTPUT_DTYPES)
    if name not in OUTPUT_DTYPES:
        raise ValueError(f"{text!r} is none of {', '.join(OUTPUT_DTYPES)}")
    return name


def _stored_dtype(text: str) -> str:
    from anamnesis.base.dtypes import stored_dtype

    return stored_dtype(text).name


def _pair(text: str, what: str) -> tuple[str, str]:
    """Split a text at its last `=`."""
    first, equals, second = text.rpartition("=")
    if not first or not equals:
        raise ValueError(f"write {what}, not {text!r}")
    return first, second


def _bound(text: str) -> tuple[str, str]:
    pattern, name = _pair(text, "GLOB=TYPE")
    return pattern, _block_type(name)


def _override(text: str) -> tuple[str, str]:
    pattern, name = _pair(text, "PATTERN=ENCODING")
    if name == "drop":
        raise ValueError(f"drop={pattern!r} leaves out weights")
    _check_encoding(name, "keep")
    return pattern, name


def _check_encoding(name: str, *others: str) -> None:
    from anamnesis.convert.request.targets import encoding

    if name not in others:
        encoding(name)


def _renaming(text: str) -> tuple[str, str]:
    pattern, replacement = _pair(text, "FROM=TO")
    try:
        re.sub(pattern, replacement, "")
    except re.error as error:
        raise ValueError(f"{text!r}: {error}") from None
    return pattern, replacement


def _settings_file(path: str) -> dict[str, Any]:
    from anamnesis.formats.gguf.settings import read_settings

    try:
        with open(path, encoding="utf-8") as file:
            return read_settings(file.read())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _adapter(text: str) -> tuple[str, float]:
    """Return the path of an adapter, and its weight: 1 if none stands behind it."""
    path, _, weight = text.rpartition("=")
    return (path, as_float(weight)) if path else (text, 1.0)


# --- targets --------------------------------------------------------------------------------------


def read_target(text: str) -> Target:
    """Return a target; its text is in lower case."""
    from dataclasses import replace

    from anamnesis.convert.request.targets import target

    return replace(target(text), text=text.lower())


def _targets(text: str) -> tuple[Target, ...]:
    names = [name.strip().lower() for name in text.split(",")]
    if "" in names and len(names) > 1:
        raise ValueError(f"{text!r} has a comma too many")
    return tuple(map(read_target, names))


def _encoding(text: str) -> Target:
    try:
        found = read_target(text)
    except ValueError:
        _check_encoding(text)  # raises, in words of encodings
        raise
    if found.encoding is None:
        raise ValueError(f"{text!r} quantises nothing; amn remember and amn convert write it")
    return found


def _plain(text: str) -> Target:
    from anamnesis.base.dtypes import OUTPUT_DTYPES
    from anamnesis.convert.request.targets import no_such
    from anamnesis.formats.written import WRITERS

    try:
        found = read_target(text)
    except ValueError:
        raise no_such("dtype or container", text, [*OUTPUT_DTYPES, *WRITERS]) from None
    if found.encoding is not None:
        raise ValueError(f"{text!r} quantises; amn forget and amn convert write it")
    return found


def _listed(*kinds: str) -> Callable[[], list[str]]:
    """Return a function that lists the targets of some kinds, or of all."""

    def names() -> list[str]:
        from anamnesis.convert.request.targets import listed

        return [row.name for row in listed() if not kinds or row.kind in kinds]

    return names


# By the names that rows of the table of options have for them.
KINDS: Mapping[str, Kind] = {
    "flag": Kind(value=True, take=_flag),
    "negated": Kind(value=False, take=_flag),
    "json": Kind(value="json"),
    "json-lines": Kind(value="lines"),
    "size": Kind(_size, "SIZE", _taken_size, whole_number),
    "count": Kind(_count, "N", check=whole_number),
    "ratio": Kind(_ratio, "X"),
    "numbers": Kind(as_float, "X", many=True),
    "adapters": Kind(_adapter, "PATH[=WEIGHT]", many=True),
    "bits": Kind(_bits, "BITS"),
    "block": Kind(_block, "RxC"),
    "globs": Kind(str, "GLOB", _texts, many=True),
    "dtype": Kind(_dtype, "bf16|f16|f32", listed=lambda: ("bf16", "f16", "f32")),
    "stored-dtype": Kind(_stored_dtype, "DTYPE"),
    "target": Kind(read_target, "TARGET", _taken_target, listed=_listed()),
    "targets": Kind(_targets, "TARGET[,TARGET...]", listed=_listed()),
    "encoding": Kind(_encoding, "ENCODING", listed=_listed("encoding")),
    "plain": Kind(_plain, "TARGET", listed=_listed("container", "dtype")),
    "overrides": Kind(_override, "PATTERN=ENCODING", _taken_override, many=True, is_table=True),
    "renamings": Kind(_renaming, "FROM=TO", _text, many=True, is_table=True),
    "settings-file": Kind(_settings_file, "FILE.json", lambda value: value, is_table=True),
    "settings": Kind(_of("formats.gguf.settings", "read_setting"), "KEY=VALUE", many=True),
    "edits": Kind(_of("formats.gguf.write", "read_edit"), "KEY=VALUE", many=True),
    "keys": Kind(str, "KEY", _texts, many=True),
    "header-keys": Kind(
        _of("schemes.families.ggml.header", "read_override"),
        "KEY=TYPE:VALUE",
        lambda value: value,
        many=True,
        is_table=True,
    ),
    "block-type": Kind(_block_type, "TYPE"),
    "bounds": Kind(_bound, "GLOB=TYPE", many=True),
    "layers": Kind(_layers, "N,N,...", _taken_layers),
}


def kind_of(row: Mapping[str, Any]) -> Kind:
    """Return the kind that a row names, or that it makes: of some words, of paths, of any text."""
    if "choices" in row:
        return one_of(*row["choices"])
    if "kind" in row:
        return KINDS[row["kind"]]
    if "path" in row:  # a recipe's are checked when they are opened
        return Kind(metavar=row["path"], path=row.get("must", {}))
    return Kind(metavar=row["word"])
