"""Trellises of EXL3, from a fuzzer's bytes."""

from __future__ import annotations

from structured import Choices
from structured_parts import Expected, Family, Tensors, bytes_of, numbers, under

__all__ = ["FAMILIES"]

MULTIPLIERS = {"mcg": 0xCBAC1FED - (1 << 32), "mul1": 0x83DCD12D - (1 << 32)}


def exl3(choices: Choices, name: str, told: Expected) -> Tensors:
    """A trellis with scales or signs of both sides, of any codebook, or with another multiplier."""
    bits = choices.pick((3, *range(1, 9), 0, 9))
    tiles = [choices.pick((8, 16, 0, 7)), choices.pick((8, 16, 0, 1))]
    told.say(quant_method="exl3", bits=choices.pick((3.0, 4, 2.25)))
    parts = {"trellis": bytes_of(choices, "I16", [*tiles, 16 * bits])}
    for end, n in zip("uv", tiles, strict=True):
        if choices.below(4) < 3:
            parts[f"s{end}h"] = bytes_of(choices, "F16", [16 * n])
        else:
            parts[f"s{end}"] = bytes_of(choices, "I16", [n])
    marker = choices.pick(("", *MULTIPLIERS))
    if marker:
        parts[marker] = numbers("I32", [MULTIPLIERS[marker] + choices.below(8) // 7], [])
    return under(name, parts)


FAMILIES: tuple[Family, ...] = (exl3,)
