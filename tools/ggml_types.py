"""Compare the GGUF types that are read with ggml's: `python tools/ggml_types.py [ggml.h]`.

Without a path the header is that of llama.cpp's master. It fails if ggml has a type that is not
read here, or gives a number another name.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path

from anamnesis.formats.gguf.read import TYPES

HEADER = "https://raw.githubusercontent.com/ggml-org/llama.cpp/master/ggml/include/ggml.h"
# Types of activations, which are in no file.
UNSTORED = {"Q8_1"}


def ggml_types(header: str) -> dict[int, str]:
    """Return the names of `enum ggml_type` by their numbers."""
    enum = re.search(r"enum ggml_type \{(.*?)\};", header, re.DOTALL)
    assert enum, "the header has no enum ggml_type"
    rows = re.findall(r"^\s*GGML_TYPE_(\w+)\s*=\s*(\d+)", enum[1], re.MULTILINE)
    return {int(number): name for name, number in rows if name != "COUNT"}


def differences(header: str) -> list[str]:
    """Return a line for each type of ggml's that is not read as it is."""
    read = {number: dtype.name for number, dtype in TYPES.items()}
    return [
        f"ggml's type {number} is {name}, here it is {read.get(number, 'not read')}"
        for number, name in ggml_types(header).items()
        if name not in UNSTORED and read.get(number) != name
    ]


def main() -> int:
    """Print what differs."""
    if len(sys.argv) > 1:
        header = Path(sys.argv[1]).read_text(encoding="utf-8")
    else:
        with urllib.request.urlopen(HEADER) as response:
            header = response.read().decode()
    found = differences(header)
    print("\n".join(found) or f"all {len(ggml_types(header))} types of ggml's are read as they are")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
