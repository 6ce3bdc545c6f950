"""Record what llama.cpp's package says in general.*: `python tools/record_general.py`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import ggml_c

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers import general_cases


def main() -> None:
    """Write the directories, and record the keys of each on a line."""
    with tempfile.TemporaryDirectory() as told:
        cases = enumerate(general_cases.CASES)
        roots = [general_cases.write(case, Path(told) / str(i)) for i, case in cases]
        found = general_cases.by_reference(ggml_c.llama_cpp(), roots)
    lines = ",\n".join(json.dumps(keys) for keys in found)
    general_cases.RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
