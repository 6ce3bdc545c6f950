"""Views made unit by unit: any read of them is a slice of what numpy makes of whole arrays."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.source import Source
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.families.integers import awq_order
from anamnesis.schemes.families.integers import moving as words
from anamnesis.schemes.views import bits, tiles, views
from anamnesis.sources import altered, strided
from anamnesis.sources.altered import Input, MappedSource
from anamnesis.sources.memory import BufferSource
from anamnesis.sources.strided import transposed

Array = NDArray[Any]


class Reading(Source):
    """Bytes as of a file, which are never held."""

    def __init__(self, data: bytes) -> None:
        self._inner = BufferSource(data)
        self.name, self.size = "a file", self._inner.size

    def _read_some(self, offset: int, view: memoryview) -> int:
        return self._inner._read_some(offset, view)


@pytest.fixture(params=["few", "many"], autouse=True)
def _strips(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with the sizes of real work, and with ones so small that all is cut."""
    if request.param == "many":
        monkeypatch.setattr(altered, "_MADE_AT_ONCE", 300)
        monkeypatch.setattr(strided, "_SHARED_STRIP_BYTES", 1000)
        monkeypatch.setattr(strided, "_shared", None)


def random_array(rng: random.Random, *shape: int, dtype: str = "u1") -> Array:
    n = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.randbytes(n), dtype).reshape(shape)


def stored(array: Array, dtype: str = "U8", *, held: bool = False) -> StoredTensor:
    """The array as a tensor in the middle of a file."""
    raw = b"\xaa" * 7 + array.tobytes() + b"\xbb" * 5
    source = BufferSource(raw, "a file") if held else Reading(raw)
    return StoredTensor("a.weight", DTYPES[dtype], array.shape, array.nbytes, 7, source)


def check(view: StoredTensor, want: Array, rng: random.Random) -> None:
    """All of it, and pieces from anywhere, by several threads."""
    raw = np.ascontiguousarray(want).tobytes()
    assert view.n_bytes == len(raw)
    assert view.read() == raw

    def piece(_: int) -> bool:
        begin, end = sorted((rng.randint(0, len(raw)), rng.randint(0, len(raw))))
        return view.source.read(view.offset + begin, end - begin) == raw[begin:end]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(piece, range(40)))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_units_of_several_inputs(seed: int, held: bool) -> None:
    rng = random.Random(seed)
    n = rng.choice([1, 2, 7, 100, 1000])
    arrays = [random_array(rng, n, rng.choice([1, 2, 4, 17])) for _ in range(rng.randint(1, 3))]
    given = [stored(array, held=held) for array in arrays]
    width = sum(array.shape[1] for array in arrays)
    part = Part("joined", DTYPES["U8"], (n, width))
    view = views.made_of(part, given, n, lambda _, *units: np.concatenate(units, axis=1))
    check(view, np.concatenate(arrays, axis=1), rng)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_by_its_place(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 5000)
    like = Reading(b"")
    part = Part("runs", DTYPES["I32"], (n,))
    view = views.made_of(
        part, [], n, lambda units: np.arange(units.start, units.stop).astype("<i4"), like
    )
    assert view.source.base is like
    check(view, np.arange(n, dtype="<i4"), rng)
    lone = views.constant(Part("c", DTYPES["U8"], (5,)), b"12345", stored(np.zeros(3, "u1")))
    check(lone, np.frombuffer(b"12345", "u1"), rng)
    part = Part("r", DTYPES["U8"], (3 * n,))
    check(views.repeated(part, b"abc", lone), np.tile(np.frombuffer(b"abc", "u1"), n), rng)


def test_what_ends_before_it_should() -> None:
    view = MappedSource(Reading(b""), [Input(Reading(b"123"), 0, 2, 2)], 2, 2, lambda _, a: a)
    assert view.read(0, 2) == b"12"
    with pytest.raises(an.ParseError, match="ends after"):
        view.read(0, 4)
    with pytest.raises(an.ParseError, match="ends after"):
        view.read(3, 2)


def test_units_that_are_too_long() -> None:
    huge = StoredTensor("a", DTYPES["U8"], (1, 5 << 20), 5 << 20, 0, Reading(b""))
    with pytest.raises(an.UnsupportedError, match="5,242,880 bytes would be moved together"):
        views.padded(huge, 2, 5 << 20)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(20))
