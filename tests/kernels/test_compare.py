"""Comparing and checking: counts and places as numpy has them, sums to the bit at every level."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES
from helpers.guarded import HAVE_GUARD_PAGES, GuardedPages, at_offset
from helpers.kernel_calls import SUPPORTED

Floats = npt.NDArray[np.float32]
COUNTS = (1, 7, 15, 16, 17, 255, 272, 527, 4095, 4096, 4097, 9001)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e38, 1e30, 1e-30, 1e-38, 1e-45, -1e-45],
    np.float32,
)
SPECIAL = np.append(SPECIAL, np.array([0x7FC00001, 0xFFC00000, 0x7F800001], np.uint32).view("<f4"))


def of_scale(scale: float) -> Any:
    def make(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        a = (rng.standard_normal(n) * scale).astype(np.float32)
        return a, (a * rng.choice([1.0, 1.0, 1.004], n)).astype(np.float32)

    return make


def special(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    return rng.choice(SPECIAL, n), rng.choice(SPECIAL, n)


def rare(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A special pair here and there, so that some blocks have none."""
    a, b = of_scale(0.02)(n, rng)
    for values in (a, b):
        values[rng.integers(n, size=n // 3000 + 1)] = rng.choice(SPECIAL)
    return a, b


PAIRS = {
    "weights": of_scale(0.02),
    "huge": of_scale(1e30),
    "largest": of_scale(4e37),
    "tiny": of_scale(1e-30),
    "nans": lambda n, rng: tuple(
        rng.integers(0x7F7FFFF0, 0x7FFFFFFF, (2, n), np.uint32).view("f4")
    ),
    "subnormal": of_scale(1e-42),
    "small": of_scale(1e-16),  # whose squares are float32, but not those of their differences
    "bits": lambda n, rng: tuple(rng.integers(0, 1 << 32, (2, n), np.uint32).view(np.float32)),
    "special": special,
    "rare": rare,
    "equal": lambda n, rng: (rng.standard_normal(n, np.float32),) * 2,
    "zeros": lambda n, rng: (np.zeros(n, np.float32), -np.zeros(n, np.float32)),
    "apart": lambda n, rng: tuple(rng.permuted(np.eye(2, n, dtype=np.float32) * 1e-25, axis=1)),
}


def compared(a: Floats, b: Floats, level: str = "scalar") -> _core.Compared:
    return _core.compare(a.view(np.uint8), b.view(np.uint8), _core.LEVELS[level])


def terms(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(all="ignore"):
        error = a - b
        return np.stack([np.abs(error), error * error, a * a, b * b, a * b])


def in_lanes(parts: npt.NDArray[Any], lanes: int) -> npt.NDArray[Any]:
    """Add up terms in lanes, one after the other."""
    sums = np.zeros((5, lanes), parts.dtype)
    with np.errstate(all="ignore"):
        for at in range(0, parts.shape[1], lanes):
            part = parts[:, at : at + lanes]
            sums[:, : part.shape[1]] += part
    return sums


def tree(lanes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(all="ignore"):
        while lanes.shape[1] > 1:
            lanes = lanes[:, ::2] + lanes[:, 1::2]
    return lanes[:, 0]


def block_sums(a: Floats, b: Floats) -> npt.NDArray[np.float64]:
    lanes = np.zeros((5, 8))
    with np.errstate(all="ignore"):
        for at in range(0, a.size, 512):
            of_16 = in_lanes(terms(a[at : at + 512], b[at : at + 512]), 16)
            lanes += of_16[:, :8] + of_16[:, 8:]
    sums = tree(lanes)
    is_held = np.isfinite(sums) & (np.abs(sums) >= 2.0**-110)
    is_held[:2] |= (a.view(np.uint32) == b.view(np.uint32)).all()
    if is_held.all():
        return sums
    finite = np.isfinite(a) & np.isfinite(b)
    wide = [np.where(finite, values, 0).astype(np.float64) for values in (a, b)]
    return tree(in_lanes(terms(*wide), 8))


def modelled(a: Floats, b: Floats) -> list[float]:
    """The sums in the order of csrc/kernels."""
    whole = a.size // 16 * 16
    sums = np.zeros(5)
    for at in range(0, whole, 4096):
        block = slice(at, min(at + 4096, whole))
        sums += block_sums(a[block], b[block])
    if whole < a.size:
        rest = [np.pad(values[whole:], (0, 16 - a.size + whole)) for values in (a, b)]
        sums += block_sums(*rest)
    return sums.tolist()


@pytest.mark.parametrize("kind", PAIRS)
def test_compare(kind: str, rng: np.random.Generator) -> None:
    for n in COUNTS:
        a, b = PAIRS[kind](n, rng)
        found = compared(a, b)
        for level in SUPPORTED[1:]:
            assert compared(a, b, level) == found, (n, level)
        different = np.flatnonzero(a.view(np.uint32) != b.view(np.uint32))
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(all="ignore"):
            errors = np.where(finite, np.abs(a - b), 0)
        largest = float(errors.max())
        assert found[:5] == (
            different.size,
            int(different[0]) if different.size else None,
            n - int(finite.sum()),
            largest,
            int(errors.argmax()) if largest else None,
        )
        assert list(found[5:]) == modelled(a, b)


@pytest.mark.parametrize("kind", PAIRS)
def test_sums_are_those_of_doubles(kind: str, rng: np.random.Generator) -> None:
    """To a millionth: none is infinite, and none is 0 whose terms are not."""
    a, b = PAIRS[kind](5003, rng)
    finite = np.isfinite(a) & np.isfinite(b)
    parts = terms(a[finite].astype(np.float64), b[finite].astype(np.float64))
    for found, part in zip(compared(a, b)[5:], parts, strict=True):
        assert abs(found - math.fsum(part)) <= 1e-6 * math.fsum(np.abs(part))
    assert compared(a, b).error > 0 or not parts[0].any()


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("source", ["F16", "BF16"])
def test_halves_are_compared_as_decoded(source: str, kind: str, rng: np.random.Generator) -> None:
    """One NaN for all included."""
    for n in (*COUNTS, 20000):
        with np.errstate(all="ignore"):
            halves = [v.astype(DTYPES[source].numpy()).view(np.uint8) for v in PAIRS[kind](n, rng)]
        floats = [np.empty(n, np.float32) for _ in halves]
        for half, out in zip(halves, floats, strict=True):
            to = _core.OUTPUTS["F32"]
            _core.convert(_core.FLOATS[source], to, half, out.view(np.uint8))
        wanted = compared(floats[0], floats[1])
        for level in SUPPORTED:
            mixed = halves[0], floats[1].view(np.uint8)
            sources = _core.SOURCES[source], _core.SOURCES["F32"]
            assert _core.compare(*mixed, _core.LEVELS[level], *sources) == wanted
            number, chosen = _core.LEVELS[level], _core.SOURCES[source]
            assert _core.compare(halves[0], halves[1], number, chosen) == wanted


def test_a_constant_keeps_its_sum() -> None:
    """All roundings of whose sum go one way."""
    for value in np.array([0.1, 0.7, 1.9999999, 3e-9], np.float32):
        a = np.full(8192, value, np.float32)
        wanted = float(value) ** 2 * a.size
        assert abs(compared(a, a).product - wanted) <= 1e-6 * wanted


@pytest.mark.parametrize("level", SUPPORTED)
def test_compare_at_any_address(level: str, rng: np.random.Generator) -> None:
    a, b = of_scale(1.0)(1003, rng)
    wanted = compared(a, b)
    for offsets in product((0, 1, 4, 31), repeat=2):
        placed = [at_offset(v.view(np.uint8), o) for v, o in zip((a, b), offsets, strict=True)]
        assert _core.compare(placed[0], placed[1], _core.LEVELS[level]) == wanted


def test_compare_refuses() -> None:
    for a, b in ((bytes(8), bytes(4)), (bytes(7), bytes(7)), (b"", bytes(4))):
        with pytest.raises(ValueError, match="src is too short"):
            _core.compare(a, b)
    with pytest.raises(ValueError, match="src is too short"):
        _core.compare(bytes(3), bytes(3), None, _core.SOURCES["BF16"])
    with pytest.raises(ValueError, match="dtype"):
        _core.compare(b"", b"", None, len(_core.SOURCES))
    with pytest.raises(ValueError, match="level"):
        _core.compare(b"", b"", len(_core.LEVELS))
    assert _core.compare(b"", b"") == (0, None, 0, 0, None, 0, 0, 0, 0, 0)


def numpy_type(dtype: str) -> Any:
    names = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz}
    names |= {"F8_E5M2": ml_dtypes.float8_e5m2, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz}
    return names.get(dtype) or DTYPES[dtype].numpy()


def first(mask: npt.NDArray[np.bool_]) -> int | None:
    return int(mask.argmax()) if mask.any() else None


def seen_by_numpy(dtype: str, words: npt.NDArray[Any], cols: int) -> tuple[object, ...]:
    with np.errstate(invalid="ignore"):
        values = words.view(numpy_type(dtype)).astype(np.float32)
    nan, infinite = np.isnan(values), np.isinf(values)
    magnitudes = words & ((1 << (8 * words.itemsize - 1)) - 1)
    zero_rows = (values == 0).reshape(-1, cols).all(axis=1)
    return (
        *(int(nan.sum()), first(nan), int(infinite.sum()), first(infinite)),
        int((values == 0).sum()),
        int(magnitudes[~(nan | infinite)].max(initial=0)),
        bool((words == words[:1]).all()),
        *(int(zero_rows.sum()), first(zero_rows)),
    )


def words_of(dtype: str, n: int, rng: np.random.Generator) -> list[npt.NDArray[Any]]:
    """Any bits, usual ones, those with a special here and there, few zeros, many, and constants."""
    unsigned = np.dtype(f"<u{_core.FLOAT_WORDS[dtype][0]}")
    bits_of_word = 8 * unsigned.itemsize
    bits = np.frombuffer(rng.bytes(n * unsigned.itemsize), unsigned)
    usual = (rng.standard_normal(n) * 0.2).astype(numpy_type(dtype)).view(unsigned)
    rare, pruned = usual.copy(), usual.copy()
    rare[rng.integers(n, size=2)] = [_core.FLOAT_WORDS[dtype][1], 0xFF << bits_of_word - 8]
    pruned[rng.integers(n) :] = 0
    signs = (rng.integers(0, 2, n) << bits_of_word - 1).astype(unsigned)
    return [bits, usual, rare, pruned, signs, np.zeros_like(usual), np.full_like(usual, bits[0])]


@pytest.mark.parametrize("dtype", _core.FLOAT_WORDS)
def test_check(dtype: str, rng: np.random.Generator) -> None:
    for rows, cols in ((1, 1), (1, 33), (700, 1), (5, 3), (3, 64), (2, 4099), (40, 200)):
        for words in words_of(dtype, rows * cols, rng):
            wanted = seen_by_numpy(dtype, words, cols)
            for level in SUPPORTED:
                placed = at_offset(words.view(np.uint8), int(rng.integers(64)))
                found = _core.check_values(dtype, placed, cols, _core.LEVELS[level])
                assert found == wanted, (rows, cols, level)


@pytest.mark.parametrize("dtype", _core.FLOAT_WORDS)
def test_check_finds_one_word_anywhere(dtype: str, rng: np.random.Generator) -> None:
    usual = words_of(dtype, 300, rng)[1]
    bits = 8 * usual.itemsize
    for at, word in product(range(300), (0, 1 << (bits - 1), (1 << bits) - 1, 1)):
        words = usual.copy()
        words[at] = word
        for level in SUPPORTED:
            found = _core.check_values(dtype, words.view(np.uint8), 30, _core.LEVELS[level])
            assert found == seen_by_numpy(dtype, words, 30)


def test_check_refuses() -> None:
    for dtype, size, cols, message in [
        ("F64", 8, 1, "dtype"),
        ("BF16", 8, 0, "block"),
        ("BF16", 9, 1, "src is too short"),
        ("BF16", 8, 3, "src is too short"),
        ("F32", 8, 1 << 63, "overflows"),
        ("F32", 8, -1, "cols"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.check_values(dtype, bytes(size), cols)
    assert _core.check_values("BF16", b"", 7) == (0, None, 0, None, 0, 0, True, 0, None)


@pytest.mark.skipif(not HAVE_GUARD_PAGES, reason="needs mprotect")
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("level", SUPPORTED)
def test_nothing_outside_is_read(level: str, at_end: bool, rng: np.random.Generator) -> None:
    for n in (1, 15, 17, 33, 2050):
        views = [GuardedPages(4 * n).view(at_end) for _ in range(2)]
        for view in views:
            view[:] = rng.standard_normal(n, np.float32).view(np.uint8)
        for source in _core.SOURCES.values():
            wanted = _core.compare(views[0], views[1], 0, source)
            assert _core.compare(views[0], views[1], _core.LEVELS[level], source) == wanted
        for dtype in _core.FLOAT_WORDS:
            found = [_core.check_values(dtype, views[0], 1, v) for v in (0, _core.LEVELS[level])]
            assert found[0] == found[1]
