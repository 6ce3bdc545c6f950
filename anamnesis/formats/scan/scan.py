"""scan: every global that the pickles in a file refer to, with a verdict on each.

The pickles run in a machine that executes nothing, so names that are assembled on the stack or come
from the memo are reported too. A file is safe only if all of it is understood: not if it cannot be
read to its end, nor if another program would read it differently. A file of a format without
pickles may still be one: it is run as a guest, which counts only if it refers to anything.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import AnamnesisError, LimitExceeded
from anamnesis.base.limits import UNLIMITED, Budget, ParseLimits
from anamnesis.base.source import Source
from anamnesis.formats.magic import GGUF_MAGIC, NPY_MAGIC, TORCH_MAGIC, ZIP_MAGICS
from anamnesis.formats.pickle.limits import PICKLE_MAX_BYTES, PICKLE_MAX_RATIO, PICKLE_SMALL
from anamnesis.formats.pickle.nodes import Global
from anamnesis.formats.scan import other
from anamnesis.formats.scan.dangerous import is_dangerous, is_extension
from anamnesis.formats.scan.machine import PROTOCOL, Findings, GuestMachine, ScanMachine
from anamnesis.formats.scan.report import SAFE, PickleScan, Scan
from anamnesis.formats.torch.globals import find_torch_global
from anamnesis.formats.torch.legacy import PickleStream, end_of_storages
from anamnesis.formats.torch.read import pickles_of, read_pickle
from anamnesis.formats.zip.directory import LOCAL_BYTES, start_of_last
from anamnesis.sources.memory import BufferSource
from anamnesis.sources.open import open_source
from anamnesis.sources.stream import seekable

if TYPE_CHECKING:
    from anamnesis.formats.zip.directory import ZipEntry
    from anamnesis.formats.zip.members import ZipDirectory

SCAN_MAX_NESTED = 8  # pickles in pickles
SCAN_MAX_PICKLES = 10_000

_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf\x27\x1c", b"\x28\xb5\x2f\xfd")
_PICKLE_NAME = re.compile(r"\.(pkl|pickle|p|pk|joblib|dill|dat|debug_pkl)$", re.IGNORECASE)
_RAW_NAME = re.compile(  # of what torch writes and never unpickles
    r"(.*/)?(data|constants)/\d+|(.*/)?(byteorder|version|\.format_version|\.storage_alignment)"
    r"|(.*/)?\.data/serialization_id|(.*/)?code/.*\.py"
)
# What pickles begin with that refer to anything, and NumPy arrays, and archives.
_LOOKS = re.compile(rb"\x80[\x00-\x05]|[c(][A-Za-z_]|\x93NUMPY|PK[\x03\x05]")
_PEEK = 192  # bytes of a member with its header
_LENGTHS = struct.Struct("<2H").unpack_from  # of the name and the extra field
_HEAD_BYTES = 16
_LEGACY_PICKLES = 5  # before the storages
_MOST_LISTED = 1 << 20  # bytes of opcodes that are listed, where a pickle breaks
_NO_KNOWN_FORMAT = "neither a pickle nor a model file of a known format"
_BROKEN = object()  # the value of a pickle that could not be run to its end


def scan(where: Any, *, limits: ParseLimits | None = None) -> Scan:
    """Look for pickles in a file, and for what they refer to; nothing of them is executed.

    Parameters
    ----------
    where : path, bytes-like or file object
        A pickle, several one after the other, a torch file of any age, a NumPy file or archive.
        Whole files of formats without pickles are safe.
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
    with open_source(seekable(where)) as source:
        return _Scanner(source, limits or UNLIMITED).run()


