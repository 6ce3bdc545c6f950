"""Operations on weights give what numpy gives of the decoded ones, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.architectures import operations as ops
from anamnesis.architectures.operations import FUNCTIONS
from anamnesis.base.dtypes import BLOCK_DTYPES, OUTPUT_DTYPES
from anamnesis.base.levels import resolve_level
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes import ggml
from anamnesis.schemes.core.arrays import decode
from anamnesis.schemes.core.bands import Band, cut_into
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run
from anamnesis.schemes.encodings import find
from anamnesis.schemes.encodings import made as made_encoding
from anamnesis.schemes.families.fp4.weight import Fp4Weight
from anamnesis.schemes.families.ggml.weight import GgmlWeight
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.sources.file import FileSource
from helpers import weight_cases
from helpers.handmade import Entry, write_safetensors

LEVEL = resolve_level(None)
HEADS = 3
BAND_BYTES = (64, 3000, 1 << 20)
Array = NDArray[Any]


# --- weights of every kind -----------------------------------------------------------------------


def plain(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> dict[str, Entry]:
    n_bytes = OUTPUT_DTYPES[dtype.lower()].n_bytes(rows * cols)
    return {"weight": (dtype, [rows, cols], rng.bytes(n_bytes))}


def int8_rows(rng: np.random.Generator, rows: int, cols: int) -> dict[str, Entry]:
    scales = rng.uniform(0, 1e3, rows).astype(np.float32)
    return {
        "weight": ("I8", [rows, cols], rng.bytes(rows * cols)),
        "weight_scale": ("F32", [rows, 1], scales.tobytes()),
    }


FILES: dict[str, tuple[Any, ...]] = {
    "f32": (plain, 66, 133, "F32"),
    "bf16": (plain, 66, 133, "BF16"),
    "f16": (plain, 66, 133, "F16"),
    "fp8-block": (weight_cases.fp8, 66, 133, (32, 64)),
    "gptq": (weight_cases.packed, 96, 256, 4, 64, "gptq"),
    "awq": (weight_cases.packed, 96, 256, 4, 64, "awq"),
    "nf4": (weight_cases.four_bit, 66, 130, 64, False),
    "nf4-odd": (weight_cases.four_bit, 66, 133, 32, True),
    "mxfp4": (weight_cases.fp4, 66, 160, 32),
    "nvfp4": (weight_cases.fp4, 66, 144, 16),
    "int8-rows": (int8_rows, 66, 133),
}
BLOCKS = {"q8_0": (66, 160), "q4_k": (66, 512)}
KINDS = [*FILES, *BLOCKS]


def weights_of(kind: str, folder: Path, n: int = 2) -> list[Weight]:
    """Return some weights of a kind, of one shape."""
    rng = np.random.default_rng(len(kind))
    if kind in BLOCKS:
        return [blocks(kind.upper(), BLOCKS[kind], folder / f"{i}", rng) for i in range(n)]
    make, *how = FILES[kind]
    tensors: dict[str, Entry] = {}
    for i in range(n):
        tensors |= {f"l.{i}.up_proj.{part}": entry for part, entry in make(rng, *how).items()}
    model = an.parse(write_safetensors(folder / "a.safetensors", tensors), block_size=(32, 64))
    assert not model.problems
    return [model[f"l.{i}.up_proj.weight"]._weight for i in range(n)]


def blocks(name: str, shape: tuple[int, int], path: Path, rng: np.random.Generator) -> Weight:
    dtype = BLOCK_DTYPES[name]
    raw = ggml.quantize(rng.normal(size=shape).astype(np.float32), name).tobytes()
    path.write_bytes(raw)
    stored = StoredTensor(path.name, dtype, shape, len(raw), 0, FileSource(path))
    return GgmlWeight(path.name, shape, (stored,))


def whole(weight: Weight, dtype: str) -> Array:
    return decode(weight, OUTPUT_DTYPES[dtype], None, 1, LEVEL)


# --- operations, and what numpy does -------------------------------------------------------------


def half(weight: Weight, name: str, i: int) -> Weight:
    """Return the first (0) or second (1) half of the rows of each matrix."""
    rows = weight.shape[-2] if len(weight.shape) > 1 else weight.shape[0]
    return ops.rows_between(weight, name, rows, i * (rows // 2), (i + 1) * (rows // 2))


class Case(NamedTuple):
    """An operation on two weights of one shape, what numpy does, and what undoes it, if any."""

    make: Callable[[list[Weight]], Weight]
    expected: Callable[[list[Array]], Array]
    undo: Callable[[Weight, list[Weight]], Weight] | None = None


def head(array: Array) -> int:
    return len(array) // HEADS


def by_heads(array: Array) -> Array:
    return array.reshape(HEADS, head(array), -1)


def order_of(n: int) -> list[int]:
    return np.random.default_rng(n).permutation(n).tolist()


def halves_and_back(stack: Weight, _: list[Weight]) -> Weight:
    rows = stack.shape[1]
    parts = [ops.rows_between(stack, "h", rows, *ends) for ends in ((0, 6), (6, rows))]
    return ops.interleaved("s", parts, (6, rows - 6), stack.shape)


def alternate_and_back(weight: Weight, _: list[Weight]) -> Weight:
    parts = [ops.every_other(weight, "h", i) for i in range(2)]
    return ops.interleaved("s", parts, (1, 1), weight.shape)


CASES = {
    "renamed": Case(
        lambda ws: ops.renamed(ws[0], "new"),
        lambda xs: xs[0],
        lambda made, ws: ops.renamed(made, ws[0].name),
    ),
    "permuted": Case(
        lambda ws: ops.permuted(ws[0], "new", HEADS),
        lambda xs: (
            xs[0].reshape(HEADS, 2, head(xs[0]) // 2, -1).swapaxes(1, 2).reshape(xs[0].shape)
        ),
        lambda made, _: ops.unpermuted(made, "old", HEADS),
    ),
    "rows-between": Case(
        lambda ws: ops.rows_between(ws[0], "new", ws[0].shape[0] // HEADS, 5, 16),
        lambda xs: by_heads(xs[0])[:, 5:16].reshape(HEADS * 11, -1),
    ),
    "every-other": Case(
        lambda ws: ops.every_other(ws[0], "new", 1),
        lambda xs: xs[0][1::2],
    ),
    "every-third-of-stack": Case(
        lambda ws: ops.every_other(ops.stacked("s", ws), "new", 1, 3),
        lambda xs: np.stack(xs)[:, 1::3],
    ),
    "alternate-and-back": Case(
        lambda ws: alternate_and_back(ws[0], ws),
        lambda xs: xs[0],
    ),
    "interleaved": Case(
        lambda ws: ops.interleaved("new", ws, (2, 2), (2 * ws[0].shape[0], ws[0].shape[1])),
        lambda xs: np.stack([x.reshape(-1, 2, x.shape[1]) for x in xs], 1).reshape(
            -1, xs[0].shape[1]
        ),
        lambda made, _: ops.rows_between(made, "old", 4, 0, 2),
    ),
    "one-below-the-other": Case(
        lambda ws: ops.interleaved(
            "new", ws, [ws[0].shape[0]] * 2, (2 * ws[0].shape[0], ws[0].shape[1])
        ),
        np.concatenate,
        lambda made, ws: ops.first_rows(made, "old", ws[0].shape[0]),
    ),
    "in-order": Case(
        lambda ws: ops.in_order(ws[0], "new", order_of(ws[0].shape[0])),
        lambda xs: xs[0][order_of(len(xs[0]))],
        lambda made, _: ops.in_order(made, "old", ops.inverse(order_of(made.shape[0]))),
    ),
    "half": Case(
        lambda ws: half(ops.stacked("s", ws), "new", 1),
        lambda xs: np.stack(xs)[:, len(xs[0]) // 2 :],
    ),
    "halves-and-back": Case(
        lambda ws: ops.interleaved(
            "new",
            [half(ws[0], "h", i) for i in range(2)],
            [ws[0].shape[0] // 2] * 2,
            ws[0].shape,
        ),
        lambda xs: xs[0],
    ),
    "first-rows": Case(
        lambda ws: ops.first_rows(ws[0], "new", 7),
        lambda xs: xs[0][:7],
    ),
    "stacked": Case(
        lambda ws: ops.stacked("new", ws),
        np.stack,
        lambda made, _: ops.matrix_of(made, "old", 0),
    ),
    "second-of-stack": Case(
        lambda ws: ops.matrix_of(ops.stacked("s", ws), "new", 1),
        lambda xs: xs[1],
    ),
    "halves-of-stack": Case(
        lambda ws: halves_and_back(ops.stacked("s", ws), ws),
        np.stack,
    ),
    "turned": Case(
        lambda ws: ops.turned(ws[0], "new"),
        lambda xs: xs[0].T,
        lambda made, _: ops.turned(made, "old"),
    ),
    "turned-rows-of-heads": Case(
        lambda ws: ops.turned(
            ops.reshaped(
                ops.rows_between(ws[0], "k", ws[0].shape[0] // HEADS, 3, 14),
                "k",
                (HEADS, 11, ws[0].shape[1]),
            ),
            "new",
        ),
        lambda xs: by_heads(xs[0])[:, 3:14].swapaxes(1, 2),
    ),
    "permuted-stack": Case(
        lambda ws: ops.permuted(ops.stacked("s", ws), "new", 2 * HEADS),
        lambda xs: (
            np.stack(xs).reshape(6, 2, head(xs[0]) // 2, -1).swapaxes(1, 2).reshape(2, *xs[0].shape)
        ),
    ),
    "permuted-twice": Case(
        lambda ws: ops.permuted(ops.permuted(ws[0], "a", 1), "new", HEADS),
        lambda xs: (
            xs[0]
            .reshape(2, len(xs[0]) // 2, -1)
            .swapaxes(0, 1)
            .reshape(HEADS, 2, head(xs[0]) // 2, -1)
            .swapaxes(1, 2)
            .reshape(xs[0].shape)
        ),
    ),
    "columns": Case(
        lambda ws: ops.gathered_columns(ws[0], "new", order_of(ws[0].shape[1])),
        lambda xs: xs[0][:, order_of(xs[0].shape[1])],
        lambda made, _: ops.gathered_columns(made, "old", ops.inverse(order_of(made.shape[1]))),
    ),
    "reshaped": Case(
        lambda ws: ops.reshaped(ws[0], "new", (ws[0].shape[0] // 2, 2, ws[0].shape[1])),
        lambda xs: xs[0].reshape(len(xs[0]) // 2, 2, -1),
        lambda made, ws: ops.reshaped(made, "old", ws[0].shape),
    ),
    "reshaped-rows": Case(
        lambda ws: ops.every_other(
            ops.reshaped(ws[0], "s", (ws[0].shape[0] // 2, 2 * ws[0].shape[1])), "new", 0, 3
        ),
        lambda xs: xs[0].reshape(len(xs[0]) // 2, -1)[::3],
    ),
}


@pytest.mark.sampled(11)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, kind: str, tmp_path: Path) -> None:
    """Of any bands and threads, and of any run of elements."""
    weights = weights_of(kind, tmp_path)
    make, expected_of, undo = CASES[case]
    rng = np.random.default_rng(1)
    for dtype, n_bytes, threads in (("bf16", 64, 1), ("f32", 3000, 2), ("bf16", 1 << 20, 1)):
        wholes = [whole(weight, dtype) for weight in weights]
        expected = np.ascontiguousarray(expected_of(wholes))
        with cut_into(n_bytes):
            made = make(weights)
            assert made.shape == expected.shape
            got = decode(made, OUTPUT_DTYPES[dtype], None, threads, LEVEL)
            assert got.tobytes() == expected.tobytes()
            check_runs(made, expected, dtype, rng)
            if undo is not None:
                back = undo(made, weights)
                assert back.shape == weights[0].shape
                assert whole(back, dtype).tobytes() == wholes[0].tobytes()


def check_runs(made: Weight, expected: Array, dtype: str, rng: np.random.Generator) -> None:
    raw, item, scratch = expected.tobytes(), expected.itemsize, Scratch()
    for start, stop in np.sort(rng.integers(0, expected.size, (8, 2)), axis=1).tolist():
        out = bytearray((stop + 1 - start) * item)
        band = Band(start, stop + 1)
        decode_run(made, band, OUTPUT_DTYPES[dtype], scratch, memoryview(out))
        assert bytes(out) == raw[start * item : (stop + 1) * item]


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_vectors(dtype: str, tmp_path: Path) -> None:
    """Each value of theirs is a row."""
    rng = np.random.default_rng(2)
    item = OUTPUT_DTYPES[dtype.lower()].n_bytes(1)
    tensors: dict[str, Entry] = {f"{i}.bias": (dtype, [60], rng.bytes(60 * item)) for i in range(2)}
    model = an.parse(write_safetensors(tmp_path / "a.safetensors", tensors))
    one, other = (model[name]._weight for name in tensors)
    values, others = (whole(weight, "f32") for weight in (one, other))
    made = ops.permuted(one, "new", 3)
    assert whole(made, "f32").tobytes() == values.reshape(3, 2, 10).swapaxes(1, 2).tobytes()
    assert whole(ops.unpermuted(made, "old", 3), "f32").tobytes() == values.tobytes()
    made = ops.stacked("new", [one, other])
    assert made.shape == (2, 60)
    assert whole(made, "f32").tobytes() == np.stack([values, others]).tobytes()
    assert whole(ops.matrix_of(made, "old", 1), "f32").tobytes() == others.tobytes()
    made = ops.interleaved("new", [one, other], (2, 2), (120,))
    assert (
        whole(made, "f32").tobytes()
        == np.stack([values.reshape(-1, 2), others.reshape(-1, 2)], 1).tobytes()
    )
    made = ops.rows_between(one, "new", 6, 1, 3)
    assert made.shape == (20,)
    assert whole(made, "f32").tobytes() == values.reshape(-1, 6)[:, 1:3].tobytes()
    made = ops.reshaped(one, "new", (60, 1))
    assert whole(made, "f32").tobytes() == values.tobytes()


# --- where codes stay ----------------------------------------------------------------------------

ROW_OPERATIONS = [
    "permuted",
    "rows-between",
    "every-other",
    "interleaved",
    "in-order",
    "first-rows",
    "stacked",
    "second-of-stack",
    "halves-of-stack",
    "permuted-stack",
    "permuted-twice",
]
KEPT: dict[str, type[Weight]] = {
    **dict.fromkeys(["f32", "bf16", "f16"], Plain),
    **dict.fromkeys(["q8_0", "q4_k"], GgmlWeight),
    "mxfp4": Fp4Weight,
    "int8-rows": IntegerWeight,
}


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("case", ROW_OPERATIONS)
def test_rows_stay_in_their_codes(case: str, kind: str, tmp_path: Path) -> None:
    weights = weights_of(kind, tmp_path)
    made = CASES[case].make(weights)
    assert type(made) is KEPT[kind]
    assert made.id == weights[0].id
    assert [part.dtype for part in made.parts] == [part.dtype for part in weights[0].parts]
    assert sum(part.n_bytes for part in made.parts) == made.n_elements * sum(
        part.n_bytes for part in weights[0].parts
    ) // (weights[0].n_elements)


def test_blocks_are_moved_as_they_are(tmp_path: Path) -> None:
    """The bytes of each row, not its values."""
    (weight,) = weights_of("q4_k", tmp_path, 1)
    rows = np.frombuffer(weight.parts[0].read(), np.uint8).reshape(66, -1)
    made = ops.permuted(weight, "new", HEADS)
    expected = rows.reshape(HEADS, 2, 11, -1).swapaxes(1, 2)
    assert made.parts[0].read() == expected.tobytes()


def test_seconds_scales_stay_with_their_matrices(tmp_path: Path) -> None:
    """NVFP4: a stack's codes stay where rows are of their own matrix, and not elsewhere."""
    weights = weights_of("nvfp4", tmp_path)
    stack = ops.stacked("s", weights)
    assert type(stack) is Fp4Weight
    assert type(ops.every_other(stack, "new", 1)) is Fp4Weight
    assert type(ops.rows_between(stack, "new", 66, 11, 22)) is Fp4Weight
    across = ops.gathered_rows("new", [stack], 132, range(33, 99), (66, 144))
    assert type(across) is not Fp4Weight
    assert whole(across, "f32").tobytes() == whole(stack, "f32").reshape(132, -1)[33:99].tobytes()


