"""A byte string is rows and their importance: each encoder of GGUF blocks, at every level alike.

Run `python fuzz/fuzz_encode_ggml.py -max_total_time=60` (needs atheris), or call `check` with
bytes.
"""

from __future__ import annotations

import random
import sys

import numpy as np
from numpy.typing import NDArray

from anamnesis import _core

_HEAD = 6
_ELEMENTS = {row.id: row.elements for row in _core.block_types()}
_BYTES = {row.id: row.bytes for row in _core.block_types()}
_REQUIRED = 2
_LARGEST = 3000  # numbers: some encoders do a million a second

Floats = NDArray[np.float32]


def _numbers(body: bytes, kind: int) -> Floats:
    """Float32 of any bits, or as models have them, or that are often equal or halfway."""
    dtype, unit = (("<f4", 1.0), ("<f2", 1.0), ("<i2", 2.0**-20), ("i1", 0.5))[kind]
    whole = body[: len(body) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize]
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        return np.frombuffer(whole, dtype).astype(np.float32) * np.float32(unit)


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.float32(0))


def _importance(body: bytes, kind: int, cols: int) -> Floats:
    """None, or of any magnitude from 0 on."""
    if kind == 0 or not body:
        return np.empty(0, np.float32)
    return np.resize(np.abs(_finite(_numbers(body, kind))), cols)


def check(data: bytes) -> None:
    """Raise AssertionError if two levels differ."""
    head, body = data[:_HEAD].ljust(_HEAD, b"\0"), data[_HEAD:]
    values = _numbers(body, head[0] % 4)[:_LARGEST]
    if head[1] & 1:  # else of all the bits some are not finite
        values = _finite(values)
    if values.size == 0:
        return
    for kind in _core.ENCODERS.values():
        cols = (head[2] % 11 + 1) * _ELEMENTS[kind]
        rows = min(head[3] % 11 + 1, _LARGEST // cols + 1)
        src = np.resize(values, rows * cols).view(np.uint8)
        needs = _core.encoder_weights(kind) == _REQUIRED
        weights = _importance(body[::-1], head[4] % 4 or int(needs), cols).view(np.uint8)
        found = set()
        for level in _core.supported_levels():
            dst = bytearray(b"\xa5" * (rows * cols // _ELEMENTS[kind] * _BYTES[kind]))
            how = (kind, src, rows, cols, weights, dst, bool(head[5] & 1), _core.LEVELS[level])
            result = _core.encode_blocks(*how)
            found.add((repr(result), b"" if isinstance(result, int) else bytes(dst)))
        assert len(found) == 1, (kind, rows, cols, head)


def _fresh(_: bytes, max_size: int, seed: int) -> bytes:
    """Random bytes of any length: of another's, mutations change little."""
    chance = random.Random(seed)
    return chance.randbytes(chance.randrange(max_size + 1))


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    options = ["-len_control=0", "-max_len=4096", *sys.argv[1:]]
    atheris.Setup([sys.argv[0], *options], check, custom_mutator=_fresh)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