class _Scanner:
    """One scan."""

    def __init__(self, source: Source, limits: ParseLimits) -> None:
        self.source = source
        self.limits = limits
        self.scan = Scan()

    def run(self) -> Scan:
        source = self.source
        head = source.read(0, min(source.size, _HEAD_BYTES))
        try:
            if head.startswith(ZIP_MAGICS):
                self._archive()
                if head.isascii():  # else it cannot be a pickle that begins with PERSID
                    self._guest(source, "read as a pickle")
            else:
                self._no_archive(head)
        except AnamnesisError as error:
            self._problem(error)
        return self.scan

    def _problem(self, error: AnamnesisError) -> None:
        self.scan.problems.append(_without_name(error, self.source))

    def _no_archive(self, head: bytes) -> None:
        source = self.source
        if other.is_tar(source):
            self.scan.problems.append("a tar archive; unpack it")
        elif other.ends_like_an_archive(source):
            self.scan.problems.append("a ZIP archive with data before it")
        if head.startswith(NPY_MAGIC):
            at = other.data_of_array(source, 0, source.size, source.name, Budget(self.limits))
            if at is not None:
                self._stream(source, "", at)
        elif head.startswith(GGUF_MAGIC) or (head[8:9] == b"{" and head[4:8] == bytes(4)):
            try:
                other.parse_other(self.source, head[:8], Budget(self.limits))
            except AnamnesisError as error:
                self._stream(self.source, "")
                if self.scan.verdict != SAFE:
                    self._problem(error)
                    self._forget_what_is_no_pickle()
            else:
                self._guest(self.source, "read as a pickle")
        elif other.is_document(source):
            self._guest(source, "read as a pickle")
        else:
            self._stream(source, "")
            if not _PICKLE_NAME.search(source.name):
                self._name_what_is_no_pickle()

    def _name_what_is_no_pickle(self) -> None:
        """Say of a broken pickle what the file is instead; it is not safe either way."""
        from anamnesis.formats.foreign import foreign_kind, looks_like_a_pickle

        is_one = any(pickle.globals or not pickle.malformed for pickle in self.scan.pickles)
        if is_one or looks_like_a_pickle(self.source):
            return
        if not self.scan.problems:
            self.scan.problems.append(foreign_kind(self.source) or _NO_KNOWN_FORMAT)
        self._forget_what_is_no_pickle()

    def _forget_what_is_no_pickle(self) -> None:
        """Leave out broken pickles that refer to nothing, if a problem says what the file is."""
        self.scan.pickles = [
            p for p in self.scan.pickles if p.globals or p.is_over_limit or not p.malformed
        ]

    # --- archives ------------------------------------------------------------------------------

    def _archive(self) -> None:
        from anamnesis.formats.zip import members as zip

        if start_of_last(self.source):
            self._archives()
            return
        directory = zip.read_directory(self.source, Budget(self.limits))
        is_torch = bool(pickles_of(directory))
        for entry in directory.entries.values():
            if is_torch and _is_raw(entry.name) and not _has_looks(self.source, entry):
                continue
            try:
                self._member(directory, entry, is_torch=is_torch)
            except AnamnesisError as error:
                self._problem(error)

    def _archives(self) -> None:
        """Scan archives that follow each other, as torch's distributed checkpoints have them."""
        archives = other.archives_in(self.source, SCAN_MAX_PICKLES)
        if len(archives) > SCAN_MAX_PICKLES:
            self.scan.problems.append(f"more than {SCAN_MAX_PICKLES:,} archives")
        known: set[tuple[str, str]] = set()
        for begin, source in archives[-SCAN_MAX_PICKLES:]:
            found = _Scanner(source, self.limits).run()
            at = f" of the archive at byte {begin:,}"
            self.scan.problems += [f"{problem}{at}" for problem in found.problems]
            for pickle in found.pickles:
                new = {(g.module, g.name) for g in pickle.globals} - known
                if new or pickle.verdict != SAFE:
                    self.scan.pickles.append(replace(pickle, name=f"{pickle.name}{at}"))
                known |= new

    def _member(self, directory: ZipDirectory, entry: ZipEntry, *, is_torch: bool) -> None:
        name = entry.name
        is_pickle = _PICKLE_NAME.search(name) is not None
        is_raw = is_torch and _is_raw(name)
        source, start = directory.locate(entry)
        head = source.read(start, min(entry.n_bytes, _HEAD_BYTES))
        has_protocol = PROTOCOL.match(head) is not None
        if head.startswith(NPY_MAGIC):
            end = start + entry.n_bytes
            at = other.data_of_array(source, start, end, name, Budget(self.limits))
            if at is not None:
                self._stream(BufferSource(read_pickle(directory, entry), name), name, at - start)
        elif head.startswith(ZIP_MAGICS):
            self.scan.problems.append(f"{name}: an archive inside the archive; unpack it")
        elif is_pickle or (has_protocol and not is_raw):
            self._stream(BufferSource(read_pickle(directory, entry), name), name)
        elif head and (not is_raw or _LOOKS.match(head)):
            if head.startswith(_PACKED):
                self.scan.problems.append(f"{name}: compressed again; unpack it")
            most = max(PICKLE_SMALL, min(PICKLE_MAX_BYTES, PICKLE_MAX_RATIO * entry.n_compressed))
            self._guest(directory.source_of(entry), name, most)

    # --- pickles -------------------------------------------------------------------------------

    def _guest(self, source: Source, name: str, most_bytes: int = PICKLE_MAX_BYTES) -> None:
        """Run what should be no pickle, and keep it if it refers to anything."""
        stream = PickleStream(source, Budget(self.limits), most_bytes=most_bytes)
        for _ in range(SCAN_MAX_PICKLES):
            at = stream.pos
            pickle = PickleScan(name)
            findings = Findings()
            is_broken = self._one(stream, pickle, GuestMachine, findings) is _BROKEN
            if is_broken:
                # Nobody registers codes of extensions; and a pickle that breaks calls nothing else.
                pickle.globals = [g for g in pickle.globals if not is_extension(g.module, g.name)]
            is_doubtful = pickle.is_over_limit or findings.is_desynced
            if pickle.globals or is_doubtful or (is_broken and _names_some(source, at)):
                self.scan.pickles.append(pickle)
            if is_broken or stream.pos >= source.size:
                return
        self.scan.problems.append(f"{name}: more than {SCAN_MAX_PICKLES:,} pickles")

    def _stream(self, source: Source, name: str, start: int = 0) -> None:
        """Run all pickles from `start` to the end, except a legacy torch file's storages."""
        stream = PickleStream(source, Budget(self.limits), min(start, source.size))
        is_torch = False
        saved: list[Any] = []
        for n in range(SCAN_MAX_PICKLES - len(self.scan.pickles)):
            at = stream.pos
            called = name if name and at == start else f"{name} at byte {at:,}".strip()
            self.scan.pickles.append(pickle := PickleScan(called))
            value = self._one(stream, pickle, ScanMachine, Findings(), saved)
            is_torch = value == TORCH_MAGIC if n == 0 else is_torch
            if is_torch and n + 1 == _LEGACY_PICKLES and value is not _BROKEN:
                budget = Budget(self.limits)
                end = end_of_storages(source, budget, stream.pos, map(_with_dtype, saved), value)
                stream = PickleStream(source, budget, end)
            if value is _BROKEN or stream.pos >= source.size:
                return
        self.scan.problems.append(f"{name or source.name}: more than {SCAN_MAX_PICKLES:,} pickles")

    def _one(
        self,
        stream: PickleStream,
        pickle: PickleScan,
        machine: type[ScanMachine],
        findings: Findings,
        saved: list[Any] | None = None,
        depth: int = SCAN_MAX_NESTED,
    ) -> Any:
        """Run the next pickle and those in its strings; return its value."""
        # The persistent ids that it holds are added to `saved`.
        value = _BROKEN

        def opaque(persistent_id: Any) -> Any:
            if saved is not None:
                saved.append(persistent_id)
            return Global("(persistent)", "id")

        try:
            value = stream.load(Global, opaque, partial(machine, findings, stream.source.size))
        except AnamnesisError as error:
            if not (error is findings.error or isinstance(error, LimitExceeded)):
                raise  # it could not even be read
            pickle.is_over_limit = isinstance(error, LimitExceeded)
            pickle.malformed = _without_name(error, stream.source)
        finally:
            pickle.globals.extend(findings.globals.values())
        pickle.malformed = findings.doubt or pickle.malformed
        for at, data in findings.nested.items():
            name = f"{pickle.name}, in a string at byte {at:,}"
            if depth == 0 or len(self.scan.pickles) >= SCAN_MAX_PICKLES:
                self.scan.problems.append(f"{name}: not looked into")
                continue
            inner = PickleScan(name)  # which does not matter if it is none
            within = PickleStream(BufferSource(data), Budget(self.limits))
            self._one(within, inner, ScanMachine, Findings(), depth=depth - 1)
            if inner.globals:
                self.scan.pickles.append(inner)
        return value


