"""Encodings and a container of the tests' own, with all that encodings and containers may have."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.formats.base import FileLayout, Writer
from anamnesis.formats.written import Written
from anamnesis.schemes.core.bands import Band, Bands, cut
from anamnesis.schemes.core.codes import Codes, Extent, Loss, Out, Survey, Task
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Layers, Layout
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run

I8, F32, U8 = DTYPES["I8"], DTYPES["F32"], DTYPES["U8"]


class Largest(Survey):
    """The largest absolute value of a weight."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def see(self, values: memoryview, band: Band, level: int) -> None:
        self.seen.append(float(np.abs(np.frombuffer(values, np.float32)).max()))

    def found(self) -> bytes:
        return struct.pack("<f", max(self.seen))


def _note(found: bytes) -> bytes:
    value = struct.unpack("<f", found)[0] if found else 0.0
    return json.dumps({"largest": value}).encode()


@dataclass(frozen=True)
class RowsCodes(Codes):
    """Codes of 8 bits, and a scale for each row."""

    rows: int = 2  # that belong together
    surveyed: bool = True

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        return Largest() if self.surveyed else None

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        return Out("codes", I8, shape), Out("scales", F32, shape[:1])

    def grain(self, shape: tuple[int, ...]) -> int:
        return self.rows * shape[1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        first, last = (n // shape[1] for n in band)
        assert first % self.rows == 0
        codes = Extent(band.start, band.stop - band.start)
        return codes, Extent(4 * first, 4 * (last - first))

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        most = struct.unpack("<f", task.found)[0] if self.surveyed else 1.0
        n_rows = len(outs[1]) // 4
        x = np.frombuffer(values, np.float32).reshape(n_rows, -1)
        groups = np.abs(x).reshape(-1, self.rows * x.shape[1]).max(1) if len(x) else x
        scale = (np.repeat(groups, self.rows)[:n_rows] / np.float32(127 * most)).astype(np.float32)
        scale[scale == 0] = 1
        codes = np.rint(x / (scale * np.float32(most))[:, None]).astype(np.int8)
        outs[0][:] = codes.tobytes()
        outs[1][:] = scale.tobytes()
        if not task.measures:
            return Loss()
        back = codes.astype(np.float32) * (scale * np.float32(most))[:, None]
        error = np.abs((x - back).astype(np.float64))
        return Loss(
            0,
            x.size,
            float(error.sum()),
            float(error.max()),
            float((error**2).sum()),
            float((x.astype(np.float64) ** 2).sum()),
        )


class RowsLayout(Layout):
    """The codes, their scales, and a note whose length depends on what was found."""

    fields = (Field("codes", "{weight}"), Field("scales", "{weight}.toy_scale"))

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        return None if len(shape) == 2 else "not a matrix"

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        return {name: "the output embedding" for name in shapes if name.startswith("lm_head")}

    def beside(
        self, name: str, shape: tuple[int, ...], found: bytes = b""
    ) -> list[tuple[Part, bytes]]:
        note = _note(found)
        return [(Part(f"{name}.toy_note", U8, (len(note),)), note)]

    def declare(self, layers: Layers) -> dict[str, Any]:
        return {"quant_method": "toy", "modules_to_not_convert": list(layers.plain)}

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return RowsWeight(name, shape, parts)


def in_rows(rows: int = 2, surveyed: bool = True) -> Encoding:
    """Codes of 8 bits, a scale for each row, one of all, and a note whose length depends on it."""
    return Encoding(f"toy-rows-{rows}-{surveyed}", RowsLayout(), RowsCodes(rows, surveyed))


class RowsWeight(Weight):
    """What `Rows` writes."""

    @property
    def id(self) -> str:
        return "toy-rows"

    @property
    def scheme(self) -> str:
        return "toy rows"

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return cut(self.shape[0], self.shape[1], n_bytes // dtype.n_bytes(1))

    def values(self) -> NDArray[np.float32]:
        codes, scale, note = (part.read() for part in self.parts)
        most = np.float32(json.loads(note)["largest"] or 1.0)
        rows = np.frombuffer(codes, np.int8).reshape(self.shape).astype(np.float32)
        result: NDArray[np.float32] = rows * (np.frombuffer(scale, np.float32) * most)[:, None]
        return result

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        out[:] = self.values().reshape(-1)[slice(*band)].tobytes()
        return 0


class HalvesCodes(Codes):
    """Float32 as they are; of all rows the left half, then the right."""

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        return None if len(shape) == 2 and shape[1] % 2 == 0 else "not even"

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        return (Out("codes", F32, (2, shape[0], shape[1] // 2)),)

    def grain(self, shape: tuple[int, ...]) -> int:
        return shape[1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        half = 2 * shape[1]  # bytes
        first, last = (n // shape[1] for n in band)
        return (Extent(first * half, (last - first) * half, shape[0] * half, 2),)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        raise AssertionError("take is enough")

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        cols = weight.shape[1]
        values = np.empty(task.n // cols * cols, np.float32)
        decode_run(weight, task.band, F32, scratch, values.view(np.uint8).data)
        halves = values.reshape(-1, 2, cols // 2).transpose(1, 0, 2)
        outs[0][:] = np.ascontiguousarray(halves).tobytes()
        return Loss()


@dataclass(frozen=True)
class WholeCodes(Codes):
    """The first bytes of a weight's values, of which all are wanted at once."""

    rows: int = 128

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        return (Out("codes", I8, shape),)

    def grain(self, shape: tuple[int, ...]) -> int:
        return self.rows * shape[1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        return (Extent(band.start, band.stop - band.start),)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        outs[0][:] = values[: len(outs[0])]
        return Loss()


class Alone(Layout):
    """One part, under the name of the weight."""

    fields = (Field("codes", "{weight}"),)

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        raise NotImplementedError


def in_halves() -> Encoding:
    """Float32 as they are; of all rows the left half, then the right."""
    return Encoding("toy-halves", Alone(), HalvesCodes())


def in_whole() -> Encoding:
    """The first bytes of a weight's values, of which all are wanted at once."""
    return Encoding("toy-whole", Alone(), WholeCodes())


class SummedWriter(Writer):
    """A header, parts at multiples of 64 bytes, and a table of their CRC-32."""

    id = "toy"
    extension = ".toy"
    wants_sums = True

    def holds(self, dtype: DType) -> bool:
        return dtype.name != "BOOL"

    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> FileLayout:
        entries: list[Any] = []
        self.at = 1 << 14
        for name, dtype, shape in parts:
            entries.append([name, dtype.name, list(shape), self.at])
            self.at += -(-Part(name, dtype, shape).n_bytes // 64) * 64
        header = json.dumps(entries).encode().ljust(1 << 14)
        assert len(header) == 1 << 14
        return FileLayout([(0, header)], [entry[3] for entry in entries], self.at + 4 * len(parts))

    def finish(self, sums: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        return [(self.at + 4 * i, struct.pack("<I", crc)) for i, crc in enumerate(sums)]


# Its module's name is relative to that of the formats, as those of all are.
sys.modules["anamnesis.formats.toys"] = sys.modules[__name__]
SUMMED = Written("toy", "Toy", (".toy",), "toys", "SummedWriter")


def read_summed(raw: bytes) -> dict[str, bytes]:
    """Return the parts' bytes of such a file, having compared each with its CRC-32."""
    entries = json.loads(raw[: 1 << 14])
    found = {}
    for i, (name, dtype, shape, at) in enumerate(entries):
        data = raw[at : at + Part(name, DTYPES[dtype], tuple(shape)).n_bytes]
        (crc,) = struct.unpack_from("<I", raw, len(raw) - 4 * (len(entries) - i))
        assert zlib.crc32(data) == crc, name
        found[name] = data
    return found
