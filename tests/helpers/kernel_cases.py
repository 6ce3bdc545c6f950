"""Which calls the tests of kernels make, and with what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES
from helpers.kernel_calls import (
    E2M1,
    FLAT,
    MX,
    NV,
    SUPPORTED,
    WEIGHED,
    Absmax,
    Bytes,
    Case,
    EncodeBlocks,
    Integers,
    Pack,
    Packed,
    Quantize,
    Scaled,
    as_rows,
    item_bytes,
    run,
)

# (block_rows, block_cols, row_phase, col_phase); 0 stands for the whole side.
GRIDS = (
    (0, 0, 0, 0),  # one scale
    (1, 0, 0, 0),  # one per row
    (0, 1, 0, 0),  # one per column
    (1, 1, 0, 0),
    (128, 128, 0, 0),
    (128, 128, 100, 77),
    (1, 32, 0, 0),  # MX
    (1, 32, 0, 5),
    (3, 2, 1, 1),
    (1, 7, 0, 3),
    (2, 16, 0, 9),
    (1, 31, 0, 30),
    (5, 40, 4, 39),
    (1, 0, 0, 3),
    (7, 0, 13, 0),  # rows that share their scale, and a phase of more than a block
    (2, 5, 3, 17),
)


SHAPES = (
    (1, 1),
    (1, 7),
    (1, 31),
    (2, 32),
    (3, 33),
    (5, 63),
    (3, 100),
    (2, 1000),
    (1, 4097),
    (137, 131),
)


PACKED_SHAPES = (
    # rows, cols, group size, first column, groups listed
    (8, 1, 1, 0, 0),
    (8, 7, 3, 5, 0),
    (16, 32, 32, 32, 0),
    (32, 64, 64, 0, 0),
    (32, 256, 128, 256, 0),
    (40, 130, 128, 0, 0),
    (64, 200, 32, 33, 0),
    (8, 513, 513, 0, 0),
    (104, 97, 16, 7, 0),
    (32, 300, 1 << 40, 77, 0),
    (40, 160, 1, 0, 7),
    (96, 333, 1, 0, 33),
    (16, 700, 1, 0, 600),
)


# (block, phase) of absmax: those of bitsandbytes, of NVFP4 and MXFP4, and any others.
ABSMAX_BLOCKS = (
    *((16, 0), (16, 32), (32, 16), (48, 16), (80, 64), (112, 0), (16, 8)),
    *((32, 0), (64, 0), (64, 32), (128, 96), (4096, 0), (4096, 1024), (1 << 62, 1 << 61)),
    *((1, 0), (1, 3), (2, 1), (7, 5), (33, 32), (48, 16), (64, 1), (64, 63), (96, 64), (11008, 0)),
)


BLOCK_COUNTS = (1, 2, 3, 4, 5, 7, 31, 32, 33, 64, 65, 1000)


COUNTS = (1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 1000, 1023, 1024, 1025, 4099)


def scaled_cases(code: str, out: str, scale: str = "F32", rounded: str = "F32") -> Iterator[Scaled]:
    for rows, cols in SHAPES:
        for block_rows, block_cols, row_phase, col_phase in GRIDS:
            yield Scaled(
                code,
                out,
                rows,
                cols,
                block_rows or rows + row_phase,
                block_cols or cols + col_phase,
                scale,
                row_phase,
                col_phase,
                spare_scales=cols % 3,
                rounded=rounded,
            )


def packed_cases(packing: str, out: str, scale: str = "F16") -> Iterator[Packed]:
    for i, (rows, cols, group_size, first_col, listed) in enumerate(PACKED_SHAPES):
        odd_rows = rows if packing == "AWQ4" else rows - i % 3
        yield Packed(packing, out, odd_rows, cols, group_size, scale, i % 2 == 1, first_col, listed)


def absmax_cases(code: str, out: str, dtype: str = "F32") -> Iterator[Absmax]:
    for count in (*COUNTS, 65_600):
        for block, phase in ABSMAX_BLOCKS:
            yield Absmax(code, out, count, block, phase, dtype)


# Rows and columns, and those of a block.
QUANTIZED_SHAPES = (
    *((1, 1, 1, 1), (1, 31, 1, 31), (3, 33, 1, 8), (5, 64, 2, 16), (9, 100, 9, 100)),
    *((10, 130, 1, 7), (17, 300, 5, 128), (8, 1100, 1, 1100), (2, 2100, 1, 2), (3, 513, 1, 257)),
    *((3, 1040, 1, 16), (2, 2112, 1, 32), (5, 75, 1, 16), (4, 85, 1, 32), (1, 16_500, 1, 16)),
)


FLAT_SHAPES = (
    *((1, 1, 1, 64), (1, 31, 1, 32), (1, 64, 1, 64), (1, 203, 1, 2), (1, 1000, 1, 66)),
    *((1, 2049, 1, 512), (1, 9000, 1, 4096), (1, 17_000, 1, 64), (1, 40_001, 1, 38)),
)


def rules_of(code: str, block_rows: int) -> list[str]:
    """Those that a kernel can follow."""
    if code in FLAT:
        return ["absmax", "nested"]
    if code == "INT8_ABSMAX":
        return ["absmax"]
    if code in E2M1:
        nv = ("nv alone",) if code == "E2M1_FIRST" else NV
        return [*MX, *nv] if block_rows == 1 else []
    rules = ["reciprocal", "power of two", "divided"] if code[0] == "F" else ["divided"]
    rules += list(MX) if code == "F8_E4M3" and block_rows == 1 else []
    rules += ["whole"] * (code == "INT8")
    return rules + ["asymmetric", "lattice"] * (code == "INT4" and block_rows == 1)


def quantize_cases(code: str, source: str) -> Iterator[Quantize]:
    for i, shape in enumerate(FLAT_SHAPES if code in FLAT else QUANTIZED_SHAPES):
        for rule in rules_of(code, shape[2]):
            yield Quantize(code, source, rule, *shape, measure=i % 3 != 0)


# Rows, columns, and those of a group: of more groups, and of wider ones, than are done at a time.
PACK_SHAPES = (
    *((8, 32, 32), (8, 64, 32), (16, 96, 32), (72, 320, 64), (8, 2144, 32), (136, 1152, 128)),
    *((8, 1536, 512), (64, 1024, 1024)),
)


def pack_rules_of(code: str) -> list[str]:
    """Those that a kernel can follow."""
    also = {"PACKED2": ["mirrored"], "PACKED4": ["mirrored", "half"], "PACKED8": ["mirrored"]}
    return ["edge", *also.get(code, [])]


def pack_cases(code: str, source: str) -> Iterator[Pack]:
    in_word = 32 // int(code[-1])
    for i, (rows, cols, group) in enumerate(PACK_SHAPES):
        for rule in pack_rules_of(code):
            fitting = rows - i % 3 if rule == "edge" else -(-rows // in_word) * in_word
            yield Pack(code, source, rule, fitting, cols, group, measure=i % 3 != 1)


def finite_inputs(case: Quantize | Pack, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Any bits but infinities and NaNs, in blocks of about one magnitude or of all."""
    (data,) = random_inputs(case, rng)
    top = data[item_bytes(case.source) - 1 :: item_bytes(case.source)]
    if rng.random() < 0.7:  # so that codes are not all zeros
        top[:] = top & 0x83 | (rng.integers(0, 0x78) & 0x7C)
    else:
        top &= 0xBB if case.source == "F16" else 0xBF
    return (data,)


