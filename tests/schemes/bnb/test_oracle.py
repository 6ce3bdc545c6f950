"""Checkpoints as bitsandbytes packs them and what it makes of them, run here."""

from __future__ import annotations

from typing import Any

import bitsandbytes.functional as library
import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load

import anamnesis as an
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import bnb
from helpers.bnb_cases import (
    BLOCKS,
    HAS_AVX512,
    KINDS,
    Tensors,
    packed,
    packed_int8,
    portably_unpacked,
    real_weight,
    real_weights,
    unpacked,
    unpacked_int8,
)
from helpers.fp8_layouts import OUTPUTS, entry, quiet, raw_bytes
from helpers.handmade import safetensors_bytes


def remembered(tensors: Tensors, output: Any) -> torch.Tensor:
    """The one weight, the same at all levels."""
    with an.parse(safetensors_bytes({k: entry(v) for k, v in tensors.items()})) as model:
        assert not model.problems
        results = [
            load(model.remember_to_bytes(output, level=level))["a.weight"]
            for level in supported_levels()
        ]
    assert len({raw_bytes(result) for result in results}) == 1
    return results[0]


def assert_remembered(tensors: Tensors, expected: torch.Tensor, output: Any) -> None:
    found = remembered(tensors, output)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert raw_bytes(found) == quiet(expected)


def both_nibbles(codes: torch.Tensor) -> torch.Tensor:
    return torch.stack((codes >> 4, codes & 15), -1).reshape(-1)


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_four_bits(kind: str, block: int, double: bool, output: Any) -> None:
    tensors = packed(real_weight(), quant_type=kind, blocksize=block, compress_statistics=double)
    assert len(tensors) == (6 if double else 4)
    assert_remembered(tensors, unpacked(tensors, output), output)


@pytest.mark.parametrize("kind", KINDS)
def test_the_librarys_two_codes_agree(kind: str) -> None:
    """Where rows are whole blocks, but for the sign of FP4's zero, which AVX-512 code forgets."""
    codes, state = library.quantize_4bit(real_weight(), quant_type=kind, blocksize=64)
    native, portable = library.dequantize_4bit(codes, state), portably_unpacked(codes, state)
    if HAS_AVX512 and kind == "fp4":
        native, portable = native + 0.0, portable + 0.0
    assert raw_bytes(native) == raw_bytes(portable)


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("kind", KINDS)
def test_every_matrix_of_a_model(kind: str) -> None:
    assert len(real_weights()) >= 30
    for weight in real_weights().values():
        some = weight[:512].contiguous()
        tensors = packed(some, quant_type=kind, compress_statistics=True)
        assert_remembered(tensors, unpacked(tensors, "bf16"), "bf16")


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("shape", [(1, 64), (64, 1), (3, 50), (5, 7, 6), (130,), (1,), (0, 64)])
@pytest.mark.parametrize("kind", KINDS)
def test_shapes(kind: str, shape: tuple[int, ...]) -> None:
    """Rows that are no whole blocks, and sizes that are no whole bytes."""
    n = int(np.prod(shape))
    tensors = packed(real_weight().reshape(-1)[:n].reshape(shape), quant_type=kind)
    expected = unpacked(tensors, "f32").reshape(shape)
    if shape[-1] % 2:  # bitsandbytes has other code for those, which forgets the sign of FP4's zero
        nibbles = both_nibbles(tensors["a.weight"])[:n].reshape(shape)
        expected = torch.where((nibbles == 8) & (expected == 0), -0.0, expected)
    assert_remembered(tensors, expected, "f32")


@pytest.mark.parametrize("storage", [torch.uint8, torch.bfloat16, torch.float16, torch.float32])
def test_quant_storage(storage: torch.dtype) -> None:
    tensors = packed(real_weight(), quant_type="nf4", quant_storage=storage)
    assert tensors["a.weight"].dtype == storage
    assert_remembered(tensors, unpacked(tensors, "bf16"), "bf16")


