"""Sparse matrices with bitmasks, made by hand: expanded, decoded, refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.base.levels import supported_levels
from anamnesis.sources import expanded
from helpers.handmade import Entry, safetensors_bytes, write_safetensors

Tensors = dict[str, Entry]
DTYPES: dict[str, Any] = {
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I8": np.int8,
    "U8": np.uint8,
}


def random_dense(rng: np.random.Generator, dtype: Any, mask: NDArray[np.bool_]) -> NDArray[Any]:
    """Bytes of any kind where the mask is set, zeros elsewhere."""
    raw = rng.integers(1, 127, (*mask.shape, np.dtype(dtype).itemsize), np.uint8)
    return np.where(mask, raw.view(dtype)[..., 0], np.zeros((), dtype))


def two_of_four(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.bool_]:
    order = np.argsort(rng.random((rows, cols // 4, 4)), axis=2)
    return (order < 2).reshape(rows, cols)


def stored(dtype: str, dense: NDArray[Any], mask: NDArray[np.bool_], *, is_24: bool) -> Tensors:
    """What compressed-tensors stores of a matrix, under the name `a`."""
    rows, cols = mask.shape
    values = dense[mask].tobytes()
    bits = np.packbits(mask, axis=1, bitorder="little")
    counts = mask.sum(axis=1)
    shape = struct.pack("<2q", rows, cols)
    if is_24:
        return {
            "a.bitmask": ("U8", bits.shape, bits.tobytes()),
            "a.compressed": (dtype, (rows, cols // 2), values),
            "a.shape": ("I64", (2, 1), shape),
        }
    starts = (np.cumsum(counts) - counts).astype("<i8").tobytes()
    return {
        "a.weight.bitmask": ("U8", bits.shape, bits.tobytes()),
        "a.weight.compressed": (dtype, (int(counts.sum()),), values),
        "a.weight.row_offsets": ("I64", (rows,), starts),
        "a.weight.shape": ("I64", (2,), shape),
    }


@pytest.fixture(params=["whole", "in pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expand rows together, or some columns at a time."""
    if request.param == "in pieces":
        monkeypatch.setattr(expanded, "_AT_ONCE", 24)
        monkeypatch.setattr(expanded, "_MASK_AT_ONCE", 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 4), (3, 20), (7, 136), (40, 72)], ids=str)
def test_two_of_four(
    dtype: str, shape: tuple[int, int], rng: np.random.Generator, pieces: None
) -> None:
    mask = two_of_four(rng, *shape)
    dense = random_dense(rng, DTYPES[dtype], mask)
    model = an.parse(safetensors_bytes(stored(dtype, dense, mask, is_24=True)))
    assert model["a.weight"].numpy(None).shape == shape
    again = an.parse(model.remember_to_bytes())
    assert again["a.weight"].parts[0].dtype.name == dtype
    assert again["a.weight"].parts[0].read() == dense.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [0, 0.1, 0.6, 1])
def test_any_number(dtype: str, share: float, rng: np.random.Generator, pieces: None) -> None:
    mask = rng.random((23, 77)) < share
    dense = random_dense(rng, DTYPES[dtype], mask)
    model = an.parse(safetensors_bytes(stored(dtype, dense, mask, is_24=False)))
    again = an.parse(model.remember_to_bytes())
    assert again["a.weight"].parts[0].read() == dense.tobytes()


@pytest.mark.parametrize("is_24", [True, False])
@pytest.mark.parametrize("codes", ["F8_E4M3", "I8"])
def test_quantised(codes: str, is_24: bool, rng: np.random.Generator, small_bands: None) -> None:
    """What is read is what the same matrix gives that is stored dense."""
    dtype = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "I8": np.int8}[codes]
    mask = two_of_four(rng, 33, 80) if is_24 else rng.random((33, 83)) < 0.5
    dense = random_dense(rng, dtype, mask)
    scale = ("BF16", (33, 1), rng.normal(size=33).astype(ml_dtypes.bfloat16).tobytes())
    config = {"gptq_quant_method": "compressed-tensors"}
    beside = {"a.weight_scale": scale}
    if codes == "I8":
        zeros = rng.integers(-128, 127, 33, np.int8).tobytes()
        beside["a.weight_zero_point"] = ("I8", (33, 1), zeros)
    as_dense = {"a.weight": (codes, mask.shape, dense.tobytes()), **beside}
    sparse = {**stored(codes, dense, mask, is_24=is_24), **beside}
    for level in supported_levels():
        made = [
            an.parse(safetensors_bytes(tensors, config)).remember_to_bytes(level=level)
            for tensors in (as_dense, sparse)
        ]
        assert made[0] == made[1], level


def test_inspect_and_remember(tmp_path: Path, rng: np.random.Generator) -> None:
    mask = two_of_four(rng, 8, 16)
    dense = random_dense(rng, ml_dtypes.bfloat16, mask)
    source = tmp_path / "model"
    write_safetensors(source / "model.safetensors", stored("BF16", dense, mask, is_24=True))
    section = {"quant_method": "compressed-tensors", "sparsity_config": {"format": "x"}}
    (source / "config.json").write_text(json.dumps({"quantization_config": section}))
    with an.parse(source) as model:
        assert "sparse BF16" in str(model.inspect())
        model.remember(tmp_path / "out")
    assert "quantization_config" not in json.loads((tmp_path / "out/config.json").read_text())
    with an.parse(tmp_path / "out") as model:
        assert model["a.weight"].scheme == "BF16"


# --- what is wrong ----------------------------------------------------------------------------


def whole(*, is_24: bool) -> Tensors:
    mask = np.tile(np.array([1, 0, 0, 1], bool), (3, 4))
    return stored("BF16", mask.astype(ml_dtypes.bfloat16), mask, is_24=is_24)


