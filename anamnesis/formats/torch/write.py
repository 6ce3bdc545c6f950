"""The writer of torch's files: the bytes that `torch.save` writes.

    archive/data.pkl  archive/byteorder …  archive/data/0  archive/data/1 …  archive/version

Nothing is pickled: the opcodes are put together here. Only `serialization_id` differs, 40 digits
that no reader looks at: half of them torch makes of its C++ library's hashes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from anamnesis.base.crc import crc32
from anamnesis.base.dtypes import ALL_DTYPES, DType
from anamnesis.base.errors import LimitExceeded
from anamnesis.base.stored import Part
from anamnesis.formats.base import FileLayout, Writer
from anamnesis.formats.pickle.limits import PICKLE_MAX_BYTES
from anamnesis.formats.torch.globals import STORAGES
from anamnesis.formats.torch.values import PTH_MAX_DIMS, too_large
from anamnesis.formats.zip.directory import HAS_DESCRIPTOR, UTF8
from anamnesis.formats.zip.write import (
    LOCAL_BYTES,
    MINIZ,
    Member,
    directory,
    directory_bytes,
    local_header,
    wide_field,
    wide_numbers,
)

_FOLDER = b"archive/"
_ALIGNMENT = 64  # of each storage in the file, so that torch can map it
_ID = ".data/serialization_id"
_ID_DIGITS = 40

# Whose tensors lie in a storage of that name. Torch rebuilds others from bytes and a dtype.
_STORAGE_OF = {
    dtype.name: f"{kind}Storage"
    for kind, torch_name in STORAGES.items()
    for dtype in ALL_DTYPES.values()
    if dtype.torch_name == torch_name
}
_UNTYPED = ("U16", "U32", "U64", "F4", *(name for name in ALL_DTYPES if name.startswith("F8_")))


class TorchWriter(Writer):
    """Tensors go in the order given, each in a storage of its own, row-major."""

    id = "torch"
    extension = ".pth"
    wants_sums = True
    takes_metadata = False

    def __init__(self) -> None:
        self._archive = _Archive()
        self._names_hash = 0

    def holds(self, dtype: DType) -> bool:
        return dtype.name in _STORAGE_OF or dtype.name in _UNTYPED

    def refuses(self, part: Part) -> str | None:
        name, dtype, shape = part
        if not self.holds(dtype):
            return f"torch cannot store {dtype.name}"
        if not name:
            return "its name is empty, as that of no module's tensor is; rename it"
        if len(shape) > PTH_MAX_DIMS:
            return f"torch has at most {PTH_MAX_DIMS} dimensions, not {len(shape)}"
        if too_large(shape) or too_large(tuple(_strides(shape)[:1])):
            return f"{list(shape)} is larger than torch has a tensor"
        row = shape[-1] if shape else 1
        if row % dtype.block_elements:
            return (
                f"torch packs {dtype.block_elements} of {dtype.name} in a byte; {row:,} do not fit"
            )
        return None

    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> FileLayout:
        self.check(parts, metadata)
        pickle = _StateDict().pickled(parts)
        if len(pickle) > PICKLE_MAX_BYTES:
            raise LimitExceeded(
                "PICKLE_MAX_BYTES", f"the output's pickle would take {len(pickle):,} bytes"
            )
        archive = self._archive = _Archive()
        archive.add("data.pkl", pickle)
        archive.add(".format_version", b"1")
        archive.add(".storage_alignment", b"%d" % _ALIGNMENT)
        archive.add("byteorder", b"little")
        offsets = [archive.add_room(f"data/{i}", part.n_bytes) for i, part in enumerate(parts)]
        archive.add("version", b"3\n")
        archive.close()
        self._names_hash = int.from_bytes(sha256(pickle).digest()[:8], "little")
        return FileLayout(archive.pieces, offsets, archive.n_bytes())

    def finish(self, sums: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        archive = self._archive
        crcs = archive.crcs.copy()
        patches = []
        for i, crc in zip(archive.rooms, sums, strict=True):
            if archive.members[i].n_bytes:
                crcs[i] = crc
                patches.append((archive.ends[i], _DESCRIPTOR.pack(_DESCRIPTOR_MAGIC, crc)))
        combined = 0
        for member, crc in zip(archive.members, crcs, strict=True):
            if member.n_bytes:  # as torch's `hash_combine` does
                combined ^= crc + 0x9E3779B9 + (combined << 6) + (combined >> 2) & _MASK
        return [*patches, (archive.at, archive.end(f"{self._names_hash:020}{combined:020}", crcs))]


# --- the archive --------------------------------------------------------------------------------

_DESCRIPTOR = struct.Struct("<4sI")
_DESCRIPTOR_MAGIC = b"PK\7\x08"
_MASK = 2**64 - 1


class _Archive:
    """The members of an archive on its way."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.crcs: list[int] = []
        self.ends: list[int] = []
        self.rooms: list[int] = []
        self.pieces: list[tuple[int, bytes]] = []
        self.at = 0
        self._piece: list[bytes] = []
        self._piece_at = 0

    def add(self, name: str, content: bytes) -> None:
        crc = crc32(content)
        header, lengths = self._begin(name, len(content), crc)
        self._put(header + content + _DESCRIPTOR.pack(_DESCRIPTOR_MAGIC, crc) + lengths)

    def add_room(self, name: str, n_bytes: int) -> int:
        """Add a member whose bytes others write; return where they go."""
        self.rooms.append(len(self.members))
        header, lengths = self._begin(name, n_bytes, 0)
        self._put(header)
        begin = self.at
        if n_bytes:
            self.close()
            self.at = self._piece_at = begin + n_bytes + _DESCRIPTOR.size
            self._put(lengths)
        return begin

    def close(self) -> None:
        if self._piece:
            self.pieces.append((self._piece_at, b"".join(self._piece)))
            self._piece = []
        self._piece_at = self.at

    def n_bytes(self) -> int:
        """Return the length of it all, with `end`."""
        member, header, lengths = _member(_ID, _ID_DIGITS, self.at)
        at = self.at + len(header) + _ID_DIGITS + _DESCRIPTOR.size + len(lengths)
        return at + directory_bytes(MINIZ, [*self.members, member], at)

    def end(self, serialization_id: str, crcs: Sequence[int]) -> bytes:
        """Return the last member and the directory."""
        content = serialization_id.encode()
        crc = crc32(content)
        member, header, lengths = _member(_ID, len(content), self.at)
        raw = header + content + _DESCRIPTOR.pack(_DESCRIPTOR_MAGIC, crc) + lengths
        members = [*self.members, member]
        return raw + directory(MINIZ, members, [*crcs, crc], self.at + len(raw))

    def _begin(self, name: str, n_bytes: int, crc: int) -> tuple[bytes, bytes]:
        member, header, lengths = _member(name, n_bytes, self.at)
        self.members.append(member)
        self.crcs.append(crc)
        self.ends.append(self.at + len(header) + n_bytes)
        return header, lengths

    def _put(self, raw: bytes) -> None:
        self._piece.append(raw)
        self.at += len(raw)