def test_a_row_of_bytes() -> None:
    """Weights of old checkpoints lie in [1, n / 2]; the shape is that of the quant_state."""
    tensors = packed(real_weight(), quant_type="nf4")
    expected = unpacked(tensors, "bf16")
    tensors["a.weight"] = tensors["a.weight"].reshape(1, -1)
    assert_remembered(tensors, expected, "bf16")


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("absmax", [torch.float16, torch.bfloat16])
def test_absmax_of_16_bits(absmax: torch.dtype) -> None:
    tensors = packed(real_weight(), quant_type="nf4")
    tensors["a.weight.absmax"] = tensors["a.weight.absmax"].to(absmax)
    assert_remembered(tensors, unpacked(tensors, "f32"), "f32")


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_absmax_of_any_bits(kind: str, output: Any, rng: np.random.Generator) -> None:
    """Negative, subnormal, infinite, NaN: as the library's kernel has them, signs included."""
    n = 65_536
    tensors = packed(torch.zeros(n // 64, 64), quant_type=kind)
    tensors["a.weight"] = torch.from_numpy(rng.integers(0, 256, (n // 2, 1), np.uint8))
    raw = torch.from_numpy(rng.integers(0, 256, 4 * n // 64, np.uint8)).view(torch.float32)
    tensors["a.weight.absmax"] = raw
    assert_remembered(tensors, unpacked(tensors, output), output)


def test_nested_absmax_of_any_bits(rng: np.random.Generator) -> None:
    n = 65_536 * 4
    tensors = packed(torch.ones(n // 64, 64), quant_type="nf4", compress_statistics=True)
    tensors["a.weight"] = torch.from_numpy(rng.integers(0, 256, (n // 2, 1), np.uint8))
    tensors["a.weight.absmax"] = torch.from_numpy(rng.integers(0, 256, n // 64, np.uint8))
    nested = tensors["a.weight.nested_absmax"]
    raw = torch.from_numpy(rng.integers(0, 256, nested.nbytes, np.uint8)).view(torch.float32)
    tensors["a.weight.nested_absmax"] = torch.where(torch.arange(len(raw)) % 3 == 0, raw, nested)
    assert_remembered(tensors, unpacked(tensors, "f32"), "f32")


def test_signs_of_fp4() -> None:
    """Each value has the sign of its nibble, zeros too: an encoder can give the nibbles again."""
    tensors = packed(real_weight(384), quant_type="fp4")
    nibbles = both_nibbles(tensors["a.weight"])
    found = remembered(tensors, "bf16").reshape(-1)
    assert torch.equal(found.signbit(), nibbles >= 8)
    assert torch.equal(found == 0, nibbles % 8 == 0)
    assert (nibbles == 8).any()


# --- INT8 -----------------------------------------------------------------------------------------


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("output", OUTPUTS)
def test_int8(output: Any) -> None:
    for weight in real_weights().values():
        tensors = packed_int8(weight[:256].contiguous())
        assert_remembered(tensors, unpacked_int8(tensors, output), output)


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("shape", [(512, 256), (300, 33), (1, 1), (70, 1), (3, 100_000)])
def test_int8_of_any_bits(output: Any, shape: tuple[int, int], rng: np.random.Generator) -> None:
    codes = torch.from_numpy(rng.integers(-128, 128, shape, np.int8))
    raw = torch.from_numpy(rng.integers(0, 256, 4 * shape[0], np.uint8)).view(torch.float32)
    tensors = {"a.weight": codes, "a.SCB": raw}
    assert_remembered(tensors, unpacked_int8(tensors, output), output)


# --- in memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("level", supported_levels())
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.usefixtures("small_bands")
def test_arrays_of_four_bits(double: bool, level: Any, output: Any) -> None:
    tensors = packed(real_weight(33), quant_type="nf4", blocksize=128, compress_statistics=double)
    arrays = {k.removeprefix("a.weight").lstrip("."): v.numpy() for k, v in tensors.items()}
    told: dict[str, Any] = {}
    if double:
        state = library.QuantState.from_dict(
            {k: v for k, v in tensors.items() if k != "a.weight"}, torch.device("cpu")
        )
        told = {
            "nested_absmax": arrays["nested_absmax"],
            "nested_quant_map": arrays["nested_quant_map"],
            "nested_offset": float(state.offset),
        }
    found = bnb.dequantize_4bit(
        arrays[""],
        arrays["absmax"],
        arrays["quant_map"],
        shape=(33, 384),
        blocksize=128,
        dtype=output,
        level=level,
        threads=2,
        **told,
    )
    assert found.tobytes() == raw_bytes(unpacked(tensors, output))


@pytest.mark.parametrize("block", [1, 2, 3, 7, 33, 48, 64, 100, 5000])
@pytest.mark.usefixtures("small_bands")
def test_blocks_that_the_library_has_not(block: int, rng: np.random.Generator) -> None:
    """Bands begin anywhere in a block; the library's own arithmetic, outside of its checks."""
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute

    n = 4321
    codes = rng.integers(0, 256, (n + 1) // 2, np.uint8)
    absmax = rng.uniform(0.1, 2, -(-n // block)).astype(np.float32)
    codebook = rng.uniform(-1, 1, 16).astype(np.float32)
    expected = _dequantize_4bit_compute(
        *map(torch.from_numpy, (codes, absmax, codebook)), block, (n,), torch.float32
    )
    for level in supported_levels():
        found = bnb.dequantize_4bit(
            codes, absmax, codebook, shape=(n,), blocksize=block, dtype="f32", level=level
        )
        assert found.tobytes() == raw_bytes(expected)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.usefixtures("small_bands")
def test_arrays_of_int8(output: Any) -> None:
    tensors = packed_int8(real_weight(17))
    arrays = [tensors[f"a.{name}"].numpy() for name in ("weight", "SCB")]
    for level in supported_levels():
        found = bnb.dequantize_int8(*arrays, dtype=output, level=level)
        assert found.tobytes() == raw_bytes(unpacked_int8(tensors, output))


def test_out_is_written_and_returned() -> None:
    codes, scb = np.ones((2, 3), np.int8), np.full(2, 127, np.float32)
    out = np.zeros((2, 3), ml_dtypes.bfloat16)
    assert bnb.dequantize_int8(codes, scb, out=out) is out
    assert (out == 1).all()


FOUR_BIT: dict[str, Any] = {
    "weight": np.zeros(64, np.uint8),
    "absmax": np.ones(2, np.float32),
    "quant_map": np.zeros(16, np.float32),
    "shape": (2, 64),
}
NESTED: dict[str, Any] = {
    "absmax": np.ones(2, np.uint8),
    "nested_absmax": np.ones(1, np.float32),
    "nested_quant_map": np.ones(256, np.float32),
}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"shape": (2, 65)}, ValueError, r"weight of 64 bytes .* 130 values .* \[2, 65\]"),
        ({"shape": (-2, -64)}, ValueError, "shape must be at least 0"),
        ({"absmax": np.ones(3, np.float32)}, ValueError, r"absmax of shape \[3\] .* 64 need 2"),
        ({"blocksize": 32}, ValueError, r"absmax of shape \[2\] .* blocks of 32 need 4"),
        ({"blocksize": 0}, ValueError, "must be positive, not 0"),
        ({"quant_map": np.zeros(15, np.float32)}, ValueError, r"quant_map of shape \[15\] .* 16"),
        ({"quant_map": np.zeros(16, np.float16)}, TypeError, "quant_map has dtype float16"),
        ({"absmax": np.ones(2, np.uint8)}, TypeError, "absmax has dtype uint8"),
        ({"weight": np.zeros(64, np.int16)}, TypeError, "weight has dtype int16"),
        ({**NESTED, "absmax": np.ones(2, np.float32)}, TypeError, "absmax has dtype float32"),
        ({**NESTED, "nested_quant_map": None}, ValueError, "one of them is missing"),
        ({**NESTED, "nested_blocksize": 1}, ValueError, r"nested_absmax of shape \[1\] .* need 2"),
        ({**NESTED, "nested_blocksize": -1}, ValueError, "must be positive"),
        ({**NESTED, "nested_quant_map": np.ones(16, np.float32)}, ValueError, "need 256"),
        ({"dtype": "int8"}, ValueError, "output dtype"),
        ({"out": np.zeros((2, 63), ml_dtypes.bfloat16)}, ValueError, r"\(2, 63\).*\(2, 64\)"),
    ],
)
def test_refuses_arrays(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    assert bnb.dequantize_4bit(**FOUR_BIT).shape == (2, 64)
    assert bnb.dequantize_4bit(**{**FOUR_BIT, **NESTED}).shape == (2, 64)
    with pytest.raises(error, match=message):
        bnb.dequantize_4bit(**{**FOUR_BIT, **changes})


@pytest.mark.parametrize(
    ("weight", "scb", "error", "message"),
    [
        (
            np.zeros((2, 3), np.int8),
            np.ones(3, np.float32),
            ValueError,
            r"\[3\] .* \[2, 3\] need 2",
        ),
        (np.zeros((2, 3), np.uint8), np.ones(2, np.float32), TypeError, "weight has dtype uint8"),
        (np.zeros((2, 3), np.int8), np.ones(2, np.float16), TypeError, "scb has dtype float16"),
        (np.zeros(6, np.int8), np.ones(6, np.float32), ValueError, r"\[6\] is not a matrix"),
    ],
)
def test_refuses_int8(weight: Any, scb: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bnb.dequantize_int8(weight, scb)


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_another_codebook_is_refused(kind: str, double: bool) -> None:
    """The library reads the file's, and its kernels decode with their own."""
    codes, state = library.quantize_4bit(real_weight(), quant_type=kind)
    want = library.dequantize_4bit(codes, state)
    state.code = state.code.flip(0)
    assert raw_bytes(library.dequantize_4bit(codes, state)) == raw_bytes(want)
    tensors = packed(real_weight(), quant_type=kind, compress_statistics=double)
    other = {**tensors, "a.weight.quant_map": tensors["a.weight.quant_map"].flip(0)}
    with an.parse(safetensors_bytes({k: entry(v) for k, v in other.items()})) as model:
        assert len(model.problems) == len(tensors)
        for error in model.problems.values():
            assert f"a.weight.quant_map is not the codebook of {kind.upper()}" in str(error)
