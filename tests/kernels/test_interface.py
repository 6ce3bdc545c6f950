"""What _core refuses, and that it refuses before it touches anything."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from anamnesis import _core
from helpers.kernel_calls import POISON

HUGE = (1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 200)
GOOD: dict[str, Any] = {
    "code": _core.CODES["F8_E4M3"],
    "out": _core.OUTPUTS["BF16"],
    "src": bytes(6 * 10),
    "rows": 6,
    "cols": 10,
    "scales": bytes(4 * 6),
    "scale": _core.SCALES["F32"],
    "scale_stride": 2,
    "block_rows": 2,
    "block_cols": 5,
}


def call(**changes: Any) -> tuple[int, bool]:
    """The result, and whether the destination is untouched; it stays so if there is an error."""
    dst = changes.pop("dst", np.full(120, POISON, np.uint8))
    try:
        return _core.dequantize_scaled(**{**GOOD, "dst": dst, **changes}), False
    except ValueError:
        assert (dst == POISON).all()
        raise


def test_good_call() -> None:
    assert call() == (0, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": bytes(59)}, "src"),
        ({"dst": np.full(119, POISON, np.uint8)}, "dst"),
        ({"scales": bytes(23)}, "scales"),
        ({"scales": b""}, "scales"),
        ({"scale_stride": 1}, "scale_stride"),
        ({"scale_stride": 0}, "scale_stride"),
        ({"scale_stride": 3}, "scales"),
        ({"row_phase": 1}, "scales"),
        ({"col_phase": 1}, "scale_stride"),
        ({"block_rows": 0}, "block"),
        ({"block_cols": 0}, "block"),
        ({"rows": -1}, "rows"),
        ({"cols": -(1 << 100)}, "cols"),
        ({"row_phase": -1}, "row_phase"),
        ({"code": 99}, "dtype"),
        ({"code": -1}, "dtype"),
        ({"out": 1 << 40}, "dtype"),
        ({"scale": len(_core.SCALES)}, "dtype"),
        ({"level": len(_core.LEVELS)}, "level"),
        ({"level": -1}, "level"),
        ({"level": 1 << 70}, "level"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**changes)


@pytest.mark.parametrize("huge", HUGE)
@pytest.mark.parametrize("name", ["rows", "cols", "scale_stride", "row_phase", "col_phase"])
def test_huge_sizes(name: str, huge: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        call(**{name: huge})


@pytest.mark.parametrize("huge", HUGE[:-2])
def test_products_that_overflow(huge: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        call(rows=huge, cols=huge)
    with pytest.raises(ValueError, match=r"."):
        call(rows=(1 << 64) // huge, cols=huge)  # wraps round to nothing, or to one
    with pytest.raises(ValueError, match=r"."):
        call(row_phase=huge, scale_stride=huge)


@pytest.mark.parametrize("huge", HUGE[:-2])
def test_huge_blocks_are_the_whole_tensor(huge: int) -> None:
    one = {"scales": bytes(4), "scale_stride": 1, "block_rows": huge, "block_cols": huge}
    assert call(**one) == (0, False)


@pytest.mark.parametrize("level", _core.supported_levels())
def test_empty(level: str) -> None:
    number = _core.LEVELS[level]
    nothing = {"src": b"", "dst": bytearray(), "scales": b"", "level": number}
    assert _core.dequantize_scaled(**{**GOOD, **nothing, "rows": 0}) == 0
    assert _core.dequantize_scaled(**{**GOOD, **nothing, "cols": 0}) == 0
    assert _core.dequantize_scaled(**{**GOOD, **nothing, "rows": 0, "cols": HUGE[-3]}) == 0
    assert _core.convert(0, 0, b"", bytearray(), level=number) == 0


def test_refuses_a_read_only_destination() -> None:
    with pytest.raises((BufferError, ValueError)):
        call(dst=np.frombuffer(bytes([POISON]) * 120, np.uint8))


def test_convert_refuses() -> None:
    f32, bf16 = _core.FLOATS["F32"], _core.OUTPUTS["BF16"]
    dst = np.full(4, POISON, np.uint8)
    for src_dtype, out, src, message in [
        (f32, bf16, bytes(9), "src"),
        (f32, bf16, bytes(12), "dst"),
        (99, bf16, bytes(8), "dtype"),
        (f32, 99, bytes(8), "dtype"),
        (_core.SCALES["F8_E8M0"], bf16, bytes(2), "dtype"),  # a scale, not a tensor of numbers
    ]:
        with pytest.raises(ValueError, match=message):
            _core.convert(src_dtype, out, src, dst)
    assert (dst == POISON).all()
    assert _core.convert(f32, bf16, bytes(8), dst) == 0


def test_default_level_is_the_best() -> None:
    assert list(_core.LEVELS)[: len(_core.supported_levels())] == list(_core.supported_levels())
    assert list(_core.LEVELS.values()) == list(range(len(_core.LEVELS)))
    assert _core.supported_levels()[0] == "scalar"


@pytest.mark.parametrize("level", _core.supported_levels())
def test_a_level_hides_those_above(level: str) -> None:
    """As on a CPU that lacks them, for calls by number too; what names none of them hides none."""
    code = """if True:
        from anamnesis import _core
        levels = _core.supported_levels()
        print(*levels)
        for number in range(len(_core.LEVELS)):
            try:
                _core.convert(_core.FLOATS["F32"], _core.OUTPUTS["BF16"], b"", bytearray(), number)
            except ValueError as error:
                assert "level" in str(error)
                print(number)
        """
    environment = {**os.environ, "ANAMNESIS_LEVEL": level}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    shown, *hidden = done.stdout.splitlines()
    n = _core.LEVELS[level] + 1
    assert shown.split() == list(_core.LEVELS)[:n]
    assert hidden == [str(number) for number in range(n, len(_core.LEVELS))]


def test_blocks_refuses() -> None:
    q4_0, bf16 = _core.BLOCKS["Q4_0"], _core.OUTPUTS["BF16"]
    dst = np.full(64, POISON, np.uint8)
    for kind, out, src, message in [
        (q4_0, bf16, bytes(17), "src"),
        (q4_0, bf16, bytes(19), "src"),
        (q4_0, bf16, bytes(36), "dst"),
        (q4_0, _core.OUTPUTS["F32"], bytes(18), "dst"),
        (0, bf16, bytes(18), "dtype"),  # F32: no block type
        (4, bf16, bytes(18), "dtype"),  # removed from ggml
        (43, bf16, bytes(18), "dtype"),
        (-1, bf16, bytes(18), "dtype"),
        (1 << 40, bf16, bytes(18), "dtype"),
        (q4_0, 99, bytes(18), "dtype"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.dequantize_blocks(kind, out, src, dst)
    with pytest.raises(ValueError, match="level"):
        _core.dequantize_blocks(q4_0, bf16, bytes(18), dst, level=len(_core.LEVELS))
    assert (dst == POISON).all()
    assert _core.dequantize_blocks(q4_0, bf16, bytes(18), dst) == 0
    assert dst.tobytes() == b"\0\x80" * 32  # (0 - 8) * 0 is -0


@pytest.mark.parametrize("level", _core.supported_levels())
def test_no_blocks(level: str) -> None:
    for kind in _core.BLOCKS.values():
        for out in _core.OUTPUTS.values():
            number = _core.LEVELS[level]
            assert _core.dequantize_blocks(kind, out, b"", bytearray(), number) == 0


ROWS: dict[str, Any] = {
    "type": _core.ENCODERS["Q4_0"],
    "src": np.ones(4 * 128, np.uint8),
    "rows": 2,
    "cols": 64,
    "weights": b"",
}


def encoded(**changes: Any) -> tuple[float, float, float, float] | int:
    """The result; the destination is as it was if there is an error."""
    dst = changes.pop("dst", np.full(4 * 18, POISON, np.uint8))
    try:
        return _core.encode_blocks(**{**ROWS, "dst": dst, **changes})
    except ValueError:
        assert (dst == POISON).all()
        raise


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": np.ones(4 * 127, np.uint8)}, "src"),
        ({"src": np.ones(4 * 128 + 1, np.uint8)[1:]}, "multiples of 4"),
        ({"dst": np.full(4 * 18 - 1, POISON, np.uint8)}, "dst"),
        ({"rows": 3}, "src"),
        ({"rows": 4, "cols": 31}, "src"),  # no whole blocks
        ({"rows": -1}, "rows"),
        ({"cols": 1 << 63, "rows": 1 << 62}, r"."),
        ({"weights": np.ones(4 * 63, np.uint8)}, "weights"),
        ({"weights": np.ones(4 * 65, np.uint8)}, "weights"),
        ({"weights": np.ones(4 * 64 + 1, np.uint8)[1:]}, "multiples of 4"),
        (
            {
                "type": _core.ENCODERS["IQ1_S"],
                "src": np.ones(1024, np.uint8),
                "rows": 1,
                "cols": 256,
            },
            "weights",
        ),
        ({"type": _core.BLOCKS["Q8_1"]}, "dtype"),  # which is never written
        ({"type": -1}, "dtype"),
        ({"type": 1 << 40}, "dtype"),
        ({"level": len(_core.LEVELS)}, "level"),
    ],
)
def test_encode_blocks_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoded(**changes)


@pytest.mark.parametrize("level", _core.supported_levels())
def test_encode_blocks_says_where_what_has_no_code_is(level: str) -> None:
    """A number that is not finite; the first of a block whose scale is not."""
    for at, value, where in ((77, np.nan, 77), (3, -np.inf, 3), (100, 3e38, 96)):
        values = np.ones(128, np.float32)
        values[at] = value
        assert encoded(src=values.view(np.uint8), level=_core.LEVELS[level]) == where
    assert encoded(level=_core.LEVELS[level]) == (0, 0, 0, 0)
    assert encoded(rows=0, src=b"", level=_core.LEVELS[level]) == (0, 0, 0, 0)


PACKED: dict[str, Any] = {
    "packing": _core.PACKINGS["GPTQ4"],
    "out": _core.OUTPUTS["BF16"],
    "codes": bytes(4 * 2 * 8),
    "rows": 8,
    "cols": 10,
    "zeros": bytes(4 * 3),
    "scales": bytes(2 * 8 * 3),
    "scale": _core.SCALES["F16"],
    "zeros_less_one": 1,
    "group_size": 4,
    "first_col": 0,
    "groups": b"",
}


def packed(**changes: Any) -> int:
    """The result; the destination stays untouched if there is an error."""
    dst = changes.pop("dst", np.full(160, POISON, np.uint8))
    try:
        return _core.dequantize_packed(**{**PACKED, "dst": dst, **changes})
    except ValueError:
        assert (dst == POISON).all()
        raise


def listed(*groups: int) -> bytes:
    return np.array(groups, "<i4").tobytes()


def test_good_packed_calls() -> None:
    assert packed() == 0
    assert packed(groups=listed(*[2, 0, 1] * 3, 2)) == 0
    assert packed(groups=listed(*range(3), *[0] * 7), group_size=0) == 0
    assert packed(packing=_core.PACKINGS["AWQ4"], codes=bytes(4 * 10)) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": bytes(63)}, "src"),
        ({"dst": np.full(159, POISON, np.uint8)}, "dst"),
        ({"zeros": bytes(11)}, "zeros"),
        ({"zeros": b""}, "zeros"),
        ({"first_row": 9}, "n_rows"),
        ({"first_row": 4, "n_rows": 4}, "first_row"),
        ({"first_row": 32, "n_rows": 1}, "first_row"),
        ({"first_row": 2**64 - 32, "n_rows": 40}, "first_row"),
        ({"n_rows": 9}, "first_row"),
        ({"n_rows": 2**64 - 1}, "first_row"),
        ({"n_rows": -1}, "n_rows"),
        ({"scales": bytes(47)}, "scales"),
        ({"scale": _core.SCALES["F32"]}, "scales"),
        ({"first_col": 3}, "zeros"),
        ({"group_size": 3}, "zeros"),
        ({"group_size": 0}, "group_size"),
        ({"group_size": -1}, "group_size"),
        ({"first_col": -1}, "first_col"),
        ({"groups": bytes(39)}, "groups"),
        ({"groups": listed(*[0] * 9, 3)}, "groups"),
        ({"groups": listed(*[0] * 9, -1)}, "groups"),
        ({"groups": listed(*[0] * 9, -(1 << 31))}, "groups"),
        ({"groups": listed(*[0] * 9, 2), "scales": bytes(32)}, "groups"),
        ({"packing": _core.PACKINGS["AWQ4"], "rows": 7, "codes": bytes(40)}, "rows"),
        ({"packing": _core.PACKINGS["AWQ4"], "codes": bytes(39)}, "src"),
        ({"packing": _core.PACKINGS["GPTQ8"]}, "src"),
        ({"packing": len(_core.PACKINGS)}, "dtype"),
        ({"out": 99}, "dtype"),
        ({"scale": -1}, "dtype"),
        ({"rows": -1}, "rows"),
        ({"level": len(_core.LEVELS)}, "level"),
    ],
)
def test_packed_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        packed(**changes)


@pytest.mark.parametrize("packing", _core.PACKINGS.values())
@pytest.mark.parametrize("huge", HUGE)
def test_huge_packed_sizes(huge: int, packing: int) -> None:
    for changes in (
        {"rows": huge},
        {"cols": huge},
        {"rows": huge, "cols": huge},
        {"rows": -(-(1 << 64) // huge) * 8, "cols": huge},  # wraps round to almost nothing
        {"cols": huge, "groups": bytes(40)},
    ):
        with pytest.raises(ValueError, match=r"."):
            packed(packing=packing, **changes)


@pytest.mark.parametrize("level", _core.supported_levels())
def test_no_packed_codes(level: str) -> None:
    empty = {"codes": b"", "dst": bytearray(), "zeros": b"", "scales": b""}
    for sizes in ({"rows": 0}, {"cols": 0}, {"rows": 0, "cols": HUGE[-3]}):
        for packing in _core.PACKINGS.values():
            assert packed(**empty, **sizes, packing=packing, level=_core.LEVELS[level]) == 0