def test_padding_and_tiles(seed: int) -> None:
    rng = random.Random(seed)
    rows, cols = rng.randint(1, 300), rng.randint(1, 20)
    array = random_array(rng, rows, cols)
    tall, wide = rows + rng.randint(0, 40), cols + rng.randint(0, 9)
    padded = np.zeros((tall, wide), "u1")
    padded[:rows, :cols] = array
    check(views.padded(stored(array), tall, wide), padded, rng)
    assert (
        tiles.cropped(stored(padded), rows, cols, strided.shared_strips()).read() == array.tobytes()
    )
    tiled = tiles.tiled(stored(array))
    down, across = -(-rows // 128), -(-cols // 4)
    want = np.zeros((128 * down, 4 * across), "u1")
    want[:rows, :cols] = array
    want = want.reshape(down, 4, 32, across, 4).transpose(0, 3, 2, 1, 4)
    assert tiled.shape == (128 * down, 4 * across)
    check(tiled, want, rng)
    check(tiles.untiled(tiled, rows, cols, strided.shared_strips()), array, rng)


@pytest.mark.parametrize("seed", range(10))
def test_nibbles(seed: int) -> None:
    rng = random.Random(seed)
    n, half = rng.randint(1, 50), rng.choice([2, 4, 8, 16])
    codes = random_array(rng, n, 2 * half) & 15
    pairs, halves = codes[:, ::2] | codes[:, 1::2] << 4, codes[:, :half] | codes[:, half:] << 4
    assert (bits.halved(pairs) == halves).all()
    assert (bits.paired(halves) == pairs).all()
    assert (bits.swapped(pairs) == (codes[:, 1::2] | codes[:, ::2] << 4)).all()


def packed(codes: Array, order: tuple[int, ...] = tuple(range(8))) -> Array:
    """Words of the last axis: code `order[i]` of each eight is at place i."""
    eight = codes.reshape(*codes.shape[:-1], -1, 8)[..., list(order)].astype("<u4")
    return np.bitwise_or.reduce(eight << (4 * np.arange(8, dtype="<u4")), axis=-1)


AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(20))
def test_words(seed: int) -> None:
    rng = random.Random(seed)
    n_out, n_in = 8 * rng.randint(1, 30), 8 * rng.randint(1, 30)
    codes = random_array(rng, n_out, n_in) & 15
    rows = packed(codes)
    columns = np.ascontiguousarray(rows.T)
    across = packed(np.ascontiguousarray(codes.T), AWQ)
    check(transposed(stored(rows, "I32")), columns, rng)
    check(transposed(stored(columns, "I32")), rows, rng)
    check(words.across_of_columns(stored(columns, "I32")), across, rng)
    check(words.columns_of_across(stored(across, "I32")), columns, rng)
    check(words.rows_of_across(stored(across, "I32")), rows, rng)
    turned = transposed(stored(rows, "I32"))
    check(words.across_of_columns(turned), across, rng)


@pytest.mark.parametrize("seed", range(10))
def test_zero_points(seed: int) -> None:
    rng = random.Random(seed)
    zeros = random_array(rng, rng.randint(1, 40), 8 * rng.randint(1, 9)) & 15
    check(
        altered.recoded(stored(packed(zeros), "I32"), 0, awq_order.to_awq_order),
        packed(zeros, AWQ),
        rng,
    )
    check(
        altered.recoded(stored(packed(zeros, AWQ), "I32"), 0, awq_order.from_awq_order),
        packed(zeros),
        rng,
    )
    less = packed(zeros) - np.uint32(0x11111111)  # a 0 borrows from the next one
    check(words.plus_one(stored(less, "I32")), packed(zeros), rng)
    large = np.clip(zeros, 1, 15)
    check(words.less_one(stored(packed(large), "I32")), packed(large - 1), rng)
    large.reshape(-1)[rng.randrange(zeros.size)] = 0
    with pytest.raises(an.UnsupportedError, match=r"^a file: a.weight: a zero point is 0, which"):
        words.less_one(stored(packed(large), "I32")).read()


def test_forbidden_bytes() -> None:
    rng = random.Random(0)
    array = random_array(rng, 40, 30) % 250
    assert views.forbidding(stored(array), b"", "").offset == 7
    check(views.forbidding(stored(array), b"\xff\xfe", "which is odd"), array, rng)
    array[20, 3] = 254
    with pytest.raises(an.UnsupportedError) as refused:
        views.forbidding(stored(array), b"\xff\xfe", "which is odd").read()
    told = "a file: a.weight: byte 603 is 254, which is odd; exclude this weight"
    assert str(refused.value) == told