def offsets(*starts: int) -> Entry:
    return "I64", (len(starts),), struct.pack(f"<{len(starts)}q", *starts)


# What is changed or taken away, and what the error says.
WRONG: dict[str, tuple[bool, dict[str, Entry | None], str]] = {
    "no shape": (True, {"a.shape": None}, r"a.compressed .* has no a.shape"),
    "no mask": (True, {"a.bitmask": None}, "a part of a quantised weight"),
    "no values": (True, {"a.compressed": None}, "a part of a quantised weight"),
    "no offsets": (False, {"a.weight.row_offsets": None}, "two of every four of 3 x 16"),
    "the weight as well": (True, {"a.weight": ("BF16", (1,), bytes(2))}, "stored as well"),
    "a scale": (True, {"a.weight_scale": ("F32", (3, 1), bytes(12))}, "no dtype of codes"),
    "a shape of three": (
        True,
        {"a.shape": offsets(3, 16, 1)},
        r"a.shape is I64 \[3\]; I64 \[2\] is expected",
    ),
    "no rows": (True, {"a.shape": offsets(0, 16)}, "0 x 16 is no shape of a matrix"),
    "negative columns": (True, {"a.shape": offsets(3, -16)}, "3 x -16 is no shape of"),
    "more columns": (
        True,
        {"a.shape": offsets(3, 2**62)},
        r"a.bitmask is U8 \[3, 2\]; U8 \[3, 576460752303423488\] is expected",
    ),
    "a mask of numbers": (True, {"a.bitmask": ("I8", (3, 2), bytes(6))}, r"is expected"),
    "values of other rows": (
        True,
        {"a.compressed": ("BF16", (2, 8), bytes(32))},
        "two of every four of 3 x 16 is expected",
    ),
    "values of 4 bits": (True, {"a.compressed": ("F4", (3, 8), bytes(12))}, "dtype of whole bytes"),
    "offsets of other rows": (False, {"a.weight.row_offsets": offsets(0, 8)}, r"I64 \[3\] is exp"),
    "more values than places": (
        False,
        {"a.weight.compressed": ("BF16", (49,), bytes(98))},
        r"\[at most 48\] is expected",
    ),
}

# The same, found when the values are read.
FALSE: dict[str, tuple[bool, dict[str, Entry | None], str]] = {
    "too few ones": (
        True,
        {"a.bitmask": ("U8", (3, 2), b"\x99\x99\x99\x89\x99\x99")},
        "a.bitmask: row 1 has 7 ones, but 8 values are stored for it",
    ),
    "too many ones": (
        True,
        {"a.bitmask": ("U8", (3, 2), b"\x99\x99\x99\x99\x99\x9b")},
        "a.bitmask: row 2 has 9 ones, but 8 values",
    ),
    "offsets that fall": (
        False,
        {"a.weight.row_offsets": offsets(0, 8, 7)},
        "row_offsets: row 1 would have the values 8 to 7 of 24, in 16 columns",
    ),
    "an offset behind the end": (
        False,
        {"a.weight.row_offsets": offsets(0, 8, 2**62)},
        "row 1 would have the values 8 to 4,611,686,018,427,387,904 of 24",
    ),
    "a negative offset": (False, {"a.weight.row_offsets": offsets(-1, 8, 16)}, "values -1 to 8"),
    "a late beginning": (False, {"a.weight.row_offsets": offsets(1, 8, 16)}, "values 1 to 8 of"),
    "values left over": (
        False,
        {"a.weight.compressed": ("BF16", (25,), bytes(50))},
        "a.weight.bitmask: row 2 has 8 ones, but 9 values",
    ),
    "an offset of another row": (
        False,
        {"a.weight.row_offsets": offsets(0, 7, 16)},
        "a.weight.bitmask: row 0 has 8 ones, but 7 values",
    ),
}


def changed(is_24: bool, changes: dict[str, Entry | None]) -> bytes:
    tensors = {**whole(is_24=is_24), **changes}
    return safetensors_bytes({k: v for k, v in tensors.items() if v is not None})


@pytest.mark.parametrize("case", WRONG)
def test_is_refused(case: str) -> None:
    is_24, changes, message = WRONG[case]
    data = changed(is_24, changes)
    with pytest.raises(an.AnamnesisError, match=message) as refused:
        an.parse(data).remember_to_bytes()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("case", FALSE)
def test_is_found_false(case: str, pieces: None) -> None:
    is_24, changes, message = FALSE[case]
    data = changed(is_24, changes)
    with pytest.raises(an.ParseError, match=message) as refused:
        an.parse(data).remember_to_bytes()
    assert "\n" not in str(refused.value)
    assert refused.value.offset is not None


def test_two_weights_of_one_name() -> None:
    """One in another encoding, which has another name for its parts."""
    marlin = {"a.B": ("I32", (1, 128), bytes(512)), "a.s": ("F16", (1, 64), bytes(128))}
    model = an.parse(safetensors_bytes({**whole(is_24=True), **marlin}))
    assert set(model.problems) == set(model.stored)
    with pytest.raises(an.UnsupportedError, match=r"a\.B holds codes of a\.weight, but there"):
        model.remember_to_bytes()


def test_a_dtype_that_a_format_has_not(tmp_path: Path) -> None:
    """It has no tensor of its own name to say so of."""
    mask = np.ones((8, 8), np.bool_)
    tensors = stored("I8", np.ones((8, 8), np.int8), mask, is_24=False)
    tensors["a.weight.compressed"] = ("BOOL", *tensors["a.weight.compressed"][1:])
    model = an.parse(safetensors_bytes(tensors))
    with pytest.raises(an.UnsupportedError, match="BOOL, which gguf cannot store"):
        model.convert(tmp_path / "out.gguf", "gguf")