def _member(name: str, n_bytes: int, offset: int) -> tuple[Member, bytes, bytes]:
    """Return a member, all that stands before its bytes, and the lengths that follow its CRC."""
    # One without bytes has no descriptor.
    raw = _FOLDER + name.encode()
    flags = UTF8 | HAS_DESCRIPTOR if n_bytes else UTF8
    member = Member(raw, n_bytes, offset, flags)
    numbers = wide_numbers(MINIZ, member)
    if n_bytes > MINIZ.largest:
        numbers[1] = 0  # the length of what is deflated, which miniz does not know yet
    wide = wide_field(numbers)
    before = LOCAL_BYTES + len(raw) + len(wide) + 4
    n_padding = -(offset + before) % _ALIGNMENT
    padding = struct.pack("<2sH", b"FB", n_padding) + b"Z" * n_padding
    extra = wide + padding
    header = local_header(MINIZ, member, 0, 0, len(extra)) + raw + extra
    lengths = struct.pack("<2Q" if wide else "<2I", n_bytes, n_bytes)
    return member, header, lengths


# --- the pickle ---------------------------------------------------------------------------------

_BATCH = 1000  # items that a pickle sets at once


class _StateDict:
    """The pickle of an `OrderedDict` of tensors, as in protocol 2."""

    def __init__(self) -> None:
        self._out = bytearray(b"\x80\2")
        self._n_memoized = 0
        self._memo: dict[str, bytes] = {}
        self._forms: dict[tuple[DType, tuple[int, ...]], tuple[bytes, bytes, bytes]] = {}

    def pickled(self, parts: Sequence[Part]) -> bytes:
        self._global("collections", "OrderedDict")
        self._out += b")R"
        self._memoize()
        for start in range(0, len(parts), _BATCH):
            batch = parts[start : start + _BATCH]
            self._out += b"(" if len(batch) > 1 else b""
            for i, part in enumerate(batch, start):
                self._text(part.name)
                self._tensor(str(i), part)
            self._out += b"u" if len(batch) > 1 else b"s"
        self._out += b"."
        return bytes(self._out)

    def _tensor(self, key: str, part: Part) -> None:
        """Put the call that rebuilds a tensor."""
        _, dtype, shape = part
        form = self._forms.get((dtype, shape))
        if form is None:
            form = self._forms[dtype, shape] = _form(part)
        length, sizes, strides = form
        storage = _STORAGE_OF.get(dtype.name)
        self._global("torch._utils", f"_rebuild_tensor_v{2 if storage else 3}")
        self._out += b"(("
        self._text("storage", again=True)
        if storage:
            self._global("torch", storage)
        else:
            self._global("torch.storage", "UntypedStorage")
        self._text(key)
        self._text("cpu", again=True)
        self._out += length + b"t"
        self._memoize()
        self._out += b"QK\0"
        for numbers in (sizes, strides):
            self._out += numbers
            if shape:
                self._memoize()
        self._out += b"\x89"  # no gradient, and no hooks
        self._global("collections", "OrderedDict")
        self._out += b")R"
        self._memoize()
        if not storage:
            self._global("torch", dtype.torch_name)
        self._out += b"t"
        self._memoize()
        self._out += b"R"
        self._memoize()

    def _memoize(self) -> None:
        n = self._n_memoized
        self._out += b"q%c" % n if n < 256 else b"r" + n.to_bytes(4, "little")
        self._n_memoized = n + 1

    def _remembered(self, what: str) -> bool:
        """Put what was put before; otherwise note where the next thing is found."""
        known = self._memo.get(what)
        if known is not None:
            self._out += known
            return True
        n = self._n_memoized
        self._memo[what] = b"h%c" % n if n < 256 else b"j" + n.to_bytes(4, "little")
        return False

    def _global(self, module: str, name: str) -> None:
        path = f"c{module}\n{name}\n"
        if not self._remembered(path):
            self._out += path.encode()
            self._memoize()

    def _text(self, text: str, *, again: bool = False) -> None:
        if again and self._remembered(text):
            return
        raw = text.encode("utf-8", "surrogatepass")
        self._out += b"X" + len(raw).to_bytes(4, "little") + raw
        self._memoize()


