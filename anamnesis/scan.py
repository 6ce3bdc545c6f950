"""scan: every global that the pickles in a file refer to, with a verdict on each.

The pickles run in the machine that executes nothing, so that names which are put together on the
stack or come from the memo are told too. What cannot be read to its end is not safe.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from anamnesis.dangerous_globals import is_dangerous
from anamnesis.errors import AnamnesisError, LimitExceeded
from anamnesis.formats.npy import NPY_MAGIC, read_header
from anamnesis.formats.pickle import PickleMachine
from anamnesis.formats.pickle_nodes import SCALARS, Global
from anamnesis.formats.pth_container import read_pickle
from anamnesis.formats.pth_legacy import MAGIC, PickleStream
from anamnesis.formats.torch_globals import is_allowed
from anamnesis.limits import UNLIMITED, Budget, ParseLimits
from anamnesis.scan_report import DANGEROUS, SAFE, UNKNOWN, FoundGlobal, PickleScan, Scan
from anamnesis.source import BufferSource, Source, open_source

if TYPE_CHECKING:
    from anamnesis.formats.zip import ZipDirectory, ZipEntry

__all__ = ["FoundGlobal", "PickleScan", "Scan", "scan"]

SCAN_MAX_NESTED = 8  # pickles in pickles
SCAN_MAX_PICKLES = 10_000
_MOST_OF_A_NAME = 200  # characters
_GLOBAL_BYTES = 1000  # that keeping one takes, at most

_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_PROTOCOL = re.compile(rb"\x80[\x00-\x05]")
_PICKLE_NAME = re.compile(r"\.(pkl|pickle|p|pk|joblib|dill|dat|debug_pkl)$", re.IGNORECASE)
_RAW_NAME = re.compile(  # of what torch writes and never unpickles
    r"(.*/)?(data|constants)/\d+|(.*/)?(byteorder|version|\.format_version|\.storage_alignment)"
    r"|(.*/)?\.data/serialization_id|(.*/)?code/.*\.py"
)
# Whole descriptors of NumPy arrays that hold strings, dates, bytes or long numbers, no objects.
_NO_OBJECTS = re.compile(r"numpy [<>|=]?[USaMmVfc][0-9]{0,9}(\[[0-9a-z]{1,9}\])?")
_LEGACY_PICKLES = 5  # before the storages


def scan(where: Any, *, limits: ParseLimits | None = None) -> Scan:
    """Look for pickles in a file, and for what they refer to; nothing of them is executed.

    Parameters
    ----------
    where : path, bytes-like or file object
        A pickle, several one after the other, a torch file of any age, a NumPy file or archive.
        Files of formats without pickles are safe.
    limits : ParseLimits, optional
        Budgets; a pickle that exceeds them is not safe.

    Returns
    -------
    Scan

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with open_source(where) as source:
        return _Scanner(source, limits or UNLIMITED).run()


class _Findings:
    """What one pickle is found to hold."""

    def __init__(self) -> None:
        self.globals: dict[tuple[str, str], FoundGlobal] = {}
        self.nested: dict[int, bytes] = {}  # strings that look like pickles, by their offset


class _Machine(PickleMachine):
    """A pickle machine that keeps what it comes across."""

    def __init__(self, findings: _Findings, *rest: Any) -> None:
        super().__init__(*rest)
        self._findings = findings

    def find(self, module: Any, name: Any) -> None:
        """Push a global that may have any name, even one that is no string."""
        if type(module) is not str or type(name) is not str:
            module, name = "(computed)", "(computed)"
            verdict = DANGEROUS
        else:
            verdict = _verdict(module, name)
            module, name = module[:_MOST_OF_A_NAME], name[:_MOST_OF_A_NAME]
        self.charge(_GLOBAL_BYTES)
        found = FoundGlobal(module, name, verdict, self.base + self.at)
        self._findings.globals.setdefault((module, name), found)
        self.stack.append(Global(module, name))

    def set_items(self, flat: list[Any]) -> None:
        """Set items, also of what only CPython can set them of: a list, for instance."""
        if type(self.stack[-1]) is not list:
            super().set_items(flat)

    def append_items(self, items: list[Any]) -> None:
        """Append items, also to what only CPython can append to: a bytearray, for instance."""
        if type(self.stack[-1]) not in SCALARS:
            super().append_items(items)

    def payload(self, pos: int, n_bytes: int) -> bytes:
        """Return the bytes of a string, and keep those that look like a pickle."""
        data = super().payload(pos, n_bytes)
        if _PROTOCOL.match(data):
            self._findings.nested.setdefault(self.base + pos, data)
        return data


