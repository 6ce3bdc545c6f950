"""Torch's files as torch.save writes them, to the byte, and as torch.load reads them."""

from __future__ import annotations

import io
import re
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

import anamnesis as an
from anamnesis.base.dtypes import ALL_DTYPES, DTYPES
from anamnesis.base.stored import Part
from anamnesis.formats.torch.write import TorchWriter
from helpers.written import Stored, every_part, placed, stored, write_sparse, written

F32, BF16, F4, U16 = (DTYPES[name] for name in ("F32", "BF16", "F4", "U16"))
ID = "archive/.data/serialization_id"


def tensor(made: Stored) -> torch.Tensor:
    part, data = made
    shape = part.shape if part.dtype is not F4 else (*part.shape[:-1], part.shape[-1] // 2)
    dtype = getattr(torch, part.dtype.torch_name)
    if not data:
        return (
            torch.empty(shape, dtype=dtype) if data is not None else torch.zeros(shape, dtype=dtype)
        )
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)


def by_torch(model: list[Stored]) -> bytes:
    out = io.BytesIO()
    torch.save(OrderedDict((made.part.name, tensor(made)) for made in model), out)
    return out.getvalue()


def without_id(raw: bytes) -> bytes:
    """Return an archive whose id begins with zeros, without its CRC."""
    (member,) = (m for m in zipfile.ZipFile(io.BytesIO(raw)).infolist() if m.filename == ID)
    crc = member.CRC.to_bytes(4, "little")
    found = re.search(rb"[0-9]{40}(?=PK\x07\x08)", raw)
    assert found is not None
    assert raw.count(crc) == 2
    digits = raw[: found.start()] + b"0" * 20 + raw[found.start() + 20 :]
    return digits.replace(crc, bytes(4))


def assert_loaded(loaded: object, model: list[Stored]) -> None:
    assert type(loaded) is OrderedDict
    assert list(loaded) == [made.part.name for made in model]
    for made in model:
        found, wanted = loaded[made.part.name], tensor(made)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.stride() == wanted.stride()
        assert found.requires_grad is False
        assert bytes(found.untyped_storage().tolist()) == (made.data or b"")


MODEL = [made for made in every_part(TorchWriter()) if made.part.shape != (257, 129)]


def test_bytes_of_torch() -> None:
    """All dtypes and shapes; their number takes the memo over 256."""
    held = {made.part.dtype.name for made in MODEL}
    assert held == {*ALL_DTYPES} - {"F6_E2M3", "F6_E3M2"}
    ours, theirs = written(TorchWriter(), MODEL), by_torch(MODEL)
    with zipfile.ZipFile(io.BytesIO(ours)) as a, zipfile.ZipFile(io.BytesIO(theirs)) as b:
        assert a.read("archive/data.pkl") == b.read("archive/data.pkl")
        assert a.namelist() == b.namelist()
        assert a.read(ID)[20:] == b.read(ID)[20:]
    assert without_id(ours) == without_id(theirs)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 999, 1000, 1001, 2001])
def test_bytes_of_torch_by_number(n: int) -> None:
    """A pickle sets a thousand items at once, and one by itself."""
    model = [stored(f"layers.{i}", (F32, BF16, U16)[i % 3], (i % 4, 2)) for i in range(n)]
    assert without_id(written(TorchWriter(), model)) == without_id(by_torch(model))


NAMES = [
    "é",
    "\U0001f600",
    "a b\n",
    "\0",
    "\ud800",
    "x" * 300,
    "é" * 200,
    "a.b.c",
    "/..",
    "data.pkl",
]


def test_bytes_of_torch_by_name() -> None:
    model = [stored(name, F32, (3,)) for name in NAMES]
    assert without_id(written(TorchWriter(), model)) == without_id(by_torch(model))


def test_sizes_of_every_width_of_an_integer() -> None:
    """Of the pickle alone: the tensors are not there."""
    shapes = [(255,), (256,), (65_535,), (65_536,), (2**31 - 1,), (2**31,), (2**32,), (2**39, 0)]
    shapes += [(2**40, 2**15), (0, 2**62)]
    model = [Stored(Part(str(shape), BF16, shape), None) for shape in shapes]
    pieces, _ = placed(TorchWriter(), model)
    state = OrderedDict(
        (str(shape), torch.empty(shape, dtype=torch.bfloat16, device="meta")) for shape in shapes
    )
    assert _pickled_as_if_it_were_on_the_cpu(state) in pieces[0][1]


