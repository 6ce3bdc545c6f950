"""Files of up to 64 KB that are made to cost time or memory: a bomb is files by name, of any size.

Each was a bomb once, or is what would be one if a loop or a check were another. `BOMBS[name](size)`
gives one of about that many bytes; what names the files is part of it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from bombs.made import BOMBS, MOST, Files

__all__ = ["BOMBS", "MOST", "WARM", "Files"]

# Each adds its own.
for _kind in ("pickles", "tensors", "headers", "gguf", "archives", "directories"):
    import_module(f"bombs.{_kind}")

# One of each kind, to import all that the others need.
WARM = (
    *("set-opcode.pth", "many-tensors.pth", "grid.safetensors", "bnb-huge.safetensors"),
    *("qweights.safetensors", "gguf-small.gguf", "gguf-key-strings.gguf", "deflated-tall.npz"),
    *("npy-spaces.npy", "shards", "config-groups", "config-dynamic", "blocks.safetensors"),
)
