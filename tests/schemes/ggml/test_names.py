"""Layers of any number in a name are no exception but a name without one."""

from __future__ import annotations

from anamnesis.schemes.families.ggml.header import in_order, without_layers


def test_numbers_of_any_length() -> None:
    long = f"blk.{'1' * 5000}.ffn_up.weight"
    assert in_order(["blk.1.a", long, "output"]) == ["output", "blk.1.a", long]
    assert without_layers([long, "blk.0.a"], [0]) == ({long: long}, 0)
