"""Every kernel at every level gives the bytes and the count that scalar gives."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from helpers.guarded import HAVE_GUARD_PAGES, GuardedPages, at_offset
from helpers.kernel_calls import (
    ABSMAX,
    ABSMAX_DTYPES,
    BLOCKS,
    CODES,
    ENCODERS,
    FLAT,
    FLOATS,
    INTEGERS,
    OUTPUTS,
    PACKERS,
    PACKINGS,
    POISON,
    QUANTIZERS,
    SCALES,
    SOURCES,
    SUPPORTED,
    TRELLISES,
    Absmax,
    Blocks,
    Bytes,
    Case,
    Convert,
    EncodeBlocks,
    Integers,
    Pack,
    Packed,
    Quantize,
    Scaled,
    Trellis,
    item_bytes,
    run,
)
from helpers.kernel_cases import (
    BLOCK_COUNTS,
    COUNTS,
    ROWS_OF_BLOCKS,
    absmax_cases,
    assert_levels_agree,
    encode_cases,
    encoder_inputs,
    finite_inputs,
    integers_cases,
    pack_cases,
    pack_rules_of,
    packed_cases,
    planes_cases,
    quantize_cases,
    random_inputs,
    rounded_cases,
    rules_of,
    scaled_cases,
    straight_cases,
    usual_inputs,
    usual_integers,
)

pytestmark = pytest.mark.against("scalar")

MISALIGNED = (
    *(Scaled(code, out, 3, 100, 1, 40, col_phase=7) for code in CODES for out in OUTPUTS),
    *(Scaled(code, out, 2, 90, 2, 1) for code in CODES for out in OUTPUTS),
    *(Scaled("F8_E4M3", out, 3, 100, 1, 32, scale) for scale in SCALES for out in OUTPUTS),
    *(Convert(src, out, 83) for src in FLOATS for out in OUTPUTS),
    *(Blocks(name, out, 7) for name in BLOCKS for out in OUTPUTS),
    *(Packed(name, out, 40, 75, 20) for name in PACKINGS for out in OUTPUTS),
    *(Packed(name, out, 40, 75, 1, listed_groups=3) for name in PACKINGS for out in OUTPUTS),
    *(
        Absmax(code, out, 1077, block, 0, dtype)
        for code in ABSMAX
        for out in OUTPUTS
        for block, dtype in ((64, "F32"), (37, "F16"))
    ),
    *(
        Integers(code, out, 5, 77, 32, zeros=zeros, has_biases=zeros != "words")
        for code in INTEGERS
        for out in OUTPUTS
        for zeros in _core.ZEROS
    ),
    *(Trellis(code, out, 3, 128, 37, 5, 60, 40) for code in TRELLISES for out in OUTPUTS),
    *(
        Quantize(code, source, rule, 1 if code in FLAT else 5, 150, 1, 40)
        for code in QUANTIZERS
        for source in SOURCES
        for rule in rules_of(code, 1)
    ),
    *(
        Pack(code, source, rule, 16, 160, 32)
        for code in PACKERS
        for source in SOURCES
        for rule in pack_rules_of(code)
    ),
    *(case for name in ENCODERS for case in encode_cases(name, [(3, 5)])),
)
GUARDED = (
    *(
        Scaled(code, out, 1, n, 1, n)
        for code in CODES
        for out in OUTPUTS
        for n in (1, 31, 33, 4096)
    ),
    *(Scaled("F8_E4M3", out, 3, 67, 1, 32, scale) for scale in SCALES for out in OUTPUTS),
    *(Scaled("F8_E4M3", out, 2, 1030, 1, block) for block in (1, 5, 16) for out in OUTPUTS),
    *(Convert(src, out, n) for src in FLOATS for out in OUTPUTS for n in (1, 15, 17, 1025)),
    *(Blocks(name, out, n) for name in BLOCKS for out in OUTPUTS for n in (1, 2, 35)),
    *(
        Packed(name, out, rows, cols, 128, scale)
        for name in PACKINGS
        for out, scale in zip(OUTPUTS, ("F16", "BF16", "F32"), strict=True)
        for rows, cols in ((8, 3), (8, 128), (40, 131), (64, 256))
    ),
    *(Packed(name, out, 72, 70, 1, listed_groups=9) for name in PACKINGS for out in OUTPUTS),
    *(
        Absmax(code, out, n, 64)
        for code in ABSMAX
        for out in OUTPUTS
        for n in (1, 2, 31, 33, 64, 127, 4096)
    ),
    *(
        Integers(code, out, 3, n, 32, zeros="words")
        for code in INTEGERS
        for out in OUTPUTS
        for n in (1, 31, 65)
    ),
    *(Trellis(code, out, bits, 128) for code in TRELLISES for out in OUTPUTS for bits in (1, 8)),
    *(
        Quantize(code, source, rule, 1 if code in FLAT else 3, n, 1, 64)
        for code in QUANTIZERS
        for source in SOURCES
        for rule in rules_of(code, 1)
        for n in (1, 15, 33, 64)
    ),
    *(
        Pack(code, source, rule, 16 if rule != "edge" else 1, n, 32, measure=n > 32)
        for code in PACKERS
        for source in SOURCES
        for rule in pack_rules_of(code)
        for n in (32, 64, 96, 1056)
    ),
    *(case for name in ENCODERS for case in encode_cases(name, [(1, 1), (3, 3), (2, 8)])),
)


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("code", CODES)
def test_scaled(code: str, out: str, rng: np.random.Generator) -> None:
    for case in scaled_cases(code, out):
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("scale", SCALES)
def test_scale_dtypes(scale: str, out: str, rng: np.random.Generator) -> None:
    for case in scaled_cases("F8_E4M3", out, scale):
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("src", FLOATS)
def test_convert(src: str, out: str, rng: np.random.Generator) -> None:
    for count in COUNTS:
        case = Convert(src, out, count)
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str, out: str, rng: np.random.Generator) -> None:
    for count in BLOCK_COUNTS:
        case = Blocks(name, out, count)
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_one_byte(name: str, out: str) -> None:
    """Every field at its ends at once: zeros, NaNs, infinities, the smallest and the largest."""
    case = Blocks(name, out, 256 * 3)
    size = BLOCK_DTYPES[name].block_bytes
    inputs = (np.repeat(np.arange(256, dtype=np.uint8), 3 * size),)
    assert_levels_agree(case, inputs)


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", PACKINGS)
@pytest.mark.parametrize("scale", ["F16", "BF16", "F32", "F64"])
def test_packed(name: str, scale: str, out: str, rng: np.random.Generator) -> None:
    for case in packed_cases(name, out, scale):
        inputs = random_inputs(case, rng)
        assert_levels_agree(case, inputs)
        assert_levels_agree(case, with_finite_scales(case, inputs))


def with_finite_scales(case: Packed, inputs: tuple[Bytes, ...]) -> tuple[Bytes, ...]:
    """The same with scales of an exponent below 1: no infinities or NaNs, but zeros' signs."""
    scales = inputs[2].copy()
    scales[item_bytes(case.scale) - 1 :: item_bytes(case.scale)] &= 0xBB
    return *inputs[:2], scales, inputs[3]


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("code", ABSMAX)
def test_absmax(code: str, out: str, rng: np.random.Generator) -> None:
    for case in absmax_cases(code, out):
        assert_levels_agree(case, random_inputs(case, rng))
        assert_levels_agree(case, usual_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("dtype", ABSMAX_DTYPES)
def test_absmax_dtypes(dtype: str, out: str, rng: np.random.Generator) -> None:
    for code in ABSMAX:
        for block in (1, 32, 64, 100):
            case = Absmax(code, out, 3333, block, dtype=dtype)
            assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("code", ABSMAX)
def test_absmax_at_the_bounds(code: str, rng: np.random.Generator) -> None:
    """Every exponent, both signs, beside codebooks of every size."""
    bits = np.repeat(np.arange(512, dtype=np.uint32) << 23, 2) | rng.integers(0, 1 << 23, 1024)
    bits[::7] &= 0xFF800000
    absmax = bits.astype(np.uint32).view(np.uint8)
    for out in OUTPUTS:
        case = Absmax(code, out, 64 * 1024, 64)
        for exponent in (-126, -60, 0, 1, 100, 127):
            codes, codebook, _ = usual_inputs(case, rng)
            entries = codebook.view(np.float32) * np.float32(2.0**exponent)
            assert_levels_agree(case, (codes, entries.view(np.uint8), absmax))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("code", INTEGERS)
@pytest.mark.parametrize("scale", ["F16", "BF16", "F32"])
def test_integers(scale: str, code: str, out: str, rng: np.random.Generator) -> None:
    for case in integers_cases(code, out, scale):
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.slow
@pytest.mark.parametrize("rounded", ["BF16", "F16"])
@pytest.mark.parametrize("out", OUTPUTS)
def test_rounded_integers(out: str, rounded: str, rng: np.random.Generator) -> None:
    for case in rounded_cases(out, rounded):
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("rounded", ["BF16", "F16"])
@pytest.mark.parametrize("out", OUTPUTS)
def test_rounded_scales(out: str, rounded: str, rng: np.random.Generator) -> None:
    for scale in SCALES:
        for case in scaled_cases("F8_E4M3", out, scale, rounded):
            assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("code", INTEGERS)
@pytest.mark.parametrize("scale", ["F16", "BF16", "F32"])
def test_integers_straight(scale: str, code: str, out: str, rng: np.random.Generator) -> None:
    for case in straight_cases(code, out, scale):
        assert_levels_agree(case, usual_integers(case, rng))


@pytest.mark.parametrize("out", ["BF16", "F16"])
@pytest.mark.parametrize("code", INTEGERS)
def test_integers_at_the_bounds(code: str, out: str, rng: np.random.Generator) -> None:
    """Results on both sides of the largest finite number, and of the least."""
    for case in straight_cases(code, out, "F32"):
        for exponent in (-149, -133, -126, -24, 5, 7, 9, 11, 116, 118, 120, 122, 124, 126):
            inputs = list(usual_integers(case, rng))
            scales = inputs[1].view(np.float32) * np.float32(2.0**exponent)
            inputs[1] = scales.view(np.uint8)
            assert_levels_agree(case, tuple(inputs))


@pytest.mark.parametrize("out", OUTPUTS)
def test_planes(out: str, rng: np.random.Generator) -> None:
    for case in planes_cases(out):
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("code", TRELLISES)
def test_trellis(code: str, bits: int, rng: np.random.Generator) -> None:
    """Of scales of any bits, and of usual ones, for which nothing is infinite."""
    for out in OUTPUTS:
        for case in (Trellis(code, out, bits, 256), Trellis(code, out, bits, 384, 99, 2, 77, 180)):
            tiles, *scales = random_inputs(case, rng)
            assert_levels_agree(case, (tiles, *scales))
            usual = [rng.standard_normal(n.size // 2).astype(np.float16) for n in scales]
            assert_levels_agree(case, (tiles, *(n.view(np.uint8) for n in usual)))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("code", TRELLISES)
def test_some_of_a_trellis(code: str, out: str, rng: np.random.Generator) -> None:
    """Some rows and columns are what all have there."""
    inputs = random_inputs(Trellis(code, out, 4, 384), rng)
    whole, _ = run(Trellis(code, out, 4, 384), "scalar", inputs)
    values = np.frombuffer(whole, np.uint8).reshape(128, 384, item_bytes(out))
    for rows, cols in (((0, 1), (0, 384)), ((127, 128), (383, 384)), ((5, 70), (100, 300))):
        some = rows[0], rows[1] - rows[0], cols[0], cols[1] - cols[0]
        found, _ = run(Trellis(code, out, 4, 384, *some), SUPPORTED[-1], inputs)
        assert found == values[slice(*rows), slice(*cols)].tobytes()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("code", QUANTIZERS)
def test_quantize(code: str, source: str, rng: np.random.Generator) -> None:
    for case in quantize_cases(code, source):
        for _ in range(4):
            assert_levels_agree(case, finite_inputs(case, rng))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("code", PACKERS)
def test_pack(code: str, source: str, rng: np.random.Generator) -> None:
    for case in pack_cases(code, source):
        for _ in range(4):
            assert_levels_agree(case, finite_inputs(case, rng))


@pytest.mark.parametrize("name", ENCODERS)
def test_encode_blocks(name: str, rng: np.random.Generator) -> None:
    for case in encode_cases(name, ROWS_OF_BLOCKS):
        for _ in range(4):
            assert_levels_agree(case, encoder_inputs(case, rng))


@pytest.mark.parametrize("source", SOURCES)
def test_ranges_without_0(source: str, rng: np.random.Generator) -> None:
    """All of a group above or below 0, or none of either sign."""
    for code, offset in product(PACKERS, (-3.0, 3.0, 0.0, -0.0)):
        for case in pack_cases(code, source):
            values = rng.uniform(-2, 2, (case.rows, case.cols)) * (offset != 0) + offset
            data = values.astype(DTYPES[source].numpy()).reshape(-1).view(np.uint8)
            assert_levels_agree(case, (data,))


@pytest.mark.parametrize("code", QUANTIZERS)
def test_any_largest_bf16(code: str) -> None:
    """Scales round up and down; the largest magnitude itself meets the end of the codes."""
    mantissas = np.arange(128, dtype=np.uint16)
    values = np.full((128, 48), 0x3C01, np.uint16)
    values[:, 20], values[:, 35] = mantissas | 0x3C80, mantissas | 0xBC80
    for rule in rules_of(code, 1):
        rows, cols = (1, values.size) if code[:3] in ("NF4", "FP4") else values.shape
        case = Quantize(code, "BF16", rule, rows, cols, 1, 48)
        assert_levels_agree(case, (values.view(np.uint8).reshape(-1),))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("code", QUANTIZERS)
def test_values_of_which_scaled_little_is_left(code: str, source: str) -> None:
    """Subnormal products of both signs, some of which the source's dtype rounds to 0."""
    bits = DTYPES[source].bits
    least, largest = {"F16": (-24, 15), "BF16": (-133, 127), "F32": (-149, 127)}[source]
    powers = np.ldexp(1.0, np.arange(least, largest + 1))
    tail = np.concatenate((powers, powers * 1.25, -powers, -powers * 1.25))
    values = np.resize(tail, (8, 1024)).reshape(-1, 32)
    values[:, 5] = 2.0 ** (largest - np.arange(len(values)) % 24)
    data = values.astype(DTYPES[source].numpy()).reshape(-1).view(f"u{bits // 8}")
    for rule in rules_of(code, 1):
        rows, cols = (1, values.size) if code in FLAT else values.shape
        case = Quantize(code, source, rule, rows, cols, 1, 32)
        assert_levels_agree(case, (data.view(np.uint8),))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("code", QUANTIZERS)
def test_a_given_largest_magnitude(code: str, source: str, rng: np.random.Generator) -> None:
    """Which numbers may exceed, by little or by far."""
    values = rng.standard_normal((3, 2048)).astype(np.float32)
    data = values.astype(DTYPES[source].numpy()).reshape(-1).view(np.uint8)
    rows, cols = (1, values.size) if code in FLAT else values.shape
    for rule in set(rules_of(code, 1)) & {"reciprocal", "power of two", "divided", "absmax"}:
        for given in (0, 1e-30, 0.01, 1, 2.5, 3, 100, 3e38):
            amax = np.float32(given).tobytes()
            assert_levels_agree(
                Quantize(code, source, rule, rows, cols, 1, 64, given=amax), (data,)
            )


@pytest.mark.parametrize("code", FLAT)
def test_errors_that_are_not_finite(code: str, rng: np.random.Generator) -> None:
    """Scales that are infinite decode zeros to NaNs, which hide no larger error."""
    case = Quantize(code, "F32", "nested", 1, 2048, 1, 4, mean=np.float32(-np.inf).tobytes())
    values = rng.uniform(-3e38, 3e38, 2048).astype(np.float32)
    values[-64:] = 0
    assert_levels_agree(case, (values.view(np.uint8),))


@pytest.mark.parametrize("source", SOURCES)
def test_largest_magnitudes(source: str, rng: np.random.Generator) -> None:
    for count in COUNTS:
        case = Quantize("F8_E4M3", source, "divided", 1, count, 1, count)
        for data in (*random_inputs(case, rng), *finite_inputs(case, rng)):
            found = {_core.amax(_core.SOURCES[source], data, _core.LEVELS[v]) for v in SUPPORTED}
            with np.errstate(invalid="ignore"):  # of NaNs that signal
                values = data.view(DTYPES[source].numpy()).astype(np.float32)
            largest = float(np.abs(values).max())
            assert found == {largest if np.isfinite(values).all() else None}


@pytest.mark.parametrize("block", [1, 15, 16, 17, 32, 48, 64, 65])
@pytest.mark.parametrize("source", SOURCES)
def test_largest_magnitudes_of_blocks(source: str, block: int, rng: np.random.Generator) -> None:
    """As numpy finds them; one that is not finite is told of, wherever it is."""
    dtype = DTYPES[source].numpy()
    for n_blocks in (1, 7, 8, 9, 16, 1030):
        values = rng.standard_normal(n_blocks * block).astype(dtype)
        maxima = np.abs(values.astype(np.float32)).reshape(-1, block).max(axis=1)
        at = rng.integers(values.size)
        for level, special in product(SUPPORTED, (None, np.inf, -np.inf, np.nan)):
            some, out = values.copy(), np.zeros(n_blocks, np.float32)
            if special is not None:
                some[at] = special
            is_finite = _core.blocks_amax(
                _core.SOURCES[source],
                some.view(np.uint8),
                block,
                out.view(np.uint8),
                _core.LEVELS[level],
            )
            assert is_finite == (special is None)
            others = np.arange(n_blocks) != (-1 if special is None else at // block)
            assert (out == maxima)[others].all()


def inputs_of(case: Case, rng: np.random.Generator) -> tuple[Bytes, ...]:
    if isinstance(case, Integers):
        return usual_integers(case, rng)
    if isinstance(case, EncodeBlocks):
        return encoder_inputs(case, rng)
    return (
        finite_inputs(case, rng) if isinstance(case, (Quantize, Pack)) else random_inputs(case, rng)
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", MISALIGNED, ids=str)
def test_misaligned(case: Case, rng: np.random.Generator) -> None:
    inputs = inputs_of(case, rng)
    expected = run(case, "scalar", inputs)
    margin, aligned = 64, 4 if isinstance(case, EncodeBlocks) else 1  # float32 are taken as such
    for level in SUPPORTED:
        for offset in range(32):
            moved = tuple(at_offset(data, offset // aligned * aligned) for data in inputs)
            room = at_offset(np.full(case.output_bytes + 2 * margin, POISON, np.uint8), 0)
            start = margin + offset * item_bytes(case.out) % 32
            dst = room[start : start + case.output_bytes]
            n_overflow = case.run(level, dst, moved)
            assert (dst.tobytes(), n_overflow) == expected, (level, offset)
            assert (room[:start] == POISON).all()
            assert (room[start + case.output_bytes :] == POISON).all()


@pytest.mark.sampled(33)
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", PACKINGS)
def test_large_results_go_past_the_caches(name: str, out: str, rng: np.random.Generator) -> None:
    """Wherever they start in a cache line, of ragged tiles, of listed groups, of every scale."""
    rows = 8 + 4096 // item_bytes(out)
    for case in (
        Packed(name, out, rows, 4128, 128),
        Packed(name, out, rows, 4129, 40),
        Packed(name, out, rows, 4128, 1, listed_groups=33),
    ):
        assert case.output_bytes >= _core.STREAMED_BYTES
        inputs = random_inputs(case, rng)
        room = at_offset(np.zeros(case.output_bytes + 256, np.uint8), 0)
        for data in (inputs, with_finite_scales(case, inputs)):
            expected = run(case, "scalar", data)
            for level, start in product(SUPPORTED, (64, 64 + 16, 128 - item_bytes(out))):
                room[:] = POISON
                dst = room[start : start + case.output_bytes]
                n_overflow = case.run(level, dst, data)
                assert (dst.tobytes(), n_overflow) == expected, (level, start)
                assert (room[:start] == POISON).all()
                assert (room[start + case.output_bytes :] == POISON).all()


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", PACKINGS)
def test_some_rows_of_packed(name: str, out: str, rng: np.random.Generator) -> None:
    """Parts of the rows are what all rows have there."""
    for whole in (
        Packed(name, out, 168, 160, 64),
        Packed(name, out, 168, 97, 20, zeros_less_one=name != "AWQ4"),
        Packed(name, out, 168, 70, 1, listed_groups=9),
        Packed(name, out, 96, 64, 1, listed_groups=300),
    ):
        inputs = random_inputs(whole, rng)
        for data in (inputs, with_finite_scales(whole, inputs)):
            expected, n_overflow = run(whole, "scalar", data)
            row_bytes = len(expected) // whole.rows
            for level in SUPPORTED:
                counts: list[int] = []
                for first, n in ((0, 32), (32, 32), (64, None), (32, 40)):
                    found, count = run(replace(whole, first_row=first, n_rows=n), level, data)
                    start = first * row_bytes
                    assert found == expected[start : start + len(found)], (level, first, n)
                    counts.append(int(count))
                assert sum(counts[:3]) == n_overflow


@pytest.mark.sampled(4)
@pytest.mark.skipif(not HAVE_GUARD_PAGES, reason="needs mprotect")
@pytest.mark.parametrize("case", GUARDED, ids=str)
def test_guard_pages(case: Case, rng: np.random.Generator) -> None:
    inputs = inputs_of(case, rng)
    expected = run(case, "scalar", inputs)
    guarded_inputs = [GuardedPages(data.size) for data in inputs]
    guarded_dst = GuardedPages(case.output_bytes)
    for at_end in (True, False):
        views = tuple(pages.view(at_end) for pages in guarded_inputs)
        for view, data in zip(views, inputs, strict=True):
            view[:] = data
        dst = guarded_dst.view(at_end)
        for level in SUPPORTED:
            dst[:] = POISON
            n_overflow = case.run(level, dst, views)
            assert (dst.tobytes(), n_overflow) == expected, level
