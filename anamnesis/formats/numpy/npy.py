"""The header of a NumPy array file: a literal that is never evaluated.

    "\\x93NUMPY" major minor | length | {'descr': '<f4', 'fortran_order': False, …} | data

Versions 1 (a length of 2 bytes), 2 (of 4) and 3 (UTF-8) are read. The text is the literal of a
dict, which a small reader of bounded depth takes apart; it knows strings, integers, True and
False, tuples and lists, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, NamedTuple

from anamnesis.base.dtypes import ALL_DTYPES, DType
from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.plain_json import json_table
from anamnesis.base.printable import printable
from anamnesis.base.source import Source
from anamnesis.formats.magic import NPY_MAGIC

NPY_MAX_HEADER = 65_536  # bytes; numpy's own limit is 10,000
NPY_MAX_DEPTH = 32  # of a structured dtype, which is refused all the same, but by name
NPY_MAX_DIMS = 64
NPY_MAX_ELEMENTS = 2**48

_HEAD_BYTES = 12  # magic, version, and a length of 2 bytes with text behind it, or of 4
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}

_NUMBERS = (
    *("I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"),
    *("F16", "F32", "F64", "C64", "C128"),
)
# The letters and widths of numpy's descriptors.
KINDS = {
    "BOOL": "b1",
    **{name: f"{name[0].lower()}{int(name[1:]) // 8}" for name in _NUMBERS},
    # What ml_dtypes' arrays are saved as. It has one dtype of two bytes; of those of one byte only
    # E5M2 has a letter of its own.
    "BF16": "V2",
    "F8_E5M2": "f1",
}
_CODES = {code: ALL_DTYPES[name] for name, code in KINDS.items()}
_NAMES = {dtype.numpy_name: dtype for dtype in ALL_DTYPES.values() if dtype.numpy_name}
_DESCR = re.compile(r"([<>|=]?)([A-Za-z]\d*)")

# What an array holds, and after a semicolon what to do about it.
_UNREADABLE: Mapping[str, str] = json_table(__file__)


class NpyHeader(NamedTuple):
    """What a header says."""

    dtype: DType
    big_endian: bool
    column_major: bool
    shape: tuple[int, ...]
    n_bytes: int
    data_start: int
    problem: str
    descr: Any


def read_header(
    source: Source,
    offset: int,
    end: int,
    name: str,
    budget: Budget,
    void: DType | None = None,
) -> NpyHeader:
    """Read the header of the array `name`, which lies at `offset` to `end` of `source`."""
    # Items that are bytes without a meaning (`V1`, `V2`, …) are of the dtype `void`, if they are as
    # long as its items.
    text, text_start, data_start = _text(source, offset, end, name, budget)
    fields = _usual(text) or _Literal(text, source, text_start).header()
    descr, column_major = fields["descr"], fields["fortran_order"]
    dtype, big_endian, problem = dtype_of(descr, void)
    shape = _shape(fields["shape"], source, offset, name)
    if type(column_major) is not bool:
        raise source.error(f"array {name!r}: fortran_order must be True or False", offset)
    n_bytes = end - data_start
    needed = dtype.n_bytes(prod(shape))
    if not problem and needed != n_bytes:
        cut = f"truncated: {n_bytes:,} of {needed:,} bytes follow its header"
        raise source.error(
            f"array {name!r} ({dtype} {list(shape)}) "
            + (cut if needed > n_bytes else f"takes {needed:,} bytes, but {n_bytes:,} follow"),
            data_start,
        )
    return NpyHeader(dtype, big_endian, column_major, shape, n_bytes, data_start, problem, descr)


def _text(source: Source, offset: int, end: int, name: str, budget: Budget) -> tuple[str, int, int]:
    """Return the header's text, where it begins, and where the data does."""

    def need(at: int, n: int) -> bytes:
        if at + n > end:
            raise source.error(f"array {name!r} ends within its header", end)
        return source.read(at, n)

    magic = need(offset, _HEAD_BYTES)
    version = (magic[6], magic[7])
    if not magic.startswith(NPY_MAGIC):
        raise source.error(f"{name!r} is not a NumPy array", offset)
    if version not in _LENGTH_BYTES:
        raise source.unsupported(
            f"array {name!r} is of NPY version {version[0]}.{version[1]},"
            " which is not supported; 1.0, 2.0 and 3.0 are"
        )
    n_length = _LENGTH_BYTES[version]
    n_text = int.from_bytes(magic[8 : 8 + n_length], "little")
    if n_text > NPY_MAX_HEADER:
        raise source.exceeded(
            "NPY_MAX_HEADER",
            f"the header of array {name!r} claims {n_text:,} bytes",
            NPY_MAX_HEADER,
        )
    budget.alloc(n_text, f"the header of array {name!r}")
    at = offset + 8 + n_length
    raw = need(at, n_text)
    try:
        return raw.decode("utf-8" if version == (3, 0) else "latin-1"), at, at + n_text
    except UnicodeDecodeError as error:
        raise source.error(f"the header of array {name!r} is not UTF-8", at + error.start) from None


