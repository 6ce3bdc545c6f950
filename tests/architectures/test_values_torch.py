"""Functions of values give what torch gives, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from anamnesis.architectures import operations as ops
from anamnesis.base.dtypes import DTYPES, OUTPUT_DTYPES
from anamnesis.base.levels import resolve_level
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.arrays import decode
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Weight
from anamnesis.sources.memory import BufferSource

TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plus-one": lambda x: x + 1,
    "minus-one": lambda x: x - 1,
    # In float64, for the last bit of float32's depends on the CPU.
    "minus-exp": lambda x: -torch.exp(x.double()).to(x.dtype),
    "log-of-minus": lambda x: torch.log(-x.double()).to(x.dtype),
}
DTYPE_OF = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def every(dtype: str) -> torch.Tensor:
    """Return all values of 16 bits, or many of 32."""
    if dtype == "F32":
        raw = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint32)
        near = np.random.default_rng(1).uniform(-5, 5, 1 << 18).astype(np.float32)
        return torch.from_numpy(np.concatenate([raw.view(np.float32), near]))
    raw = np.arange(1 << 16).astype(np.uint16)
    return torch.from_numpy(raw.view(np.int16)).view(DTYPE_OF[dtype])


def weight_of(values: torch.Tensor, dtype: str) -> Weight:
    raw = values.view(torch.uint8).numpy().tobytes()
    stored = StoredTensor("w", DTYPES[dtype], tuple(values.shape), len(raw), 0, BufferSource(raw))
    return Plain("w", tuple(values.shape), (stored,))


@pytest.mark.parametrize("dtype", DTYPE_OF)
@pytest.mark.parametrize("function", TORCH)
def test_equal_to_torch(function: str, dtype: str) -> None:
    """Of F16, which llama.cpp's converter leaves as it is, the result is rounded to that."""
    values = every(dtype)
    made = ops.mapped_values(weight_of(values, dtype), "new", function)
    assert made.own_dtype is OUTPUT_DTYPES["f32"]
    got = decode(made, OUTPUT_DTYPES["f32"], None, 1, resolve_level(None))
    given = values if dtype == "F16" else values.float()
    expected = TORCH[function](given).float().numpy()
    same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
    assert same.all()


def test_half_is_as_torch_has_it() -> None:
    values = every("F16")
    made = ops.mapped_values(weight_of(values, "F16"), "new", "minus-exp")
    got = decode(made, OUTPUT_DTYPES["f32"], None, 1, resolve_level(None))
    expected = (-torch.exp(values)).float().numpy()
    assert np.array_equal(got, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "inverse", "values"),
    [("plus-one", "minus-one", range(256)), ("minus-exp", "log-of-minus", [0] * 3)],
)
def test_there_and_back(function: str, inverse: str, values: Sequence[int]) -> None:
    """Where nothing is rounded."""
    weight = weight_of(torch.tensor(values).float(), "F32")
    there = ops.mapped_values(weight, "new", function)
    back = ops.mapped_values(there, "old", inverse)
    got = decode(back, OUTPUT_DTYPES["f32"], None, 1, resolve_level(None))
    assert got.tolist() == list(values)