class _Scanner:
    """One scan."""

    def __init__(self, source: Source, limits: ParseLimits) -> None:
        self.source = source
        self.limits = limits
        self.scan = Scan()

    def run(self) -> Scan:
        source = self.source
        head = source.read(0, min(source.size, 16))
        try:
            if head.startswith(_ZIP_MAGICS):
                self._archive()
            elif head.startswith(NPY_MAGIC):
                self._array()
            elif _is_of_another_format(head):
                self._polyglot()
            else:
                self._stream(source, "")
        except AnamnesisError as error:
            self.scan.problems.append(str(error))
        return self.scan

    def _archive(self) -> None:
        from anamnesis.formats import zip

        directory = zip.read_directory(self.source, Budget(self.limits))
        for entry in directory.entries.values():
            is_pickle = _PICKLE_NAME.search(entry.name) is not None
            if not is_pickle and _RAW_NAME.fullmatch(entry.name):
                continue
            try:
                self._member(directory, entry, is_pickle)
            except AnamnesisError as error:
                self.scan.problems.append(str(error))

    def _member(self, directory: ZipDirectory, entry: ZipEntry, is_pickle: bool) -> None:
        source, start = directory.locate(entry)
        head = source.read(start, min(entry.n_bytes, 16))
        if head.startswith(_ZIP_MAGICS):
            self.scan.problems.append(f"{entry.name}: an archive in the archive; unpack it")
            return
        at: int | None = 0
        if head.startswith(NPY_MAGIC):
            at = self._behind_header(source, start, entry.n_bytes, entry.name)
        if at is not None and (at or is_pickle or _PROTOCOL.match(head)):
            self._stream(BufferSource(read_pickle(directory, entry), entry.name), entry.name, at)

    def _behind_header(self, source: Source, start: int, n_bytes: int, name: str) -> int | None:
        """Return where in an array a pickle begins; None if its data is surely none."""
        header = read_header(source, start, start + n_bytes, name, Budget(self.limits))
        if not header.problem or _NO_OBJECTS.fullmatch(header.dtype.name):
            return None
        return header.data_start - start

    def _array(self) -> None:
        source = self.source
        start = self._behind_header(source, 0, source.size, source.name)
        if start is not None:
            self._stream(source, "", start)

    def _polyglot(self) -> None:
        """Look for globals in a file of a format without pickles, which may be one all the same."""
        pickle = PickleScan("read as a pickle")
        self._one(PickleStream(self.source, Budget(self.limits)), pickle)
        if pickle.globals or pickle.is_over_limit:
            self.scan.pickles.append(pickle)

    def _stream(self, source: Source, name: str, start: int = 0) -> None:
        """Run all pickles from `start` to the end, or to a legacy torch file's storages."""
        stream = PickleStream(source, Budget(self.limits), min(start, source.size))
        is_torch = False
        for n in range(SCAN_MAX_PICKLES - len(self.scan.pickles)):
            at = stream.pos
            called = name if name and at == start else f"{name} at byte {at:,}".strip()
            self.scan.pickles.append(pickle := PickleScan(called))
            value = self._one(stream, pickle)
            is_torch = value == MAGIC if n == 0 else is_torch
            if pickle.malformed or stream.pos >= source.size:
                return
            if is_torch and n + 1 == _LEGACY_PICKLES:
                return  # what follows are storages
        self.scan.problems.append(f"{name or source.name}: more than {SCAN_MAX_PICKLES:,} pickles")

    def _one(self, stream: PickleStream, pickle: PickleScan, depth: int = SCAN_MAX_NESTED) -> Any:
        """Run the next pickle and those in its strings; return its value."""
        findings = _Findings()
        value = None
        try:
            value = stream.load(Global, _opaque, partial(_Machine, findings))
        except AnamnesisError as error:
            pickle.malformed = str(error)
            pickle.is_over_limit = isinstance(error, LimitExceeded)
        pickle.globals.extend(findings.globals.values())
        for at, data in findings.nested.items():
            self._nested(f"{pickle.name}, in a string at byte {at:,}", data, depth)
        return value

    def _nested(self, name: str, data: bytes, depth: int) -> None:
        """Look into a string that looks like a pickle; if it is none it does not matter."""
        if depth == 0 or len(self.scan.pickles) >= SCAN_MAX_PICKLES:
            self.scan.problems.append(f"{name}: not looked into")
            return
        inner = PickleScan(name)
        self._one(PickleStream(BufferSource(data), Budget(self.limits)), inner, depth - 1)
        if inner.globals:
            self.scan.pickles.append(inner)


def _verdict(module: str, name: str) -> str:
    if is_allowed(module, name):
        return SAFE
    return DANGEROUS if is_dangerous(module, name) else UNKNOWN


def _opaque(saved: Any) -> Any:
    return Global("(persistent)", "id")


def _is_of_another_format(head: bytes) -> bool:
    """Tell whether a file claims to be GGUF or safetensors."""
    return head.startswith(b"GGUF") or (head[8:9] == b"{" and head[4:8] == bytes(4))
