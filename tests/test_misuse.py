"""Arguments of another kind are refused in one line that names the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import safetensors_bytes

PLAIN = safetensors_bytes({"a.weight": ("F32", (2, 2), np.ones((2, 2), "<f4").tobytes())})


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"limits": 5}, TypeError, "limits must be a ParseLimits, not 5"),
        ({"select": 5}, TypeError, "select must be a str, not 5"),
        ({"void_dtype": 7}, TypeError, "void_dtype must be a str, not 7"),
        ({"block_size": "128x128"}, TypeError, "two whole numbers, rows and columns"),
        ({"block_size": (128,)}, TypeError, "two whole numbers, rows and columns"),
        ({"block_size": (1.5, 2)}, TypeError, "two whole numbers, rows and columns"),
        ({"block_size": (0, 0)}, ValueError, "at least 1 by 1"),
        ({"block_size": (-1, 3)}, ValueError, "at least 1 by 1"),
    ],
)
def test_options_of_parse(options: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        an.parse(PLAIN, **options)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"overrides": [("*", "bf16")]}, TypeError, "overrides must be a mapping"),
        ({"rename": [("a", "b")]}, TypeError, "rename must be a mapping"),
        ({"overrides": {"a": None}}, TypeError, "overrides cannot map 'a' to None"),
        ({"overrides": {3: "int4"}}, TypeError, "overrides cannot map 3 to 'int4'"),
        ({"rename": {"a": None}}, TypeError, "rename cannot map 'a' to None"),
        ({"metadata": ["a"]}, TypeError, "metadata must be a mapping"),
        ({"threads": "2"}, TypeError, "threads must be a whole number, not '2'"),
        ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
        ({"split_max_size": "5GB"}, TypeError, "split_max_size must be a whole number"),
        ({"split_max_size": 0}, ValueError, "split_max_size must be at least 1"),
    ],
)
@pytest.mark.parametrize(
    "call", [lambda m, **o: m.plan("gguf", **o), lambda m, **o: m.convert("x.gguf", "gguf", **o)]
)
def test_options_of_convert(
    call: Callable[..., object], options: Any, error: type[Exception], told: str
) -> None:
    with an.parse(PLAIN) as model, pytest.raises(error, match=told):
        call(model, **options)
