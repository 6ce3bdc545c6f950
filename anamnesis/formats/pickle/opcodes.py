"""The opcodes of a pickle, each a function: framing, numbers and strings.

It takes the machine and where its operand begins, and returns where the next opcode does. What is
malformed may end in an IndexError, KeyError, ValueError or struct.error: the machine knows what
each of them means.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import LimitExceeded
from anamnesis.formats.pickle.limits import PICKLE_MAX_INT
from anamnesis.formats.pickle.nodes import NUMBER, SLOT

if TYPE_CHECKING:
    from anamnesis.formats.pickle.machine import PickleMachine

_HIGHEST_PROTOCOL = 5
NO_FRAME = 1 << 62  # no pickle is as long
LEFT = NO_FRAME + 1  # what a handler returns that stops, or begins a frame

Read = Callable[[bytes, int], tuple[int, ...]]

U8: Read = struct.Struct("<B").unpack_from
U16: Read = struct.Struct("<H").unpack_from
I32: Read = struct.Struct("<i").unpack_from
U32: Read = struct.Struct("<I").unpack_from
_U64: Read = struct.Struct("<Q").unpack_from
_F64 = struct.Struct(">d").unpack_from

Handler = Callable[["PickleMachine", int], int]


class Problem(Exception):
    """What is wrong with an opcode, for the error that says where."""


class OutOfData(ValueError):
    """The operand of an opcode ends behind the data."""


def _unknown(machine: PickleMachine, pos: int) -> int:
    raise Problem("there is no such opcode")


HANDLERS: list[Handler] = [_unknown] * 256
COSTS = [0] * 256


def opcode(code: bytes, cost: int = 0) -> Callable[[Handler], Handler]:
    """Register the handler of an opcode, and the bytes that it may take."""

    def register(handler: Handler) -> Handler:
        HANDLERS[code[0]] = handler
        COSTS[code[0]] = cost
        return handler

    return register


# --- framing


@opcode(b"\x80")
def _proto(machine: PickleMachine, pos: int) -> int:
    if machine.data[pos] > _HIGHEST_PROTOCOL:
        raise Problem(f"protocol {machine.data[pos]} is not known")
    return pos + 1


@opcode(b"\x95")
def _frame(machine: PickleMachine, pos: int) -> int:
    (n_bytes,) = _U64(machine.data, pos)
    pos += 8
    if n_bytes > len(machine.data) - pos:
        raise OutOfData
    if machine.frame_end not in (NO_FRAME, pos):
        machine.doubt("a frame in a frame")
    machine.pos, machine.frame_end = pos, pos + n_bytes
    return LEFT


@opcode(b".")
def _stop(machine: PickleMachine, pos: int) -> int:
    if not machine.stack:
        raise Problem("there is nothing to return")
    if machine.frame_end not in (NO_FRAME, pos):
        machine.doubt("the pickle ends before its frame does")
    machine.pos = pos
    machine.has_stopped = True
    return LEFT


# --- constants and numbers


def _constant(value: Any) -> Handler:
    def push(machine: PickleMachine, pos: int) -> int:
        machine.stack.append(value)
        return pos

    return push


for _code, _value in ((b"N", None), (b"\x88", True), (b"\x89", False), (b")", ())):
    opcode(_code, SLOT)(_constant(_value))


@opcode(b"K", SLOT)
def _binint1(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.data[pos])
    return pos + 1


def _number(read: Callable[[bytes, int], tuple[Any, ...]], width: int) -> Handler:
    def push(machine: PickleMachine, pos: int) -> int:
        machine.stack.append(read(machine.data, pos)[0])
        return pos + width

    return push


opcode(b"M", NUMBER)(_number(U16, 2))
opcode(b"J", NUMBER)(_number(I32, 4))
opcode(b"G", NUMBER)(_number(_F64, 8))


@opcode(b"\x8a", NUMBER)
def _long1(machine: PickleMachine, pos: int) -> int:
    return _long(machine, pos + 1, machine.data[pos])


@opcode(b"\x8b", NUMBER)
def _long4(machine: PickleMachine, pos: int) -> int:
    (n_bytes,) = I32(machine.data, pos)
    if n_bytes < 0:
        raise Problem(f"an integer of {n_bytes:,} bytes")
    return _long(machine, pos + 4, n_bytes)


def _long(machine: PickleMachine, pos: int, n_bytes: int) -> int:
    if n_bytes > PICKLE_MAX_INT:
        raise LimitExceeded(
            "PICKLE_MAX_INT", f"an integer of {n_bytes:,} bytes; {PICKLE_MAX_INT:,} are allowed"
        )
    machine.stack.append(int.from_bytes(machine.payload(pos, n_bytes), "little", signed=True))
    return pos + n_bytes


def decimal(raw: bytes) -> int:
    """Return an integer in decimal digits, not too many."""
    if len(raw) > 2 * PICKLE_MAX_INT:
        if not raw.strip().lstrip(b"+-").replace(b"_", b"").isdigit():
            raise ValueError("what is no integer")
        raise LimitExceeded("PICKLE_MAX_INT", f"an integer of {len(raw):,} digits")
    return int(raw)


def _literal(raw: bytes) -> int:
    """Return an integer that may be spelled 0x1F, as CPython reads it."""
    return int(raw, 16) if raw[:2] in (b"0x", b"0X") else decimal(raw)


def of_line(value: Callable[[PickleMachine, bytes], Any]) -> Handler:
    """Return the handler of a value that is spelled in a line of text."""

    def push(machine: PickleMachine, pos: int) -> int:
        raw, pos = machine.line(pos)
        machine.stack.append(value(machine, raw))
        return pos

    return push


def _int(_: PickleMachine, raw: bytes) -> int:
    return raw == b"01" if raw in (b"00", b"01") else _literal(raw)


opcode(b"I", NUMBER)(of_line(_int))
opcode(b"L", NUMBER)(of_line(lambda _, raw: _literal(raw.removesuffix(b"L"))))
opcode(b"F", NUMBER)(of_line(lambda _, raw: float(raw)))


# --- strings


def _text_behind(read: Read, width: int) -> Handler:
    """Return the handler of UTF-8 with its length before it."""

    def push(machine: PickleMachine, pos: int) -> int:
        return machine.text(pos + width, read(machine.data, pos)[0])

    return push


def _bytes_behind(read: Read, width: int, value: Callable[[bytes], Any] = bytes) -> Handler:

    def push(machine: PickleMachine, pos: int) -> int:
        (n_bytes,) = read(machine.data, pos)
        if n_bytes < 0:
            raise Problem(f"a string of {n_bytes:,} bytes")
        machine.stack.append(value(machine.payload(pos + width, n_bytes)))
        return pos + width + n_bytes

    return push


def _string_of_python_2(raw: bytes) -> str | bytes:
    """Return text where it is surely that."""
    return raw.decode("ascii") if raw.isascii() else raw


opcode(b"\x8c", NUMBER)(_text_behind(U8, 1))
opcode(b"X", NUMBER)(_text_behind(U32, 4))
opcode(b"\x8d", NUMBER)(_text_behind(_U64, 8))
opcode(b"C", NUMBER)(_bytes_behind(U8, 1))
opcode(b"B", NUMBER)(_bytes_behind(U32, 4))
opcode(b"\x8e", NUMBER)(_bytes_behind(_U64, 8))
opcode(b"\x96", NUMBER)(_bytes_behind(_U64, 8))  # a bytearray; nothing here changes it
opcode(b"U", NUMBER)(_bytes_behind(U8, 1, _string_of_python_2))
opcode(b"T", NUMBER)(_bytes_behind(I32, 4, _string_of_python_2))


def _unicode(machine: PickleMachine, raw: bytes) -> str:
    machine.charge(4 * len(raw))
    return str(raw, "raw-unicode-escape")


def _string(machine: PickleMachine, raw: bytes) -> str | bytes:
    if len(raw) < 2 or raw[0] != raw[-1] or raw[:1] not in (b"'", b'"'):
        raise Problem("a string without quotes")
    machine.charge(len(raw))
    return _string_of_python_2(codecs.escape_decode(raw[1:-1])[0])


opcode(b"V", NUMBER)(of_line(_unicode))
opcode(b"S", NUMBER)(of_line(_string))
