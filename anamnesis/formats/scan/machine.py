"""The pickle machine that `scan` runs: it records the globals that it meets.

It accepts everything that any of CPython's unpicklers accepts, in C or in Python, from bytes or
from a file, so that nothing behind it is missed. What they read in different ways leaves a doubt.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from anamnesis.base.errors import AnamnesisError, ParseError
from anamnesis.formats.pickle.machine import PickleMachine, TruncatedPickle
from anamnesis.formats.pickle.nodes import CONTAINER, Call, Global
from anamnesis.formats.pickle.opcodes import HANDLERS, NO_FRAME, Handler, OutOfData, Problem
from anamnesis.formats.scan.dangerous import LONGEST_NAME, is_dangerous
from anamnesis.formats.scan.report import DANGEROUS, SAFE, UNKNOWN, FoundGlobal
from anamnesis.formats.scan.roles import role_of

PROTOCOL = re.compile(rb"\x80[\x00-\x05]")
_MODULE = re.compile(r"[\w.-]+")
_COMPUTED = (Call, Global, bytes)  # what may be a string, once it is made
_GLOBAL_BYTES = 1000  # that keeping one takes, at most
_CALLS, _OF_TENSORS = "torch._tensor._rebuild_from_type_v2", "torch._utils"
_JOBLIB_ARRAY = ("joblib.numpy_pickle", "NumpyArrayWrapper")  # its bytes follow the opcode BUILD
_OCTAL = re.compile(rb"\s*[+-]?0[0-7]*")
_FRAME, _LONG4, _NEWOBJ_EX = 0x95, 0x8B, 0x92
_I32 = struct.Struct("<i").unpack_from


class Findings:
    """What one pickle is found to hold."""

    def __init__(self) -> None:
        self.globals: dict[tuple[str, str], FoundGlobal] = {}
        self.nested: dict[int, bytes] = {}
        self.doubt: str | None = None
        self.is_desynced = False
        self.error: AnamnesisError | None = None


class ScanMachine(PickleMachine):
    """One run over one pickle."""

    def __init__(self, findings: Findings, n_bytes: int, *rest: Any) -> None:
        super().__init__(*rest)
        self._findings = findings
        self.room = n_bytes - self.base  # of `data`, when all of it is read

    def load(self) -> Any:
        try:
            return super().load()
        except AnamnesisError as error:
            self._findings.error = error
            if not isinstance(error, TruncatedPickle):
                # Its operand may reach over the end of the frame, so that others read another.
                self._findings.is_desynced |= self.frame_end != NO_FRAME
            raise

    def _run(self) -> None:
        data, handlers = self.data, self.handlers
        if CONTAINER * len(data) > self.allowed:
            super()._run()
            return
        pos = self.pos
        try:
            while not self.has_stopped:
                frame_end = self.frame_end
                while pos < frame_end:
                    pos = handlers[data[pos]](self, pos + 1)
                pos = self._next_frame(pos)
        finally:
            self._opcode_at = pos

    def doubt(self, message: str, at: int | None = None) -> None:
        offset = None if at is None else self.base + at
        self._findings.is_desynced |= self.frame_end != NO_FRAME
        known = self._findings.doubt
        self._findings.doubt = known or str(ParseError(message, offset=offset))

    def _unusual(self, message: str) -> None:
        """Keep what all readers understand alike, but is not known to be harmless."""
        if not self._findings.doubt:
            self._findings.doubt = str(ParseError(message, offset=self.base + self.at))

    def find(self, module: Any, name: Any) -> None:
        self.charge(CONTAINER)
        self.stack.append(self.keep(module, name))

    def keep(self, module: Any, name: Any) -> Global:
        is_computed = type(module) is not str or type(name) is not str
        if is_computed:
            module, name = "(computed)", "(computed)"
        key = module[: LONGEST_NAME + 1], name[: LONGEST_NAME + 1]
        if key not in self._findings.globals:
            self.charge(_GLOBAL_BYTES)
            verdict = DANGEROUS if is_computed else _verdict(module, name)
            found = FoundGlobal(*key, verdict, self.base + self.at)
            self._findings.globals[key] = found
        return Global(module, name)

    def call(self, function: Any, args: Any) -> None:
        super().call(function, args)
        made = self.stack[-1]
        is_function = isinstance(function, Global) and function.module != "(persistent)"
        role = role_of(function.module, function.name) if is_function else None
        if not is_function:
            self._unusual("something is called that is no function")
        elif role is not None and not (role.takes is not None and role.takes(made.args)):
            self._unusual(f"{function} is called as plain values do not call it")
        elif str(function) == _CALLS and not (
            made.args and isinstance(made.args[0], Global) and made.args[0].module == _OF_TENSORS
        ):
            self._unusual("a tensor is made by something else than torch's functions")

    def build(self, made: Any, state: Any) -> None:
        super().build(made, state)
        function = made.function if type(made) is Call else None
        if isinstance(function, Global):
            role = role_of(function.module, function.name)
            if role is not None and not (role.state is not None and role.state(made)):
                self._unusual(f"{function} gets a state that plain values do not have")
            if (function.module, function.name) == _JOBLIB_ARRAY:
                raise Problem("joblib's arrays lie between the opcodes and are not looked into")

    def line(self, pos: int) -> tuple[bytes, int]:
        try:
            return super().line(pos)
        except OutOfData:
            end = len(self.data)
            if end < self.room:
                raise
            self.doubt("a line without an end", pos)
            return self.payload(pos, end - pos)[:-1], end

    def payload(self, pos: int, n_bytes: int) -> bytes:
        if pos + n_bytes > self.room:
            raise Problem(f"a string of {n_bytes:,} bytes, more than follow")
        data = super().payload(pos, n_bytes)
        if data[:1] == b"\x80" and PROTOCOL.match(data):
            self._findings.nested.setdefault(self.base + pos, data)
        return data


class GuestMachine(ScanMachine):
    """A machine for what should be no pickle, in which what reads like a global may be none."""

    def keep(self, module: Any, name: Any) -> Global:
        for part in (module, name):
            if type(part) is not str and not isinstance(part, _COMPUTED):
                raise Problem("the name of a global must be a string")
        if type(module) is str and not _MODULE.fullmatch(module):
            raise Problem("no module can have this name")
        return super().keep(module, name)


def _verdict(module: str, name: str) -> str:
    if role_of(module, name) is not None:
        return SAFE
    if (module, name) == _JOBLIB_ARRAY:
        return UNKNOWN
    return DANGEROUS if is_dangerous(module, name) else UNKNOWN


# --- opcodes that CPython's unpicklers take in more forms than one -----------------------------


def _frame(machine: Any, pos: int) -> int:
    """Begin a frame; the unpickler in Python takes one that is too long."""
    operand = machine.data[pos : pos + 8]
    if len(operand) == 8 and pos + 8 + int.from_bytes(operand, "little") > machine.room:
        machine.doubt("a frame that runs past the end of the file", pos - 1)
        return pos + 8
    return HANDLERS[_FRAME](machine, pos)


def _long4(machine: Any, pos: int) -> int:
    """Push an integer of any length, which nothing here looks at."""
    (n_bytes,) = _I32(machine.data, pos)
    if n_bytes < 0:
        raise Problem(f"an integer of {n_bytes:,} bytes")
    machine.payload(pos + 4, n_bytes)
    machine.stack.append(0)
    return pos + 4 + n_bytes  # type: ignore[no-any-return]


def _up_to_nul(handler: Handler, act: Callable[[Any, bytes], None]) -> Handler:
    """Return the handler of a number in a line; the unpickler in C reads no further than a NUL."""

    def run(machine: Any, pos: int) -> int:
        try:
            return handler(machine, pos)
        except OutOfData:
            raise
        except ValueError:
            raw, pos = machine.line(pos)
            act(machine, raw.partition(b"\0")[0])
            machine.doubt("a number that some readers reject", pos)
            return pos

    return run


def _newobj_ex(machine: Any, pos: int) -> int:
    """Call with keywords, which no plain value needs."""
    if machine.stack[-1]:
        machine._unusual("keyword arguments")
    return HANDLERS[_NEWOBJ_EX](machine, pos)


def _push_number(machine: Any, text: bytes) -> None:
    if text and not _OCTAL.fullmatch(text):
        try:
            int(text, 0)
        except ValueError:
            float(text)
    machine.stack.append(0)


def _get(machine: Any, text: bytes) -> None:
    machine.stack.append(machine.memo[int(text)])


def _put(machine: Any, text: bytes) -> None:
    machine.memo[int(text)] = machine.stack[-1]


ScanMachine.handlers = [*HANDLERS]
ScanMachine.handlers[_FRAME] = _frame
ScanMachine.handlers[_LONG4] = _long4
ScanMachine.handlers[_NEWOBJ_EX] = _newobj_ex
for _codes, _act in ((b"ILF", _push_number), (b"g", _get), (b"p", _put)):
    for _code in _codes:
        ScanMachine.handlers[_code] = _up_to_nul(HANDLERS[_code], _act)
