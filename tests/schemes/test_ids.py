"""Ids of encodings: where the producer is in a name, and where it is not."""

from __future__ import annotations

import pytest

from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.encodings import ENCODINGS, LAYOUTS, made

ALL = {**ENCODINGS, **LAYOUTS}
FIRST = ("bnb", "mlx", "gptq", "awq", "comfy", "gptoss")
# By the last word, what config.json calls the producer.
METHODS = {"ct": "compressed-tensors", "modelopt": "modelopt", "mistral": None}


def method(name: str) -> str | None:
    return made(ALL[name]).layout.declare(Layers(())).get("quant_method")


@pytest.mark.parametrize("name", [name for name in ALL if name.split("-")[0] not in FIRST])
def test_the_producer_stands_last_unless_it_is_the_usual_one(name: str) -> None:
    usual, _, last = name.rpartition("-")
    if last in METHODS:
        assert usual in ENCODINGS  # the same numbers in the usual layout
        assert method(name) == METHODS[last]
        assert method(usual) != METHODS[last]
    else:
        own = name.startswith(("fp8-block", "fp8-tensor"))  # transformers has a layout of its own
        assert method(name) == ("fp8" if own else "compressed-tensors")
