"""The opcodes of a pickle, each a function.

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
from anamnesis.formats.pickle.costs import (
    CONTAINER,
    ENTRY,
    NUMBER,
    PICKLE_MAX_DEPTH,
    PICKLE_MAX_INT,
    SLOT,
)
from anamnesis.formats.pickle.nodes import Call, PickledSet

if TYPE_CHECKING:
    from anamnesis.formats.pickle.machine import PickleMachine

_HIGHEST_PROTOCOL = 5
NO_FRAME = 1 << 62  # no pickle is as long
LEFT = NO_FRAME + 1  # what a handler returns that stops, or begins a frame

_Read = Callable[[bytes, int], tuple[int, ...]]

_U8: _Read = struct.Struct("<B").unpack_from
_U16: _Read = struct.Struct("<H").unpack_from
_I32: _Read = struct.Struct("<i").unpack_from
_U32: _Read = struct.Struct("<I").unpack_from
_U64: _Read = struct.Struct("<Q").unpack_from
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


def _opcode(code: bytes, cost: int = 0) -> Callable[[Handler], Handler]:
    """Register the handler of an opcode, and the bytes that it may take."""

    def register(handler: Handler) -> Handler:
        HANDLERS[code[0]] = handler
        COSTS[code[0]] = cost
        return handler

    return register


# --- framing


@_opcode(b"\x80")
def _proto(machine: PickleMachine, pos: int) -> int:
    if machine.data[pos] > _HIGHEST_PROTOCOL:
        raise Problem(f"protocol {machine.data[pos]} is not known")
    return pos + 1


@_opcode(b"\x95")
def _frame(machine: PickleMachine, pos: int) -> int:
    (n_bytes,) = _U64(machine.data, pos)
    pos += 8
    if n_bytes > len(machine.data) - pos:
        raise OutOfData
    if machine.frame_end not in (NO_FRAME, pos):
        machine.doubt("a frame in a frame")
    machine.pos, machine.frame_end = pos, pos + n_bytes
    return LEFT


@_opcode(b".")
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
    _opcode(_code, SLOT)(_constant(_value))


@_opcode(b"K", SLOT)
def _binint1(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.data[pos])
    return pos + 1


def _number(read: Callable[[bytes, int], tuple[Any, ...]], width: int) -> Handler:
    def push(machine: PickleMachine, pos: int) -> int:
        machine.stack.append(read(machine.data, pos)[0])
        return pos + width

    return push


_opcode(b"M", NUMBER)(_number(_U16, 2))
_opcode(b"J", NUMBER)(_number(_I32, 4))
_opcode(b"G", NUMBER)(_number(_F64, 8))


@_opcode(b"\x8a", NUMBER)
def _long1(machine: PickleMachine, pos: int) -> int:
    return _long(machine, pos + 1, machine.data[pos])


@_opcode(b"\x8b", NUMBER)
def _long4(machine: PickleMachine, pos: int) -> int:
    (n_bytes,) = _I32(machine.data, pos)
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


@_opcode(b"I", NUMBER)
def _int(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    machine.stack.append(raw == b"01" if raw in (b"00", b"01") else _literal(raw))
    return pos


@_opcode(b"L", NUMBER)
def _long_text(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    machine.stack.append(_literal(raw.removesuffix(b"L")))
    return pos


def _decimal(raw: bytes) -> int:
    if len(raw) > 2 * PICKLE_MAX_INT:
        if not raw.strip().lstrip(b"+-").replace(b"_", b"").isdigit():
            raise ValueError("what is no integer")
        raise LimitExceeded("PICKLE_MAX_INT", f"an integer of {len(raw):,} digits")
    return int(raw)


def _literal(raw: bytes) -> int:
    """Return an integer that may be spelled 0x1F, as CPython reads it."""
    return int(raw, 16) if raw[:2] in (b"0x", b"0X") else _decimal(raw)


@_opcode(b"F", NUMBER)
def _float(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    machine.stack.append(float(raw))
    return pos


# --- strings


def _text_behind(read: _Read, width: int) -> Handler:
    """Return the handler of UTF-8 with its length before it."""

    def push(machine: PickleMachine, pos: int) -> int:
        return machine.text(pos + width, read(machine.data, pos)[0])

    return push


def _bytes_behind(read: _Read, width: int, value: Callable[[bytes], Any] = bytes) -> Handler:
    """Return the handler of bytes with their length before them."""

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


_opcode(b"\x8c", NUMBER)(_text_behind(_U8, 1))
_opcode(b"X", NUMBER)(_text_behind(_U32, 4))
_opcode(b"\x8d", NUMBER)(_text_behind(_U64, 8))
_opcode(b"C", NUMBER)(_bytes_behind(_U8, 1))
_opcode(b"B", NUMBER)(_bytes_behind(_U32, 4))
_opcode(b"\x8e", NUMBER)(_bytes_behind(_U64, 8))
_opcode(b"\x96", NUMBER)(_bytes_behind(_U64, 8))  # a bytearray; nothing here changes it
_opcode(b"U", NUMBER)(_bytes_behind(_U8, 1, _string_of_python_2))
_opcode(b"T", NUMBER)(_bytes_behind(_I32, 4, _string_of_python_2))


@_opcode(b"V", NUMBER)
def _unicode(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    machine.charge(4 * len(raw))
    machine.stack.append(str(raw, "raw-unicode-escape"))
    return pos


@_opcode(b"S", NUMBER)
def _string(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    if len(raw) < 2 or raw[0] != raw[-1] or raw[:1] not in (b"'", b'"'):
        raise Problem("a string without quotes")
    machine.charge(len(raw))
    machine.stack.append(_string_of_python_2(codecs.escape_decode(raw[1:-1])[0]))
    return pos


# --- containers


@_opcode(b"(", CONTAINER)
def _mark(machine: PickleMachine, pos: int) -> int:
    if len(machine.below) >= PICKLE_MAX_DEPTH:
        raise LimitExceeded(
            "PICKLE_MAX_DEPTH", f"{machine.name}: values more than {PICKLE_MAX_DEPTH} deep"
        )
    machine.below.append(machine.stack)
    machine.stack = []
    return pos


def _empty(make: Callable[[], Any]) -> Handler:
    def push(machine: PickleMachine, pos: int) -> int:
        machine.stack.append(make())
        return pos

    return push


def _full(make: Callable[[list[Any]], Any]) -> Handler:
    def push(machine: PickleMachine, pos: int) -> int:
        items = machine.pop_mark()
        machine.stack.append(make(items))
        return pos

    return push


_opcode(b"}", CONTAINER)(_empty(dict))
_opcode(b"]", CONTAINER)(_empty(list))
_opcode(b"\x8f", CONTAINER)(_empty(lambda: PickledSet([])))
_opcode(b"t", NUMBER)(_full(tuple))
_opcode(b"l", CONTAINER)(_full(lambda items: items))
_opcode(b"\x91", CONTAINER)(_full(PickledSet))


@_opcode(b"\x85", NUMBER)
def _tuple1(machine: PickleMachine, pos: int) -> int:
    machine.stack[-1] = (machine.stack[-1],)
    return pos


@_opcode(b"\x86", NUMBER)
def _tuple2(machine: PickleMachine, pos: int) -> int:
    stack = machine.stack
    last = stack.pop()
    stack[-1] = (stack[-1], last)
    return pos


@_opcode(b"\x87", NUMBER)
def _tuple3(machine: PickleMachine, pos: int) -> int:
    stack = machine.stack
    last = stack.pop()
    middle = stack.pop()
    stack[-1] = (stack[-1], middle, last)
    return pos


@_opcode(b"d", CONTAINER)
def _dict(machine: PickleMachine, pos: int) -> int:
    items = machine.pop_mark()
    machine.stack.append({})
    machine.set_items(items)
    return pos


@_opcode(b"a")
def _append(machine: PickleMachine, pos: int) -> int:
    item = machine.stack.pop()
    machine.append_items([item])
    return pos


@_opcode(b"\x90")  # ADDITEMS
@_opcode(b"e")
def _appends(machine: PickleMachine, pos: int) -> int:
    items = machine.pop_mark()
    machine.append_items(items)
    return pos


@_opcode(b"s")
def _setitem(machine: PickleMachine, pos: int) -> int:
    value = machine.stack.pop()
    key = machine.stack.pop()
    machine.set_items([key, value])
    return pos


@_opcode(b"u")
def _setitems(machine: PickleMachine, pos: int) -> int:
    items = machine.pop_mark()
    machine.set_items(items)
    return pos


# --- the stack and the memo


@_opcode(b"0")
def _pop(machine: PickleMachine, pos: int) -> int:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()  # as CPython has it: it may pop the mark itself
    return pos


@_opcode(b"1")
def _pop_to_mark(machine: PickleMachine, pos: int) -> int:
    machine.pop_mark()
    return pos


@_opcode(b"2", SLOT)
def _dup(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.stack[-1])
    return pos


@_opcode(b"h", SLOT)
def _binget(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.memo[machine.data[pos]])
    return pos + 1


@_opcode(b"j", SLOT)
def _long_binget(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.memo[_U32(machine.data, pos)[0]])
    return pos + 4


@_opcode(b"g", SLOT)
def _get(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    machine.stack.append(machine.memo[_decimal(raw)])
    return pos


@_opcode(b"q", ENTRY)
def _binput(machine: PickleMachine, pos: int) -> int:
    machine.memo[machine.data[pos]] = machine.stack[-1]
    return pos + 1


@_opcode(b"r", ENTRY)
def _long_binput(machine: PickleMachine, pos: int) -> int:
    machine.memo[_U32(machine.data, pos)[0]] = machine.stack[-1]
    return pos + 4


@_opcode(b"p", ENTRY)
def _put(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    key = _decimal(raw)
    if not 0 <= key < 1 << 63:
        raise Problem(f"cannot memoise under {key}")
    machine.memo[key] = machine.stack[-1]
    return pos


@_opcode(b"\x94", ENTRY)
def _memoize(machine: PickleMachine, pos: int) -> int:
    machine.memo[len(machine.memo)] = machine.stack[-1]
    return pos


# --- globals and what would be made of them


@_opcode(b"c")
def _global(machine: PickleMachine, pos: int) -> int:
    machine.at = pos - 1
    module, pos = machine.line(pos)
    name, pos = machine.line(pos)
    machine.find(module.decode(), name.decode())
    return pos


@_opcode(b"\x93")
def _stack_global(machine: PickleMachine, pos: int) -> int:
    machine.at = pos - 1
    name = machine.stack.pop()
    module = machine.stack.pop()
    machine.find(module, name)
    return pos


@_opcode(b"R", CONTAINER)
def _reduce(machine: PickleMachine, pos: int) -> int:
    args = machine.stack.pop()
    machine.call(machine.stack.pop(), args)
    return pos


_opcode(b"\x81", CONTAINER)(_reduce)  # NEWOBJ: a class and its arguments


@_opcode(b"\x92", CONTAINER)
def _newobj_ex(machine: PickleMachine, pos: int) -> int:
    keywords = machine.stack.pop()
    if type(keywords) is not dict:
        machine.doubt("the keyword arguments must be a dictionary")
    args = machine.stack.pop()
    machine.call(machine.stack.pop(), args)
    if keywords:
        made = machine.stack[-1]
        if type(made) is not Call:
            raise Problem("keyword arguments for a callable that takes none")
        made.args = (*made.args, keywords)
    return pos


@_opcode(b"i", CONTAINER)
def _inst(machine: PickleMachine, pos: int) -> int:
    pos = _global(machine, pos)  # which the unpickler in Python imports before it needs the mark
    function = machine.stack.pop()
    machine.call(function, tuple(machine.pop_mark()))
    return pos


@_opcode(b"o", CONTAINER)
def _obj(machine: PickleMachine, pos: int) -> int:
    function, *args = machine.pop_mark()  # ValueError if there is nothing
    machine.call(function, tuple(args))
    return pos


@_opcode(b"b", CONTAINER)
def _build(machine: PickleMachine, pos: int) -> int:
    state = machine.stack.pop()
    machine.build(machine.stack[-1], state)
    return pos


@_opcode(b"P", CONTAINER)
def _persid(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    machine.stack.append(machine.persistent_load(raw.decode()))
    return pos


@_opcode(b"Q", CONTAINER)
def _binpersid(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.persistent_load(machine.stack.pop()))
    return pos


# --- what refers to something outside the file


def _extension(read: _Read, n_bytes: int) -> Handler:
    def push(machine: PickleMachine, pos: int) -> int:
        machine.at = pos - 1
        (code,) = read(machine.data, pos)
        machine.find("copyreg", f"extension {code}")
        return pos + n_bytes

    return push


for _code, _read, _n in ((b"\x82", _U8, 1), (b"\x83", _U16, 2), (b"\x84", _I32, 4)):
    _opcode(_code)(_extension(_read, _n))


@_opcode(b"\x97", SLOT)
def _next_buffer(machine: PickleMachine, pos: int) -> int:
    machine.doubt("refers to a buffer outside the file")
    machine.stack.append(b"")
    return pos


@_opcode(b"\x98")
def _readonly_buffer(machine: PickleMachine, pos: int) -> int:
    if type(machine.stack[-1]) is not bytes:
        machine.doubt("makes read-only something that is not bytes")
    return pos