def test_codes_of_gathered_rows_are_moved_into_blocks(tmp_path: Path) -> None:
    """As of gpt-oss: the gates are every other row of a stack whose transpose the model has."""
    stack = ops.stacked("s", weights_of("mxfp4", tmp_path))
    seen = ops.turned(stack, "gate_up")
    gates = ops.every_other(ops.turned(seen, "gate_up"), "blk.0.ffn_gate_exps.weight", 0)
    assert gates.shape == (2, 33, 160)
    row = find("gguf-mxfp4")
    assert row is not None
    encoding = made_encoding(row)
    repack = encoding.layout.write(encoding.layout.view(gates), encoding)
    assert repack is not None
    (stored,) = repack.parts
    assert stored.dtype.name == "MXFP4"
    blocks = GgmlWeight("w", gates.shape, (stored,))
    expected = whole(stack, "f32")[:, ::2] + np.float32(0)  # ggml has no -0
    assert whole(blocks, "f32").tobytes() == np.ascontiguousarray(expected).tobytes()


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_widened(kind: str, tmp_path: Path) -> None:
    (weight,) = weights_of(kind, tmp_path, 1)
    made = ops.widened(weight, "new")
    assert made.own_dtype is OUTPUT_DTYPES["f32"]
    for n_bytes in BAND_BYTES:
        with cut_into(n_bytes):
            assert whole(made, "f32").tobytes() == whole(weight, "f32").tobytes()
    raw = whole(weight, "f32").tobytes()
    for start, stop in ((1, 3), (2, 9), (5, 6), (len(raw) - 3, len(raw))):
        stored = made.parts[0]
        assert stored.source.read(stored.offset + start, stop - start) == raw[start:stop]


