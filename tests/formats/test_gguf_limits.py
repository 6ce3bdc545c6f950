"""ParseLimits and GGUF: each limit at its boundary, asked before anything is allocated."""

from __future__ import annotations

import pytest

import anamnesis as an
from helpers.gguf_handmade import F32, STRING, U8, Array, Tensor, gguf_bytes

KEYS = {"k": (U8, 1), "tokens": Array(STRING, ["ab"] * 50), "text": (STRING, "x" * 1000)}
RAW = gguf_bytes(KEYS, {"w": Tensor((100,), 0, bytes(400)), "v": Tensor((2,), 24, b"ab")})
N_ITEMS = 3 + 2 + 50


def test_items() -> None:
    an.parse(RAW, limits=an.ParseLimits(max_item_count=N_ITEMS))
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(RAW, limits=an.ParseLimits(max_item_count=N_ITEMS - 1))
    assert raised.value.limit == "max_item_count"


@pytest.mark.parametrize("most", [0, 7, 999])
def test_single_alloc(most: int) -> None:
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(RAW, limits=an.ParseLimits(max_single_alloc=most))
    assert raised.value.limit == "max_single_alloc"


def test_a_small_window_is_enough() -> None:
    with an.parse(RAW, limits=an.ParseLimits(max_single_alloc=1000)) as model:
        assert len(model) == 2
        assert len(model.metadata["text"]) == 1000
        assert model["w"].numpy().nbytes == 400
        with pytest.raises(an.LimitExceeded, match="the value of tokens"):
            model.metadata["tokens"]


def test_total() -> None:
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(RAW, limits=an.ParseLimits(max_total_bytes=1000))
    assert raised.value.limit == "max_total_bytes"
    an.parse(RAW, limits=an.ParseLimits(max_total_bytes=10_000))


def test_arrays_cost_nothing_before_they_are_asked_for() -> None:
    raw = gguf_bytes({"t": Array(STRING, ["ab"] * 100_000), "f": Array(F32, [0.0] * 100_000)})
    limits = an.ParseLimits(max_total_bytes=400_000)
    model = an.parse(raw, limits=limits)
    for key in model.metadata:
        with pytest.raises(an.LimitExceeded):
            model.metadata[key]
        assert len(an.parse(raw).metadata[key]) == 100_000
