"""No call needs more stack than a thread of musl's has, 128 KiB, half of which is Python's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anamnesis import _core

STACK = 128 << 10

CHILD = """
import sys, threading
from anamnesis import _core

ROWS, COLS, GROUP = {rows}, 4096, 128
OUT, ITEM = _core.OUTPUTS["{out}"], {item}
LEVEL = _core.LEVELS["{level}"]
# A product that is infinite goes by way of the scratch, one that is not the shortest way.
SCALES = [bytes([0, 60]) * ROWS * (COLS // GROUP), bytes([0, 124]) * ROWS * (COLS // GROUP)]
IN_ORDER = b""
LISTED = b"".join((c * 7 % (COLS // GROUP)).to_bytes(4, "little") for c in range(COLS))


def decode():
    for packing in _core.PACKINGS.values():
        words = bytes(ROWS * COLS)
        zeros = bytes(ROWS * (COLS // GROUP))
        dst = bytearray(ROWS * COLS * ITEM)
        for scales in SCALES:
            for groups in (IN_ORDER, LISTED):
                _core.dequantize_packed(
                    packing, OUT, words, dst, ROWS, COLS, zeros, scales, _core.SCALES["F16"],
                    False, GROUP, 0, groups, LEVEL,
                )
    tiles, scales, dst = bytes(16 * 8 * COLS), bytes(2 * COLS), bytearray(128 * COLS * ITEM)
    for code in _core.TRELLISES.values():
        _core.dequantize_trellis(code, OUT, tiles, dst, 8, COLS, scales, scales, level=LEVEL)
    for group in (256, 4096):
        _core.dequantize_rotated(OUT, tiles, dst, 1, COLS, scales, group, LEVEL)
    for kind in _core.ENCODERS.values():
        src, dst = bytes(range(1, 65)) * (4 * COLS // 64), bytearray(4 * COLS)
        _core.encode_blocks(kind, src, 1, COLS, src, dst, True, LEVEL)
        if _core.encoder_weights(kind) != 2:
            _core.encode_blocks(kind, src, 1, COLS, b"", dst, True, LEVEL)
    for source in _core.SOURCES.values():
        _core.compare(bytes(4 * COLS), bytes(4 * COLS), LEVEL, source)  # zeros, by doubles
    print("decoded")


threading.stack_size({stack})
thread = threading.Thread(target=decode)
thread.start()
thread.join()
"""


@pytest.mark.sampled(9)
@pytest.mark.parametrize("level", _core.supported_levels())
@pytest.mark.parametrize(("out", "item"), [("BF16", 2), ("F16", 2), ("F32", 4)])
@pytest.mark.parametrize("is_large", [False, True])
def test_what_takes_most(level: str, out: str, item: int, is_large: bool) -> None:
    rows = _core.STREAMED_BYTES // (4096 * item) if is_large else 64
    child = CHILD.format(rows=rows, out=out, item=item, level=level, stack=STACK)
    done = subprocess.run([sys.executable, "-P", "-c", child], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "decoded\n"), done.stderr