def _form(part: Part) -> tuple[bytes, bytes, bytes]:
    """Return what is said of all tensors of a dtype and shape: length, sizes and strides."""
    # The length of the storage is in elements, or in bytes if it has no dtype.
    _, dtype, shape = part
    if dtype.block_elements > 1:  # torch counts bytes
        shape = (*shape[:-1], shape[-1] // dtype.block_elements)
    width = dtype.block_bytes if dtype.name in _STORAGE_OF else 1
    return _integer(part.n_bytes // width), _tuple(shape), _tuple(_strides(shape))


def _integer(n: int) -> bytes:
    if n < 1 << 8:
        return b"K%c" % n
    if n < 1 << 16:
        return b"M" + n.to_bytes(2, "little")
    if n < 1 << 31:
        return b"J" + n.to_bytes(4, "little")
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little")
    return b"\x8a%c" % len(raw) + raw


def _tuple(numbers: Sequence[int]) -> bytes:
    items = b"".join(map(_integer, numbers))
    if len(numbers) > 3:
        return b"(" + items + b"t"
    return items + (b")", b"\x85", b"\x86", b"\x87")[len(numbers)]


def _strides(shape: tuple[int, ...]) -> list[int]:
    """Return the strides of a contiguous tensor; torch has the same without elements."""
    strides = []
    stride = 1
    for dim in reversed(shape):
        strides.append(stride)
        stride *= max(dim, 1)
    return strides[::-1]
