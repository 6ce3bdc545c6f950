"""Codes put in order: sizes that do not go together are refused, and nothing else is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anamnesis import _io

CALLS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "GEMV-fast": (_io.order_gemv_fast, [bytes(4 * 64 // 2), 4, 64, bytearray(4 * 64 // 2)]),
    "Marlin": (_io.order_marlin, [bytes(64 * 16), 8, 64, 16, bytearray(64 * 16)]),
    "2:4 sparse Marlin": (
        _io.order_marlin_24,
        [bytes(64 * 32 // 4), b"\x44" * (64 * 32 // 8), 4, 64, 32, bytearray(64 * 32 // 2)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_sizes_that_fit(name: str) -> None:
    call, arguments = CALLS[name]
    call(*arguments)


@pytest.mark.parametrize("name", CALLS)
def test_sizes_that_do_not(name: str) -> None:
    call, arguments = CALLS[name]
    for i, argument in enumerate(arguments):
        others = [argument[:-1], argument + b"\0"] if not isinstance(argument, int) else []
        others += [argument + 1, argument - 1, 2**62, -64] if isinstance(argument, int) else []
        for other in others:
            with pytest.raises(ValueError, match="must"):
                call(*arguments[:i], other, *arguments[i + 1 :])


def test_of_columns_that_are_not_in_order() -> None:
    """The place of the first is told."""
    meta, codes = bytearray(b"\x44" * 256), bytearray(64 * 32 // 2)
    assert _io.order_marlin_24(bytes(512), meta, 4, 64, 32, codes) == 64 * 32
    meta[0] = 0x40  # the first quad of the first row says 0 and 0
    assert _io.order_marlin_24(bytes(512), meta, 4, 64, 32, codes) == 0
