"""What is recorded of published configs is what llama.cpp's converter says of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from helpers.arch_rows import PUBLISHED

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ggml_c
import record_hf_keys


def test_recorded_keys_are_the_converters() -> None:
    cases = json.loads(PUBLISHED.read_text())
    found = record_hf_keys.recorded({name: case["config"] for name, case in cases.items()})
    assert found == {name: case["keys"] for name, case in cases.items()}, ggml_c.PACKAGE
