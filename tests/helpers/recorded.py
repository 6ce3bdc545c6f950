"""What libraries decoded that are not installed: kept by tools/record_decoders.py."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.handmade import Entry

RECORDED = Path(__file__).parents[1] / "schemes/recorded"


def read(path: Path) -> tuple[dict[str, str], dict[str, Entry]]:
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    told = header.pop("__metadata__")
    data = raw[8 + n :]
    return told, {
        name: (t["dtype"], tuple(t["shape"]), data[slice(*t["data_offsets"])])
        for name, t in header.items()
    }
