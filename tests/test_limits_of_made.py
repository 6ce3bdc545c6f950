"""What a call makes is held against the limits by the figure that `inspect` gives, to the byte."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTypeLike
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import Entry, safetensors_bytes

Make = Callable[[an.Model, DTypeLike], object]

N = 4096
MIXED: dict[str, Entry] = {
    "a.weight": ("F8_E4M3", (N, 4), b"\x38" * 4 * N),
    "a.weight_scale": ("F32", (1,), np.float32(2).tobytes()),
    "a.input_scale": ("F32", (1,), np.float32(2).tobytes()),
    "b.weight": ("F8_E4M3", (N,), b"\x38" * N),
    "norm": ("F32", (N,), bytes(4 * N)),
    "ids": ("I64", (N,), bytes(8 * N)),
    "empty": ("BF16", (0, 4), b""),
}


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


INPUTS = {
    "mixed": safetensors_bytes(MIXED),
    "one": safetensors_bytes({"w": ("F32", (N,), bytes(4 * N))}),
    "npz": npz(a=np.zeros(9 * N, np.float32), b=np.zeros((2, N), np.float64)),
    "gguf": gguf_bytes(tensors={"w": Tensor((N,), 2, bytes(N // 32 * 18))}),
    "nothing": safetensors_bytes({}),
}


def to_nothing(model: an.Model, dtype: DTypeLike) -> object:
    """Hand out each weight, and let go of it."""
    return model.remember(lambda name, array: None, dtype)


ALL_AT_ONCE: dict[str, Make] = {
    "remember_to_bytes": lambda model, dtype: model.remember_to_bytes(dtype),
    "state_dict": lambda model, dtype: model.state_dict(dtype),
}
ONE_BY_ONE: dict[str, Make] = {
    "remember": to_nothing,
    "numpy": lambda model, dtype: [tensor.numpy(dtype) for tensor in model.values()],
}


@pytest.fixture(params=INPUTS)
def raw(request: pytest.FixtureRequest) -> bytes:
    return INPUTS[request.param]


def under(raw: bytes, **limits: int) -> Iterator[an.Model]:
    """Yield the model with limits of what is made of it, whatever parsing it takes."""
    with an.parse(raw) as model:
        model._limits = an.ParseLimits(**limits)
        yield model


def refused(raw: bytes, make: Make, dtype: DTypeLike, **limits: int) -> None:
    (limit,) = limits
    for model in under(raw, **limits):
        with pytest.raises(an.LimitExceeded) as raised:
            make(model, dtype)
        assert raised.value.limit == limit


def taken(raw: bytes, make: Make, dtype: DTypeLike, **limits: int) -> None:
    for model in under(raw, **limits):
        make(model, dtype)


def array_sizes(raw: bytes, make: Make, dtype: DTypeLike) -> list[int]:
    """Return the bytes of each array that a call makes without limits."""
    with an.parse(raw) as model:
        if make is to_nothing:
            sizes: list[int] = []
            model.remember(lambda name, array: sizes.append(array.nbytes), dtype)
            return sizes
        if make is ALL_AT_ONCE["state_dict"]:
            return [array.nbytes for array in model.state_dict(dtype).values()]
        return [tensor.numpy(dtype).nbytes for tensor in model.values()]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_bytes_are_held_by_the_figure_of_inspect(raw: bytes, dtype: DTypeLike) -> None:
    made = an.inspect(raw, dtype).n_bytes_out
    for limit in ("max_total_bytes", "max_single_alloc"):
        taken(raw, ALL_AT_ONCE["remember_to_bytes"], dtype, **{limit: made})
        if made:
            refused(raw, ALL_AT_ONCE["remember_to_bytes"], dtype, **{limit: made - 1})


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_state_dict_is_held_whole(raw: bytes, dtype: DTypeLike) -> None:
    make = ALL_AT_ONCE["state_dict"]
    sizes = array_sizes(raw, make, dtype)
    most, total = max(sizes, default=0), sum(sizes)
    taken(raw, make, dtype, max_total_bytes=total, max_single_alloc=most)
    if total:
        refused(raw, make, dtype, max_total_bytes=total - 1)
        refused(raw, make, dtype, max_single_alloc=most - 1)


def test_the_figure_of_inspect_is_that_of_a_state_dict() -> None:
    total = an.inspect(INPUTS["mixed"], "f32").n_bytes_out
    assert total == sum(array_sizes(INPUTS["mixed"], ALL_AT_ONCE["state_dict"], "f32"))


@pytest.mark.parametrize("make", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
@pytest.mark.parametrize("limit", ["max_total_bytes", "max_single_alloc"])
def test_one_array_at_a_time_is_held_alone(raw: bytes, make: Make, limit: str) -> None:
    most = max(array_sizes(raw, make, "f32"), default=0)
    taken(raw, make, "f32", **{limit: most})
    if most:
        refused(raw, make, "f32", **{limit: most - 1})


def test_no_weight_is_handed_out_before_all_are_allowed() -> None:
    small, large = np.zeros(4, np.float32), np.zeros(9999, np.float32)
    seen: list[str] = []
    for model in under(npz(a=small, b=large), max_single_alloc=1000):
        with pytest.raises(an.LimitExceeded, match="tensor 'b'"):
            model.remember(lambda name, array: seen.append(name))
    assert seen == []


def test_what_goes_to_a_file_takes_bands_and_is_not_held(raw: bytes) -> None:
    taken(raw, lambda model, dtype: model.remember(io.BytesIO(), dtype), "f32", max_single_alloc=1)
