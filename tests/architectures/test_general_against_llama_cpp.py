"""What is recorded of general.* is what llama.cpp's package says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from helpers import general_cases

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ggml_c


def test_recorded(tmp_path: Path) -> None:
    roots = [
        general_cases.write(case, tmp_path / str(i)) for i, case in enumerate(general_cases.CASES)
    ]
    found = general_cases.by_reference(ggml_c.llama_cpp(), roots)
    assert found == json.loads(general_cases.RECORDED.read_text())
