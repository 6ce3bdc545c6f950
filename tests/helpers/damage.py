"""Files of which some bytes or values are others, so that parsers get beyond their checksums."""

from __future__ import annotations

import io
import json
import pickletools
import random
import struct
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import anamnesis as an

_PUSHES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_TUPLE"),
    *("EMPTY_LIST", "EMPTY_DICT", "BINUNICODE", "BINGET", "LONG_BINGET", "BINFLOAT", "GLOBAL"),
}
# Opcodes that push another value: numbers, None, True, (), [], {}, text, (1,), and what is known.
_OTHERS = (
    *(b"K\x00", b"K\x07", b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\x7f" * 8, b"N", b"\x88", b")"),
    *(b"]", b"}", b"X\x01\0\0\0a", b"K\x01\x85", b"}X\x01\0\0\0aK\x01s", b"h\x00", b"h\x09"),
)
_VALUES: tuple[Any, ...] = (None, True, -1, 0, 10**30, 2.5, "x", [], {}, [1, "a"], {"a": 1}, [None])


def open_damaged(folder: Path, name: str, n_seeds: int = 200) -> None:
    """Read what a folder with a damaged file holds; errors of others than the package come out."""
    raw = (folder / name).read_bytes()
    for seed in range(n_seeds):
        (folder / name).write_bytes(damaged(raw, seed))
        with suppress(an.AnamnesisError, FileNotFoundError), an.parse(folder) as model:
            for tensor in model.stored.values():
                tensor.read()
    (folder / name).write_bytes(raw)


def damaged(raw: bytes, seed: int) -> bytes:
    """Return a file with damage: to pickles in archives, to JSON, or to any bytes."""
    draw = random.Random(seed)
    if draw.random() < 0.3:
        return _bytes(raw, draw)
    if raw.startswith(b"PK"):
        return _archive(raw, draw)
    if raw.startswith(b"{"):
        return json.dumps(_json(json.loads(raw), draw)).encode()
    if raw.startswith(b"\x80"):
        return _pickle(raw, draw)
    n = int.from_bytes(raw[:8], "little")
    header = json.dumps(_json(json.loads(raw[8 : 8 + n]), draw)).encode()
    return struct.pack("<Q", len(header)) + header + raw[8 + n :]


def _archive(raw: bytes, draw: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info, _pickle(data, draw) if info.filename.endswith("data.pkl") else data)
    return out.getvalue()


def _pickle(data: bytes, draw: random.Random) -> bytes:
    """Return a pickle that pushes one or two other values."""
    places = [at for _, _, at in pickletools.genops(data) if at is not None] + [len(data)]
    pushes = [i for i, op in enumerate(pickletools.genops(data)) if op[0].name in _PUSHES]
    for i in sorted(draw.sample(pushes, draw.randint(1, 2)), reverse=True):
        data = data[: places[i]] + draw.choice(_OTHERS) + data[places[i + 1] :]
    return data


def _bytes(raw: bytes, draw: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(draw.randint(1, 4)):
        at, n = draw.randrange(len(data)), draw.randint(0, 9)
        data[at : at + n] = draw.randbytes(draw.choice([0, 1, n]))
    return bytes(data)


def _json(value: Any, draw: random.Random) -> Any:
    """Return a value of which one, however deep, is another."""
    if not isinstance(value, (dict, list)) or not value or draw.random() < 0.1:
        return draw.choice(_VALUES)
    if isinstance(value, list):
        i = draw.randrange(len(value))
        return [*value[:i], _json(value[i], draw), *value[i + 1 :]]
    key = draw.choice(list(value))
    return {**value, key: _json(value[key], draw)}
