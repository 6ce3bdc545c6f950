"""Packed integers that are moved from one layout to another: which bytes that makes."""

from __future__ import annotations

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import Entry
from helpers.repacks import EIGHTS, RNG, Q, S, Z, awq, check, entry, gptq, int4, repacked, words

pytestmark = pytest.mark.usefixtures("small_bands")

INT4 = {"int4": int4(), "gptq-4bit": gptq(), "awq-4bit": awq()}


@pytest.mark.parametrize("target", INT4)
@pytest.mark.parametrize("source", INT4)
def test_words(source: str, target: str) -> None:
    check(INT4[source], target, INT4[target])


@pytest.mark.parametrize("has_listed", [True, False])
def test_words_of_8_bits(has_listed: bool) -> None:
    """They stay as they are, and get a list of groups if there is none."""
    ours = {
        "a.qweight": entry("I32", RNG.integers(0, 2**31, (16, 32), np.int32)),
        "a.qzeros": entry("I32", RNG.integers(0, 2**31, (2, 8), np.int32)),
        "a.scales": entry("F16", S.T.copy()),
    }
    listed = entry("I32", np.arange(64, dtype=np.int32) // 32)
    wanted = {**ours, "a.g_idx": listed}
    check(wanted if has_listed else ours, "gptq-8bit", wanted)


@pytest.mark.parametrize(
    ("target", "want"), [("gptq-4bit", gptq(EIGHTS)), ("awq-4bit", awq(EIGHTS))]
)
def test_symmetric_words(target: str, want: dict[str, Entry]) -> None:
    check(int4(zeros=False), target, want)


def test_act_order() -> None:
    listed = RNG.permutation(np.arange(64, dtype=np.int32) // 32)
    ours, theirs = int4(listed=listed), gptq(listed=listed)
    check(ours, "gptq-4bit", theirs)
    check(theirs, "int4", ours)
    with pytest.raises(an.UnsupportedError, match="groups are in act-order, which AWQ has not"):
        repacked(ours, "awq-4bit")


def test_what_gptq_and_awq_cannot_hold() -> None:
    zero = {**int4(), "a.weight_zero_point": entry("I32", words(0 * Z.T).T.copy())}
    with pytest.raises(an.UnsupportedError, match="a zero point is 0, which has no place"):
        repacked(zero, "gptq-4bit")
    check(zero, "awq-4bit", awq(0 * Z))
    borrowed = {**gptq(), "a.qzeros": entry("I32", words(0 * Z.T) - np.uint32(0x11111111))}
    check(borrowed, "int4", zero)
    check(borrowed, "awq-4bit", awq(0 * Z))
    finer = np.nextafter(S.astype("f4"), np.float32(9))
    for dtype, scales in (("BF16", S.view("u2") // 2), ("F32", finer)):
        other = {**int4(), "a.weight_scale": entry(dtype, scales)}
        with pytest.raises(an.UnsupportedError, match=f"its scales are {dtype}, and F16 in AWQ"):
            repacked(other, "awq-4bit")
    rows = {k: v for k, v in int4(zeros=False).items() if k != "a.weight_shape"}
    rows |= {
        "a.weight_packed": entry("I32", words(Q)[:31]),
        "a.weight_scale": entry("F16", S[:31]),
        "a.weight_shape": entry("I64", np.array([31, 64])),
    }
    with pytest.raises(an.UnsupportedError, match="must be multiples of 8 in GPTQ"):
        repacked(rows, "gptq-4bit")
