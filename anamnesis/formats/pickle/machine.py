"""A pickle machine that executes nothing: no import, no call.

What a pickle would have made becomes inert nodes: `Global` for what it refers to, `Call` for
what it would call, with which arguments and state. Whoever runs the machine decides which globals
may be there, and may give back a `Builder` for one: a function of this package for it.

Everything that is pushed or memoised is accounted for, in constant time for each opcode. Nothing is
hashed but plain keys, so that nested tuples cost nothing, and cycles are just references.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle import object_opcodes  # noqa: F401 -- it registers its own
from anamnesis.formats.pickle.limits import (
    PICKLE_FREE_BYTES,
    PICKLE_MAX_GROWTH,
    PICKLE_MAX_ITEMS,
    PICKLE_MAX_OPCODES,
    PICKLE_MAX_PAYLOAD,
    PICKLE_MAX_WORKING_SET,
)
from anamnesis.formats.pickle.nodes import (
    CONTAINER,
    ENTRY,
    SCALARS,
    SLOT,
    Builder,
    Call,
    Global,
    Key,
    PickledSet,
    built_cost,
)
from anamnesis.formats.pickle.opcodes import (
    COSTS,
    HANDLERS,
    LEFT,
    NO_FRAME,
    Handler,
    OutOfData,
    Problem,
)

if TYPE_CHECKING:
    from pickletools import OpcodeInfo

FindGlobal = Callable[[str, str], Any]
PersistentLoad = Callable[[Any], Any]

_STRETCH = 1 << 18  # opcodes that are run at once
# What handlers do not check themselves.
_LEFT_TO_PYTHON = (IndexError, KeyError, ArithmeticError, TypeError, ValueError, struct.error)


class TruncatedPickle(ParseError):
    """The bytes at hand end before the pickle does."""


class PickleMachine:
    """One run over one pickle."""

    handlers: ClassVar[list[Handler]] = HANDLERS
    max_opcodes: ClassVar[int] = PICKLE_MAX_OPCODES
    max_working_set: ClassVar[int] = PICKLE_MAX_WORKING_SET

    def __init__(
        self,
        data: bytes,
        find_global: FindGlobal,
        persistent_load: PersistentLoad | None,
        budget: Budget,
        name: str,
        start: int = 0,
        base: int = 0,
    ) -> None:
        self.data = data
        self.pos = self.at = self._opcode_at = start
        self.base = base
        self.frame_end = NO_FRAME
        self.has_stopped = False
        self.working_set = 0
        self.find_global = find_global
        self._persistent_load = persistent_load
        self._budget = budget
        self.name = name
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under the marks
        self.memo: dict[int, Any] = {}
        self.calls: list[Call] = []
        self.attributes: dict[int, tuple[Any, list[Any]]] = {}
        limits = budget.limits
        single, total = limits.max_single_alloc, limits.max_total_bytes
        self._most = min(self.max_working_set, PICKLE_FREE_BYTES + PICKLE_MAX_GROWTH * len(data))
        self.allowed = self._most
        self.max_payload = PICKLE_MAX_PAYLOAD
        if total is not None:
            self.allowed = max(0, min(self.allowed, total - budget.bytes_used))
        if single is not None:
            self.allowed = min(self.allowed, single)
            self.max_payload = min(self.max_payload, single)

    def load(self) -> Any:
        """Run up to the opcode STOP and return the value that is left."""
        try:
            self._run()
        except Problem as problem:
            raise self._error(self._opcode_at, str(problem)) from None
        except _LEFT_TO_PYTHON as error:
            raise self._explained(self._opcode_at, error) from None
        self._budget.alloc(self.working_set, f"the values of {self.name}")
        return self.stack.pop()

    def _run(self) -> None:
        """Run all opcodes; leave in `_opcode_at` where the last one begins if that fails."""
        data, handlers, costs, allowed = self.data, self.handlers, COSTS, self.allowed
        pos, opcodes = self.pos, iter(range(self.max_opcodes))
        try:
            while not self.has_stopped:
                self.check_items()  # before far more than one list may have takes its memory
                if not length_hint(opcodes):
                    raise LimitExceeded(
                        "PICKLE_MAX_OPCODES",
                        f"{self.name}: a pickle of more than the {self.max_opcodes:,} opcodes"
                        " allowed",
                    )
                end = self.frame_end
                for _ in islice(opcodes, _STRETCH):
                    if pos >= end:
                        break
                    opcode = data[pos]
                    self.working_set += costs[opcode]
                    if self.working_set > allowed:
                        self._exceeded()
                    pos = handlers[opcode](self, pos + 1)
                if pos >= self.frame_end:
                    pos = self._next_frame(pos)
        finally:
            self._opcode_at = pos

    def _next_frame(self, pos: int) -> int:
        """Return where to go on: a handler has left the frame, or `pos` is at its end or behind."""
        if pos == LEFT:
            return self.pos
        if pos > self.frame_end:
            self.doubt("an opcode runs past the end of its frame", self.frame_end)
        self.frame_end = NO_FRAME
        return pos

    # --- errors --------------------------------------------------------------------------------

    def _error(self, at: int, message: str) -> ParseError:
        info = _opcode_info(self.data[at])
        opcode = info.name if info else f"0x{self.data[at]:02x}"
        return ParseError(f"opcode {opcode}: {message}", offset=self.base + at, source=self.name)

    def _explained(self, at: int, error: Exception) -> ParseError:
        """Return what an exception on the way means; the handlers leave such checks to Python."""
        if isinstance(error, OutOfData) or at + 1 + _operand_bytes(self.data, at) > len(self.data):
            return TruncatedPickle(
                f"the pickle ends after {len(self.data):,} bytes, before its opcode STOP",
                offset=self.base + len(self.data),
                source=self.name,
            )
        if isinstance(error, KeyError):
            return self._error(at, f"nothing is memoised under {error}")
        if isinstance(error, IndexError):
            return self._error(at, "the stack is empty")
        return self._error(at, str(error)[:200])

    def doubt(self, message: str, at: int | None = None) -> None:
        """Refuse what some readers take, and others do not or understand otherwise."""
        # `at` is where in `data` it is, if that is not where the last opcode begins.
        if at is None:
            raise Problem(message)
        raise ParseError(message, offset=self.base + at, source=self.name)

    def _exceeded(self) -> NoReturn:
        what = f"{self.name}: the values of the pickle"
        if self.allowed < self._most:
            self._budget.alloc(self.working_set, what)
        raise LimitExceeded(
            "PICKLE_MAX_WORKING_SET",
            f"{what} take {self.working_set:,} bytes; {self._most:,} are allowed",
        )

    # --- what the handlers share ---------------------------------------------------------------

    def persistent_load(self, saved: Any) -> Any:
        """Return the stand-in for a persistent id."""
        assert self._persistent_load is not None  # else a subclass has a method for it
        return self._persistent_load(saved)

    def charge(self, n_bytes: int) -> None:
        """Account for bytes that are about to be taken."""
        self.working_set += n_bytes
        if self.working_set > self.allowed:
            self._exceeded()

    def payload(self, pos: int, n_bytes: int) -> bytes:
        if n_bytes > self.max_payload:
            if n_bytes <= PICKLE_MAX_PAYLOAD:
                self._budget.alloc(n_bytes, f"{self.name}: a string")
            raise LimitExceeded(
                "PICKLE_MAX_PAYLOAD",
                f"{self.name}: a string of {n_bytes:,} bytes; {PICKLE_MAX_PAYLOAD:,} are allowed",
            )
        end = pos + n_bytes
        if end > len(self.data):
            raise OutOfData
        self.working_set += n_bytes
        if self.working_set > self.allowed:
            self._exceeded()
        return self.data[pos:end]

    def text(self, pos: int, n_bytes: int) -> int:
        """Push a string of UTF-8; return where it ends."""
        raw = self.payload(pos, n_bytes)
        if raw.isascii():
            self.stack.append(raw.decode())
        else:
            self.charge(3 * n_bytes)  # CPython may take four bytes for each character
            self.stack.append(raw.decode("utf-8", "surrogatepass"))
        return pos + n_bytes

    def line(self, pos: int) -> tuple[bytes, int]:
        """Return the bytes up to the end of the line, and where the next one begins."""
        end = self.data.find(b"\n", pos, pos + PICKLE_MAX_PAYLOAD)
        if end < 0:
            raise OutOfData
        return self.payload(pos, end - pos), end + 1

    def pop_mark(self) -> list[Any]:
        """Return what was pushed since the last mark."""
        self.check_items()
        items = self.stack
        self.stack = self.below.pop()
        return items

    def check_items(self) -> None:
        """Refuse more values since the last mark than one list may have."""
        if len(self.stack) > PICKLE_MAX_ITEMS:
            raise LimitExceeded(
                "PICKLE_MAX_ITEMS",
                f"{self.name}: a list of more than the {PICKLE_MAX_ITEMS:,} values allowed",
            )

    def find(self, module: Any, name: Any) -> None:
        """Push the stand-in for a global."""
        if type(module) is not str or type(name) is not str:
            raise Problem("the name of a global must be a string")
        self.charge(CONTAINER)
        self.stack.append(self.find_global(module, name))

    def call(self, function: Any, args: Any) -> None:
        """Push the stand-in for the result of a call."""
        if type(args) is not tuple:
            self.doubt("the arguments of a call must be a tuple")
            args = (args,)
        if isinstance(function, Builder):
            try:
                made = function.build(*args)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise Problem(f"{function} cannot take these arguments: {error}") from None
            self.charge(built_cost(args, made))
        else:
            made = Call(function, args)
            self.calls.append(made)
        self.stack.append(made)

    def build(self, made: Any, state: Any) -> None:
        """Keep what would be given to the `__setstate__` of an object."""
        if type(made) is Call:
            made.states.append(state)
        elif isinstance(made, Global):
            self.doubt("sets the state of a function or class")
        elif state is not None:
            self.attributes.setdefault(id(made), (made, []))[1].append(state)

    def set_items(self, flat: list[Any]) -> None:
        """Set keys and values, one after the other, of the container on top of the stack."""
        target = self.stack[-1]
        pairs = target.pairs if type(target) is Call else target
        if type(pairs) is not dict:
            if flat:
                self.doubt("sets items of something that is not a dictionary")
            return
        if len(flat) % 2:
            raise Problem("a key has no value")
        self.charge(ENTRY * len(flat))
        items = iter(flat)
        for key, value in zip(items, items, strict=True):
            key = key if type(key) is str else plain_key(key)
            if key in pairs:
                self.replace_item(key)
            pairs[key] = value

    def replace_item(self, key: Any) -> None:
        """Called before a dictionary gets another value for a key that it has."""

    def append_items(self, items: list[Any]) -> None:
        """Append to the container on top of the stack."""
        target = self.stack[-1]
        if type(target) is not list:
            if type(target) is not Call and type(target) is not PickledSet:
                if items:
                    self.doubt("appends to something that is not a list")
                return
            target = target.items
        self.charge(SLOT * len(items))
        target.extend(items)


def plain_key(key: Any) -> Any:
    """Return a key whose hash is cheap for any pickle."""
    kind = type(key)
    if kind is int:
        return key if -(1 << 63) <= key < 1 << 63 else Key(key)  # others' hashes may be chosen
    return key if kind in SCALARS else Key(key)


def _opcode_info(code: int) -> OpcodeInfo | None:
    import pickletools  # only for messages, for the sake of a quick start

    return next((info for info in pickletools.opcodes if info.code == chr(code)), None)


def _operand_bytes(data: bytes, at: int) -> int:
    """Return the length of an opcode's operand, as far as it is fixed."""
    info = _opcode_info(data[at]) if at < len(data) else None
    if info is None or info.arg is None:
        return 0
    # pickletools has negative numbers for what begins with a length of 1, 4, 4 or 8 bytes.
    return {-2: 1, -3: 4, -4: 4, -5: 8}.get(info.arg.n, max(0, info.arg.n))