def test_constant(tmp_path: Path) -> None:
    (weight,) = weights_of("bf16", tmp_path, 1)
    values = np.array([1.0, 0.25, -3.0], np.float32)
    made = ops.constant("rope_freqs.weight", values, weight)
    assert (made.name, made.shape) == ("rope_freqs.weight", (3,))
    assert made.own_dtype is OUTPUT_DTYPES["f32"]
    assert made.parts[0].source.base is weight.parts[0].source.base
    assert whole(made, "f32").tobytes() == values.tobytes()


# --- names, ids, what cannot be ------------------------------------------------------------------


def test_names(tmp_path: Path) -> None:
    """Of all that is made; a lone stored tensor has it too."""
    for kind in KINDS:
        weights = weights_of(kind, tmp_path)
        for case in CASES.values():
            made = case.make(weights)
            assert made.name in ("new", "s")
            if type(made) in (Plain, GgmlWeight):
                assert made.parts[0].name == made.name
            assert ops.renamed(made, "other").name == "other"
            assert made.name != "other"


def told(weight: Weight) -> str:
    return repr((weight.id, [(p.name, p.offset, p.source.way) for p in weight.parts]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_differently_is_told_apart(kind: str, tmp_path: Path) -> None:
    """By what the digest of a plan has of a weight."""
    one, other = weights_of(kind, tmp_path)
    many = [
        one,
        ops.permuted(one, "w", 3),
        ops.permuted(one, "w", 1),
        ops.unpermuted(one, "w", 3),
        ops.every_other(one, "w", 0),
        ops.every_other(one, "w", 1),
        ops.rows_between(one, "w", 6, 0, 2),
        ops.in_order(one, "w", order_of(one.shape[0])),
        ops.gathered_columns(one, "w", order_of(one.shape[1])),
        ops.turned(one, "w"),
        ops.permuted(ops.permuted(one, "w", 3), "w", 3),
        ops.stacked("w", [one, other]),
        ops.stacked("w", [other, one]),
        ops.every_other(ops.stacked("w", [one, other]), "w", 0),
        ops.every_other(ops.stacked("w", [other, one]), "w", 0),
        ops.widened(one, "w") if one.own_dtype is not OUTPUT_DTYPES["f32"] else other,
        *(ops.mapped_values(one, "w", function) for function in FUNCTIONS),
    ]
    assert len({told(weight) for weight in many}) == len(many)
    assert told(ops.permuted(one, "w", 3)) == told(ops.permuted(one, "w", 3))


def test_what_cannot_be(tmp_path: Path) -> None:
    one, other = weights_of("bf16", tmp_path)
    with pytest.raises(ValueError, match="66 rows are no groups of 5"):
        ops.rows_between(one, "new", 5, 0, 2)
    with pytest.raises(ValueError, match="group of 6 rows has not all"):
        ops.gathered_rows("new", [one], 6, [6], (11, 133))
    with pytest.raises(ValueError, match="not as many groups"):
        ops.interleaved("new", [one, other], (2, 3), (132, 133))
    with pytest.raises(ValueError, match="has not the columns"):
        ops.interleaved("new", [one, other], (2, 2), (132, 134))
    with pytest.raises(ValueError, match="132 rows are taken for"):
        ops.interleaved("new", [one, other], (2, 2), (131, 133))
    with pytest.raises(ValueError, match="cannot be of shape"):
        ops.reshaped(one, "new", (66, 134))
    with pytest.raises(ValueError, match="has not all of these columns"):
        ops.gathered_columns(one, "new", [133])
