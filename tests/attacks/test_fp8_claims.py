"""Scales that two weights could claim, and blocks of no size: no assertion may escape."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from exercise import exercise

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes

TWO = struct.pack("<f", 2.0)
CODES = b"\x38"  # 1.0 as F8_E4M3


def fp8(*shape: int) -> Entry:
    return ("F8_E4M3", shape, CODES * int(np.prod(shape)))


def scale(*shape: int) -> Entry:
    return ("F32", shape, TWO * int(np.prod(shape)))


SHARED: dict[str, dict[str, Entry]] = {
    "settled": {"x": fp8(2, 2), "x_weight": fp8(2, 2), "x_weight_scale": scale()},
    "both ambiguous": {"x": fp8(1, 12), "x_weight": fp8(1, 12), "x_weight_scale": scale(1, 5)},
    "one ambiguous": {"x": fp8(2, 384), "x_weight": fp8(2, 256), "x_weight_scale": scale(1, 2)},
    "inverse": {"x": fp8(1, 12), "x_weight": fp8(1, 12), "x_weight_scale_inv": scale(1, 5)},
    "a scale of 8 bits": {"a": fp8(2, 2), "a_scale": fp8(2), "a_scale_scale": scale()},
    "a chain": {n: fp8(2) for n in ("a", "a_scale", "a_scale_scale", "a_scale_scale_scale")},
    "a marker of 8 bits": {"a.weight": fp8(2), "a.comfy_quant": fp8(2), "a.scaled_fp8": fp8(0)},
    "two scales": {"a.weight": fp8(2), "a.weight_scale": scale(), "a.scale_weight": scale()},
    "named weight": {"weight": fp8(2), "scale": scale(), "weight_scale": scale()},
}


@pytest.mark.parametrize("order", ["forwards", "backwards"])
@pytest.mark.parametrize("name", SHARED)
def test_shared_scale(name: str, order: str) -> None:
    items = list(SHARED[name].items())
    ordered = dict(items if order == "forwards" else items[::-1])
    assert exercise(safetensors_bytes(ordered)) is not None


@pytest.mark.parametrize("first", ["x", "x_weight"])
def test_a_scale_is_that_of_the_longer_name(first: str) -> None:
    """Whichever comes first in the file."""
    names = sorted(("x", "x_weight"), key=lambda n: n != first)
    tensors = {**{n: fp8(2) for n in names}, "x_weight_scale": scale()}
    model = an.parse(safetensors_bytes(tensors))
    assert model["x_weight"].numpy().tolist() == [2.0, 2.0]
    assert model["x"].numpy().tolist() == [1.0, 1.0]


def test_a_scale_is_that_of_the_shorter_name_where_there_is_no_longer() -> None:
    model = an.parse(safetensors_bytes({"x": fp8(2), "x_weight_scale": scale()}))
    assert model["x"].numpy().tolist() == [2.0, 2.0]


EMPTY = {
    "settled and not": {
        "a": fp8(0, 512),
        "a_scale": scale(1, 2),
        "b": fp8(0, 384),
        "b_scale": scale(1, 2),
    },
    "a grid over nothing": {"a": fp8(0, 256), "a_scale": scale(2, 2)},
    "no columns": {"a": fp8(4, 0), "a_scale": scale(2, 1)},
    "no scales": {"a": fp8(0, 256), "a_scale": scale(0, 2)},
    "no matrices": {"a": fp8(0, 4, 4), "a_scale": scale(0, 2, 2)},
}


@pytest.mark.parametrize("name", EMPTY)
def test_blocks_of_empty_weights(name: str) -> None:
    assert exercise(safetensors_bytes(EMPTY[name])) is not None


@pytest.mark.parametrize("block", [(0, 0), (0, 2), (2, 0), (-2, -2)])
def test_block_sizes_that_are_none(block: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="block_size must be at least 1 by 1"):
        an.parse(safetensors_bytes({"a": fp8(2, 4), "a_scale": scale(1, 2)}), block_size=block)


@pytest.mark.parametrize("block", [(2**31, 2), (10**30, 10**30)])
def test_block_sizes_that_none_has(block: tuple[int, int]) -> None:
    tensors = {"a": fp8(2, 4), "a_scale": scale(1, 2)}
    model = an.parse(safetensors_bytes(tensors), block_size=block)
    with pytest.raises(an.ParseError, match="does not fit"):
        model["a"]


@pytest.mark.parametrize(
    "marker",
    [
        *(b"", b"{", b"[1]", b'"format"', b"1", b"null", b'{"format":1}', b'{"format":{}}'),
        *(
            b"[" * 60_000,
            b'{"format":' + b"[" * 500 + b"]" * 500 + b"}",
            b"\xff\xfe",
            b"\0" * 65_537,
        ),
    ],
)
def test_comfy_markers(marker: bytes) -> None:
    tensors = {"a.weight": fp8(2), "a.comfy_quant": ("U8", [len(marker)], marker)}
    model = exercise(safetensors_bytes(tensors))
    assert model is not None
    assert "a.weight" in model.problems