def _shape(shape: Any, source: Source, offset: int, name: str) -> tuple[int, ...]:
    if type(shape) is not tuple or any(type(dim) is not int for dim in shape):
        raise source.error(f"array {name!r}: its shape is not a tuple of integers", offset)
    if len(shape) > NPY_MAX_DIMS:
        raise source.exceeded(
            "NPY_MAX_DIMS", f"array {name!r} has {len(shape):,} dimensions", NPY_MAX_DIMS
        )
    if any(dim < 0 for dim in shape):
        raise source.error(
            f"array {name!r}: its shape {list(shape)} has a negative dimension", offset
        )
    # An empty array must not hide dimensions that nothing can hold.
    if prod(max(dim, 1) for dim in shape) > NPY_MAX_ELEMENTS:
        raise source.exceeded(
            "NPY_MAX_ELEMENTS",
            f"array {name!r} of shape {list(shape)}; {NPY_MAX_ELEMENTS:,} elements are allowed",
        )
    return shape


# --- dtypes -------------------------------------------------------------------------------------


def dtype_of(descr: Any, void: DType | None = None) -> tuple[DType, bool, str]:
    """Return the dtype of a descriptor, whether it is big-endian, and why it cannot be read."""
    # `void` is the dtype of items that are bytes without a meaning.
    if not isinstance(descr, str):
        return _unknown("structured"), False, _UNREADABLE["structured"]
    if descr in _NAMES:
        return _NAMES[descr], False, ""
    match = _DESCR.fullmatch(descr)
    known = _CODES if void is None else {**_CODES, f"V{void.block_bytes}": void}
    if match is not None and match[2] in known:
        dtype = known[match[2]]
        return dtype, match[1] == ">" and dtype.bits > 8, ""
    code = descr.lstrip("<>|=")
    why = f"values of NumPy's dtype {descr[:40]!r}, which is not supported"
    why = _UNREADABLE.get(code) or _UNREADABLE.get(code[:1]) or why
    return _unknown(descr[:40]), False, why


@cache
def _unknown(descr: str) -> DType:
    shown = printable(f"numpy {descr}")
    return DType(shown, 0, None, shown, "unknown", 1, 0)


# --- the literal --------------------------------------------------------------------------------

_KEYS = ("descr", "fortran_order", "shape")
_TOKEN = re.compile(
    r"\s*(?:(?P<string>[ub]?'(?:[^'\\\n]|\\.)*'|[ub]?\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<int>-?[0-9]{1,19})L?(?![0-9A-Za-z_.])|(?P<bool>True|False)|(?P<mark>[()\[\]{},:])|(?P<end>\s*\Z))"
)
_CLOSING = {"(": ")", "[": "]"}
# As numpy writes it, for all but records.
_USUAL = re.compile(
    r"\{'descr': '([^'\\\n]*)', 'fortran_order': (True|False),"
    r" 'shape': \((|[0-9]{1,19},|[0-9]{1,19}(?:, [0-9]{1,19})+)\), \}\s*"
)


def _usual(text: str) -> dict[str, Any] | None:
    """Return the fields of a header that is spelled as usual."""
    match = _USUAL.fullmatch(text)
    if match is None:
        return None
    descr, fortran, shape = match.groups()
    dims = tuple(map(int, shape.rstrip(",").split(","))) if shape else ()
    return {"descr": descr, "fortran_order": fortran == "True", "shape": dims}


class _Literal:
    """A cursor over the text of a header."""

    def __init__(self, text: str, source: Source, start: int) -> None:
        self._text = text
        self._source = source
        self._start = start
        self._pos = 0

    def header(self) -> dict[str, Any]:
        """Return the three fields: each appears once, in any order, and nothing else does."""
        fields: dict[str, Any] = {}
        self._expect("{")
        while not self._found("}"):
            key = self._value(0)
            if key not in _KEYS or key in fields:
                raise self._error(f"a header must have each of {', '.join(_KEYS)} once")
            self._expect(":")
            fields[key] = self._value(0)
            if not self._found(","):
                self._expect("}")
                break
        if len(fields) < len(_KEYS):
            raise self._error(f"a header must have {', '.join(_KEYS)}")
        if self._next().lastgroup != "end":
            raise self._error("the header continues after its dict")
        return fields

    def _next(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._pos)
        if match is None:
            raise self._error(
                "a header may hold only strings, integers, True, False, tuples and lists"
            )
        self._pos = match.end()
        return match

    def _found(self, mark: str) -> bool:
        """Step over a mark if it is next."""
        before = self._pos
        if self._next()["mark"] == mark:
            return True
        self._pos = before
        return False

    def _expect(self, mark: str) -> None:
        if not self._found(mark):
            raise self._error(f"the header lacks a {mark!r}")

    def _value(self, depth: int) -> Any:
        match = self._next()
        kind, text = match.lastgroup, match[0].strip()
        if kind == "string":
            return text.lstrip("ub")[1:-1]
        if kind == "int":
            return int(match["int"])
        if kind == "bool":
            return text == "True"
        if text not in _CLOSING:
            raise self._error("the header lacks a value")
        if depth == NPY_MAX_DEPTH:
            raise self._source.exceeded(
                "NPY_MAX_DEPTH", f"a header nested deeper than {NPY_MAX_DEPTH}"
            )
        closing = _CLOSING[text]
        items: list[Any] = []
        comma = False
        while not self._found(closing):
            items.append(self._value(depth + 1))
            comma = self._found(",")
            if not comma:
                self._expect(closing)
                break
        if closing == "]":
            return items
        return tuple(items) if comma or len(items) != 1 else items[0]  # as Python reads (3)

    def _error(self, message: str) -> ParseError:
        return self._source.error(message, self._start + self._pos)