def _without_name(error: AnamnesisError, source: Source) -> str:
    """Return what is wrong, without the name of the file or pickle."""
    return str(error).removeprefix(f"{source.name}: ")


def _is_raw(name: str) -> bool:
    """Return whether torch writes no pickle under a name in its archives."""
    folder, _, key = name.rpartition("/")
    if key.isdecimal() and folder.endswith(("/data", "/constants")):  # as usual
        return True
    return _RAW_NAME.fullmatch(name) is not None


def _has_looks(source: Source, entry: ZipEntry) -> bool:
    """Tell, with one read, whether a raw member may be a file of another kind all the same."""
    n = min(source.size - entry.header_offset, _PEEK)
    raw = source.read(entry.header_offset, n)
    n_name, n_extra = _LENGTHS(raw, LOCAL_BYTES - 4)
    first = LOCAL_BYTES + n_name + n_extra
    if entry.method != "stored" or first + _HEAD_BYTES > n:
        return True
    return _LOOKS.match(raw, first) is not None


def _names_some(source: Source, at: int) -> bool:
    """Return whether a list of opcodes, which knows no stack, has dangerous globals in it."""
    # Other scanners go by such a list.
    import io
    import pickletools

    data = source.read(at, min(source.size - at, _MOST_LISTED))
    try:
        for n, (opcode, arg, _) in enumerate(pickletools.genops(io.BytesIO(data))):
            if opcode.name == "STACK_GLOBAL" and n >= 2:
                return True
            if opcode.name in ("GLOBAL", "INST") and is_dangerous(*str(arg).split(" ", 1)):
                return True
    except Exception:  # anything, for what is not a pickle
        pass
    return False


def _with_dtype(persistent_id: Any) -> Any:
    """Return the persistent id of a storage with what torch's machine has for its kind."""
    if type(persistent_id) is not tuple or len(persistent_id) < 2:
        return persistent_id
    what, kind, *rest = persistent_id
    if type(kind) is Global:
        kind = find_torch_global(kind.module, kind.name, allow_foreign=True)
    return (what, kind, *rest)
