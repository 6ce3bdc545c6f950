"""ZIP archives made by hand, each field as it is told: for files that lie."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


def extra(kind: int, body: bytes) -> bytes:
    return struct.pack("<2H", kind, len(body)) + body


@dataclass
class Member:
    """One member; `local` and `central` overwrite fields of the one header or the other."""

    name: bytes
    data: bytes = b""
    method: int = 0
    flags: int = 0
    raw: bytes | None = None  # what stands in the file in place of the packed data
    descriptor: bytes = b""  # what stands behind it
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)

    def packed(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return deflated(self.data) if self.method == 8 else self.data

    def fields(self, overwritten: dict[str, Any]) -> dict[str, Any]:
        usual = {
            "name": self.name,
            "method": self.method,
            "flags": self.flags,
            "extra": b"",
            "crc": zlib.crc32(self.data),
            "n_compressed": len(self.packed()),
            "n_bytes": len(self.data),
            "disk": 0,
            "comment": b"",
            "magic": None,
        }
        return {**usual, **overwritten}

    def header(self) -> bytes:
        f = self.fields(self.local)
        fixed = struct.pack(
            "<4s5H3I2H",
            *(f["magic"] or b"PK\3\4", 20, f["flags"], f["method"], 0, 0, f["crc"]),
            *(f["n_compressed"], f["n_bytes"], f.get("n_name", len(f["name"]))),
            f.get("n_extra", len(f["extra"])),
        )
        return fixed + f["name"] + f["extra"]

    def record(self, offset: int) -> bytes:
        f = self.fields(self.central)
        fixed = struct.pack(
            "<4s6H3I5H2I",
            *(f["magic"] or b"PK\1\2", 20, f.get("version", 20), f["flags"]),
            *(f["method"], 0, 0, f["crc"]),
            *(f["n_compressed"], f["n_bytes"], f.get("n_name", len(f["name"]))),
            *(f.get("n_extra", len(f["extra"])), len(f["comment"]), f["disk"], 0, 0),
            f.get("offset", offset),
        )
        return fixed + f["name"] + f["extra"] + f["comment"]


def end_record(count: int, length: int, at: int, comment: bytes = b"", **told: Any) -> bytes:
    f = {"disk": 0, "start_disk": 0, "n_here": count, "n": count, "n_bytes": length, "start": at}
    f = {**f, "n_comment": len(comment), **told}
    return struct.pack("<4s4H2IH", b"PK\5\6", *f.values()) + comment


def zip64_end(at: int, count: int, taken: int, directory: int, **told: Any) -> bytes:
    """Return the ZIP64 end and its locator, which lie at `at`."""
    f: dict[str, Any] = {"length": 44, "disk": 0, "n_here": count, "n": count, "n_bytes": taken}
    f = {**f, "start": directory, "located": at, "disks": 1, "magic": b"PK\6\6", **told}
    end = struct.pack(
        "<4sQ2H2I4Q",
        *(f["magic"], f["length"], 45, 45, f["disk"], 0),
        *(f["n_here"], f["n"], f["n_bytes"], f["start"]),
    )
    return end + struct.pack("<4sIQI", b"PK\6\7", 0, f["located"], f["disks"])


def zip_bytes(
    members: Iterable[Member],
    *,
    comment: bytes = b"",
    prefix: bytes = b"",
    gaps: dict[int, bytes] | None = None,
    zip64: dict[str, Any] | None = None,
    end: dict[str, Any] | None = None,
) -> bytes:
    """Return an archive; `gaps` has bytes to put before some member, by its number.

    A `zip64` that is not None brings a ZIP64 end, of these fields; `end` overwrites those of the
    end record.
    """
    out = bytearray(prefix)
    records = bytearray()
    n = 0
    for n, member in enumerate(members, 1):
        out += (gaps or {}).get(n - 1, b"")
        records += member.record(len(out))
        out += member.header() + member.packed() + member.descriptor
    out += (gaps or {}).get(n, b"")
    start = len(out)
    out += records
    told = end or {}
    if zip64 is not None:
        out += zip64_end(len(out), n, len(records), start, **zip64)
    return bytes(out) + end_record(n, len(records), start, comment, **told)