def _pickled_as_if_it_were_on_the_cpu(state: OrderedDict[str, torch.Tensor]) -> bytes:
    import pickle

    keys: dict[int, str] = {}

    class Tensor:
        def __init__(self, meta: torch.Tensor) -> None:
            self.meta = meta

        def __reduce__(self) -> tuple[object, ...]:
            meta = self.meta
            args: tuple[object, ...] = (
                Storage(meta),
                0,
                tuple(meta.shape),
                meta.stride(),
                False,
                OrderedDict(),
            )
            return torch._utils._rebuild_tensor_v2, args

    class Storage:
        def __init__(self, meta: torch.Tensor) -> None:
            self.meta = meta

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            if not isinstance(obj, Storage):
                return None
            key = keys.setdefault(id(obj), str(len(keys)))
            return ("storage", torch.BFloat16Storage, key, "cpu", obj.meta.numel())

    out = io.BytesIO()
    Pickler(out, 2).dump(OrderedDict((name, Tensor(meta)) for name, meta in state.items()))
    return out.getvalue()


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_reads_it(mmap: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    path.write_bytes(written(TorchWriter(), MODEL))
    assert_loaded(torch.load(path, weights_only=True, mmap=mmap), MODEL)


@pytest.mark.parametrize("name", [*NAMES, "cpu", "storage", "0", "a"])
def test_torch_reads_names(name: str, tmp_path: Path) -> None:
    model = [stored(name, F32, (2,)), stored("other", BF16, ())]
    path = tmp_path / "m.pth"
    path.write_bytes(written(TorchWriter(), model))
    assert_loaded(torch.load(path, weights_only=True, mmap=True), model)
    with an.parse(path) as found:
        assert list(found.stored) == [name, "other"]


def test_every_storage_is_aligned() -> None:
    layout = TorchWriter().lay_out([made.part for made in MODEL], {})
    assert {at % 64 for at in layout.offsets} == {0}


def test_every_crc_is_right() -> None:
    with zipfile.ZipFile(io.BytesIO(written(TorchWriter(), MODEL))) as archive:
        assert archive.testzip() is None


def test_offsets_over_4_gib(tmp_path: Path) -> None:
    last = [stored("last", F32, (3, 5)), stored("empty", F32, (0,)), stored("i", U16, (7,))]
    model = [Stored(Part("long", F32, (5 << 28,)), None), *last]
    path = tmp_path / "m.pth"
    write_sparse(path, TorchWriter(), model)
    loaded = torch.load(path, weights_only=True, mmap=True)
    assert loaded.pop("long").shape == (5 << 28,)
    assert_loaded(loaded, last)


class Sparse:
    """A file in memory that keeps only what is not zero."""

    def __init__(self) -> None:
        self.size = 0
        self.pieces: list[tuple[int, bytes]] = []

    def write(self, data: memoryview) -> int:
        n = len(data)
        if n > 1 << 24:  # the storage of zeros
            assert not any(bytes(data[:: 1 << 20]))
        else:
            self.pieces.append((self.size, bytes(data)))
        self.size += n
        return n

    def flush(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("n", [2**32 - 1, 2**32])
def test_bytes_of_torch_over_4_gib(n: int) -> None:
    """Lengths, offsets and padding of ZIP64, as miniz writes them."""
    zeros = Stored(Part("long", DTYPES["U8"], (n,)), None)
    model = [stored("first", F32, (3,)), zeros, stored("b", F32, (5,)), stored("c", F32, (0,))]
    state = OrderedDict((m.part.name, tensor(m)) for m in model)
    file = Sparse()
    torch.save(state, file)
    pieces, n_bytes = placed(TorchWriter(), model)
    assert n_bytes == file.size
    ours, theirs = bytearray(1 << 13), bytearray(1 << 13)
    for out, found in ((ours, pieces), (theirs, file.pieces)):
        for at, raw in found:
            at = at if at < 1 << 12 else at - file.size + len(out)
            out[at : at + len(raw)] = raw
    assert without_id(bytes(ours)) == without_id(bytes(theirs))


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (Part("a", DTYPES["F6_E2M3"], (4,)), "torch cannot store F6_E2M3"),
        (Part("a", F4, (2, 3)), "torch packs 2 of F4 in a byte; 3 do not fit"),
        (Part("a", F4, ()), "1 do not fit"),
        (Part("a", F32, (1,) * 65), "at most 64 dimensions, not 65"),
        (Part("", F32, ()), "its name is empty"),
    ],
)
def test_refused_parts(part: Part, why: str) -> None:
    told = TorchWriter().refuses(part)
    assert told is not None
    assert why in told
    with pytest.raises(an.UnsupportedError, match="tensor "):
        TorchWriter().lay_out([part], {})
