"""The opcodes of a pickle for containers, the stack, the memo and objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import LimitExceeded
from anamnesis.formats.pickle.limits import PICKLE_MAX_DEPTH
from anamnesis.formats.pickle.nodes import CONTAINER, ENTRY, NUMBER, SLOT, Call, PickledSet
from anamnesis.formats.pickle.opcodes import (
    I32,
    U8,
    U16,
    U32,
    Handler,
    Problem,
    Read,
    decimal,
    of_line,
    opcode,
)

if TYPE_CHECKING:
    from anamnesis.formats.pickle.machine import PickleMachine

# --- containers


@opcode(b"(", CONTAINER)
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


opcode(b"}", CONTAINER)(_empty(dict))
opcode(b"]", CONTAINER)(_empty(list))
opcode(b"\x8f", CONTAINER)(_empty(lambda: PickledSet([])))
opcode(b"t", NUMBER)(_full(tuple))
opcode(b"l", CONTAINER)(_full(lambda items: items))
opcode(b"\x91", CONTAINER)(_full(PickledSet))


@opcode(b"\x85", NUMBER)
def _tuple1(machine: PickleMachine, pos: int) -> int:
    machine.stack[-1] = (machine.stack[-1],)
    return pos


@opcode(b"\x86", NUMBER)
def _tuple2(machine: PickleMachine, pos: int) -> int:
    stack = machine.stack
    last = stack.pop()
    stack[-1] = (stack[-1], last)
    return pos


@opcode(b"\x87", NUMBER)
def _tuple3(machine: PickleMachine, pos: int) -> int:
    stack = machine.stack
    last = stack.pop()
    middle = stack.pop()
    stack[-1] = (stack[-1], middle, last)
    return pos


@opcode(b"d", CONTAINER)
def _dict(machine: PickleMachine, pos: int) -> int:
    items = machine.pop_mark()
    machine.stack.append({})
    machine.set_items(items)
    return pos


@opcode(b"a")
def _append(machine: PickleMachine, pos: int) -> int:
    item = machine.stack.pop()
    machine.append_items([item])
    return pos


@opcode(b"\x90")  # ADDITEMS
@opcode(b"e")
def _appends(machine: PickleMachine, pos: int) -> int:
    machine.append_items(machine.pop_mark())
    return pos


@opcode(b"s")
def _setitem(machine: PickleMachine, pos: int) -> int:
    value = machine.stack.pop()
    key = machine.stack.pop()
    machine.set_items([key, value])
    return pos


@opcode(b"u")
def _setitems(machine: PickleMachine, pos: int) -> int:
    machine.set_items(machine.pop_mark())
    return pos


# --- the stack and the memo


@opcode(b"0")
def _pop(machine: PickleMachine, pos: int) -> int:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()  # as CPython has it: it may pop the mark itself
    return pos


@opcode(b"1")
def _pop_to_mark(machine: PickleMachine, pos: int) -> int:
    machine.pop_mark()
    return pos


@opcode(b"2", SLOT)
def _dup(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.stack[-1])
    return pos


@opcode(b"h", SLOT)
def _binget(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.memo[machine.data[pos]])
    return pos + 1


@opcode(b"j", SLOT)
def _long_binget(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.memo[U32(machine.data, pos)[0]])
    return pos + 4


opcode(b"g", SLOT)(of_line(lambda machine, raw: machine.memo[decimal(raw)]))


@opcode(b"q", ENTRY)
def _binput(machine: PickleMachine, pos: int) -> int:
    machine.memo[machine.data[pos]] = machine.stack[-1]
    return pos + 1


@opcode(b"r", ENTRY)
def _long_binput(machine: PickleMachine, pos: int) -> int:
    machine.memo[U32(machine.data, pos)[0]] = machine.stack[-1]
    return pos + 4


@opcode(b"p", ENTRY)
def _put(machine: PickleMachine, pos: int) -> int:
    raw, pos = machine.line(pos)
    key = decimal(raw)
    if not 0 <= key < 1 << 63:
        raise Problem(f"cannot memoise under {key}")
    machine.memo[key] = machine.stack[-1]
    return pos


@opcode(b"\x94", ENTRY)
def _memoize(machine: PickleMachine, pos: int) -> int:
    machine.memo[len(machine.memo)] = machine.stack[-1]
    return pos


# --- globals and what would be made of them


@opcode(b"c")
def _global(machine: PickleMachine, pos: int) -> int:
    machine.at = pos - 1
    module, pos = machine.line(pos)
    name, pos = machine.line(pos)
    machine.find(module.decode(), name.decode())
    return pos


@opcode(b"\x93")
def _stack_global(machine: PickleMachine, pos: int) -> int:
    machine.at = pos - 1
    name = machine.stack.pop()
    module = machine.stack.pop()
    machine.find(module, name)
    return pos


@opcode(b"R", CONTAINER)
def _reduce(machine: PickleMachine, pos: int) -> int:
    args = machine.stack.pop()
    machine.call(machine.stack.pop(), args)
    return pos


opcode(b"\x81", CONTAINER)(_reduce)  # NEWOBJ: a class and its arguments


@opcode(b"\x92", CONTAINER)
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


@opcode(b"i", CONTAINER)
def _inst(machine: PickleMachine, pos: int) -> int:
    pos = _global(machine, pos)  # which the unpickler in Python imports before it needs the mark
    function = machine.stack.pop()
    machine.call(function, tuple(machine.pop_mark()))
    return pos


@opcode(b"o", CONTAINER)
def _obj(machine: PickleMachine, pos: int) -> int:
    function, *args = machine.pop_mark()  # ValueError if there is nothing
    machine.call(function, tuple(args))
    return pos


@opcode(b"b", CONTAINER)
def _build(machine: PickleMachine, pos: int) -> int:
    state = machine.stack.pop()
    machine.build(machine.stack[-1], state)
    return pos


opcode(b"P", CONTAINER)(of_line(lambda machine, raw: machine.persistent_load(raw.decode())))


@opcode(b"Q", CONTAINER)
def _binpersid(machine: PickleMachine, pos: int) -> int:
    machine.stack.append(machine.persistent_load(machine.stack.pop()))
    return pos


# --- what refers to something outside the file


def _extension(read: Read, n_bytes: int) -> Handler:
    def push(machine: PickleMachine, pos: int) -> int:
        machine.at = pos - 1
        (code,) = read(machine.data, pos)
        machine.find("copyreg", f"extension {code}")
        return pos + n_bytes

    return push


for _code, _read, _n in ((b"\x82", U8, 1), (b"\x83", U16, 2), (b"\x84", I32, 4)):
    opcode(_code)(_extension(_read, _n))


@opcode(b"\x97", SLOT)
def _next_buffer(machine: PickleMachine, pos: int) -> int:
    machine.doubt("refers to a buffer outside the file")
    machine.stack.append(b"")
    return pos


@opcode(b"\x98")
def _readonly_buffer(machine: PickleMachine, pos: int) -> int:
    if type(machine.stack[-1]) is not bytes:
        machine.doubt("makes read-only something that is not bytes")
    return pos