# Rows, and blocks of a row: fewer and more than are done at a time, and not a multiple of those.
ROWS_OF_BLOCKS = ((1, 1), (1, 2), (1, 9), (2, 4), (3, 5), (8, 1), (9, 3), (1, 40), (17, 2))


def encode_cases(name: str, shapes: Iterable[tuple[int, int]]) -> Iterator[EncodeBlocks]:
    for i, (rows, blocks) in enumerate(shapes):
        for is_weighed in WEIGHED[_core.encoder_weights(_core.ENCODERS[name])]:
            yield EncodeBlocks(name, rows, blocks, is_weighed, measure=i % 3 != 1)


def encoder_inputs(case: EncodeBlocks, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Finite numbers of about one magnitude in a block, of any bits, or often equal; importance."""
    bits = rng.integers(0, 1 << 32, (case.rows * case.blocks, case.cols // case.blocks), np.uint32)
    bits &= np.where(bits >> 23 & 255 == 255, 0xBFFFFFFF, 0xFFFFFFFF).astype(np.uint32)
    kind = rng.integers(0, 8)
    values = bits.view(np.float32)
    if kind < 6:
        values = rng.standard_normal(bits.shape).astype(np.float32)
        values *= np.exp2(rng.integers(-30, 14, (len(bits), 1))).astype(np.float32)
    elif kind == 6:
        values = (rng.integers(-9, 10, bits.shape) / 4).astype(np.float32)
    importance = rng.gamma(0.5, 2.0, case.cols * case.is_weighed) * (rng.random() + 0.5)
    importance *= rng.random(importance.shape) < rng.choice((0.4, 1.0))
    return values.reshape(-1).view(np.uint8), importance.astype(np.float32).view(np.uint8)


def integers_cases(code: str, out: str, scale: str = "BF16") -> Iterator[Integers]:
    for i, (rows, cols, block_rows, block) in enumerate(QUANTIZED_SHAPES):
        for j, zeros in enumerate(_core.ZEROS):
            yield Integers(
                code,
                out,
                rows,
                cols,
                block,
                scale,
                zeros,
                i * 3 % block,
                7 * i % 35,
                (0, 0, 1, 9)[(i + j) % 4],
                block_rows if zeros != "words" else 1,
                i % block_rows if zeros != "words" else 0,
                (i + j) % 2 == 0,
                5 if i % 3 == 2 else 0,
            )


def rounded_cases(out: str, rounded: str) -> Iterator[Integers]:
    """Integers by all roundings together and each by itself, in blocks of all kinds."""
    for i, code in enumerate(_core.INTEGERS):
        for j, roundings in enumerate(range(1 << len(_core.ROUNDINGS))):
            for case in islice(integers_cases(code, out, "F32"), (i + j) % 7, None, 7):
                yield replace(case, rounded=rounded, roundings=roundings)


PLANES = (
    *((4, 0, 2, 0, 1), (4, 0, 2, 1, 1), (4, 4, 1, 0, 1), (2, 6, 1, 0, 1), (2, 0, 4, 3, 1)),
    *((1, 5, 1, 0, 1), (3, 27, 1, 0, 4), (3, 0, 10, 7, 4), (8, 24, 1, 0, 4)),
)


# Of groups, or a single one, that go straight to 16 bits; padded words may begin anywhere.
STRAIGHT_SHAPES = (
    *((2, 1, 64, 0), (3, 31, 64, 0), (3, 64, 32, 0), (2, 333, 32, 0), (2, 300, 96, 64)),
    *((3, 1300, 1300, 0), (2, 4200, 128, 32), (1, 2100, 3000, 77)),
)


def straight_cases(code: str, out: str, scale: str = "F16") -> Iterator[Integers]:
    for i, (rows, cols, block, col_phase) in enumerate(STRAIGHT_SHAPES):
        for zeros in ("constant", "int8", "float"):
            phase = i * 3 if code.startswith("PADDED") else i % 2 * 8
            case = Integers(code, out, rows, cols, block, scale, zeros, col_phase, phase=phase)
            yield replace(case, has_biases=i % 2 == 0)
            if code in ("INT8", "PACKED8"):
                yield replace(case, phase=0, planes=PLANES[i % len(PLANES)])


def planes_cases(out: str) -> Iterator[Integers]:
    for code in ("INT8", "PACKED8"):
        for planes in PLANES:
            for rows, cols, _, block in QUANTIZED_SHAPES:
                yield Integers(code, out, rows, cols, block, "F16", "float", planes=planes)


def random_inputs(case: Case, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Raw bytes: NaNs, infinities, zeros and subnormals come by themselves. Groups exist."""
    inputs = [rng.integers(0, 256, n, dtype=np.uint8) for n in case.input_bytes]
    if isinstance(case, (Packed, Integers)) and case.listed_groups:
        inputs[-1] = rng.integers(0, case.listed_groups, case.cols, dtype="<i4").view(np.uint8)
    return tuple(inputs)


def usual_inputs(case: Absmax, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Random codes, and absmax as models have them, with a few of any bits among them."""
    codes, codebook, absmax = random_inputs(case, rng)
    usual = np.exp(rng.uniform(-9, 2, case.n_absmax)).astype(DTYPES[case.dtype].numpy())
    kept = rng.random(case.n_absmax) < 0.02
    absmax = np.where(kept[:, None], absmax.reshape(case.n_absmax, -1), as_rows(usual))
    entries = rng.uniform(-1, 1, codebook.size // 4).astype(np.float32)
    entries[rng.random(entries.size) < 0.2] = 0.0
    return codes, entries.view(np.uint8), absmax.reshape(-1)


def usual_integers(case: Integers, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Random codes; scales, zero points and biases of which no result is infinite or a NaN."""
    codes, scales, zeros, biases, listed = random_inputs(case, rng)
    dtype = DTYPES[case.scale].numpy()

    def usual(data: Bytes, largest: float) -> Bytes:
        count = data.size // item_bytes(case.scale)
        return rng.uniform(-largest, largest, count).astype(dtype).view(np.uint8)

    if case.zeros == "float":
        zeros = usual(zeros, 200)
    return codes, usual(scales, 0.5), zeros, usual(biases, 9), listed


def assert_levels_agree(case: Case, inputs: tuple[Bytes, ...]) -> None:
    expected = run(case, "scalar", inputs)
    for level in SUPPORTED[1:]:
        assert run(case, level, inputs) == expected, (case, level)
