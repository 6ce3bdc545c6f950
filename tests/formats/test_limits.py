"""ParseLimits: each limit at its boundary, and that it is asked before anything is allocated."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.formats.safetensors.read import SAFETENSORS_MAX_HEADER
from helpers.handmade import Entry, WriteModel, file_bytes, safetensors_bytes, write_index

TENSORS: dict[str, Entry] = {
    "a": ("F32", [8], struct.pack("<8f", *range(8))),
    "b": ("F8_E4M3", [100], bytes(100)),
    "c": ("BOOL", [], b"\1"),
}
RAW = safetensors_bytes(TENSORS, {"k": "v", "l": "w"})
N_HEADER = int.from_bytes(RAW[:8], "little")

FIELDS = ("max_single_alloc", "max_total_bytes", "max_item_count", "max_decompression_ratio")


def exceeded(raw: object, **limits: float) -> an.LimitExceeded:
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(raw, limits=an.ParseLimits(**limits))  # type: ignore[arg-type]
    assert raised.value.limit in limits
    assert raised.value.limit in str(raised.value)
    return raised.value


# --- the object -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [-1, -(2**64), -0.5, float("-inf")])
def test_negative(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must not be negative"):
        an.ParseLimits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", FIELDS)
def test_not_a_number(field: str) -> None:
    """It would compare as false with everything: a limit that never limits."""
    with pytest.raises(ValueError, match=field):
        an.ParseLimits(**{field: float("nan")})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", FIELDS)
def test_zero_and_none(field: str) -> None:
    assert getattr(an.ParseLimits(**{field: 0}), field) == 0
    assert getattr(an.ParseLimits(), field) is None


def test_is_fixed() -> None:
    with pytest.raises(AttributeError):
        an.ParseLimits().max_item_count = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        an.ParseLimits(1)  # type: ignore[call-arg]


# --- boundaries -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["max_single_alloc", "max_total_bytes"])
def test_header_bytes(field: str) -> None:
    assert len(an.parse(RAW, limits=an.ParseLimits(**{field: N_HEADER}))) == 3
    exceeded(RAW, **{field: N_HEADER - 1})
    exceeded(RAW, **{field: 0})


def test_item_count() -> None:
    """Three tensors and two entries of metadata."""
    assert len(an.parse(RAW, limits=an.ParseLimits(max_item_count=5))) == 3
    for most in range(5):
        exceeded(RAW, max_item_count=most)


def test_item_count_stops_at_the_first_too_many() -> None:
    """What follows is not looked at: here, it is not even a header."""
    entries = "".join(f'"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},' for i in range(4))
    raw = file_bytes("{" + entries + "garbage")
    exceeded(raw, max_item_count=3)
    with pytest.raises(an.ParseError):
        an.parse(raw, limits=an.ParseLimits(max_item_count=4))


def test_values_that_mean_nothing_count() -> None:
    """They cost time, if not memory: one tensor, and under a further key five values."""
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":[1,{"y":[]},""]}'
    raw = file_bytes(f'{{"a":{entry}}}')
    assert len(an.parse(raw, limits=an.ParseLimits(max_item_count=6))) == 1
    exceeded(raw, max_item_count=5)


def test_decompression_ratio_means_nothing_here() -> None:
    assert len(an.parse(RAW, limits=an.ParseLimits(max_decompression_ratio=0))) == 3


def test_limits_do_not_widen_the_caps() -> None:
    raw = (SAFETENSORS_MAX_HEADER + 1).to_bytes(8, "little") + b"{}"
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(raw, limits=an.ParseLimits(max_single_alloc=2**62, max_total_bytes=2**62))
    assert raised.value.limit == "SAFETENSORS_MAX_HEADER"


@pytest.mark.parametrize(("name", "dtype", "n_bytes"), [("a", "f32", 32), ("b", "bf16", 200)])
def test_arrays(name: Any, dtype: Any, n_bytes: int) -> None:
    """The size that counts is that of the array, not that of the codes."""
    limits = an.ParseLimits(max_single_alloc=max(n_bytes, N_HEADER))
    assert an.parse(RAW, limits=limits)[name].numpy(dtype).nbytes == n_bytes


def test_arrays_that_are_too_large() -> None:
    n = 1000
    raw = safetensors_bytes({"a": ("F8_E4M3", [n], bytes(n))})
    sizes: dict[Any, int] = {"bf16": 2 * n, "f32": 4 * n}
    for dtype, size in sizes.items():
        limits = an.ParseLimits(max_single_alloc=size - 1)
        with pytest.raises(an.LimitExceeded, match=r"tensor 'a'") as raised:
            an.parse(raw, limits=limits)["a"].numpy(dtype)
        assert raised.value.limit == "max_single_alloc"
        limits = an.ParseLimits(max_single_alloc=size)
        assert an.parse(raw, limits=limits)["a"].numpy(dtype).nbytes == size


def test_config_and_index_count(write_model: WriteModel) -> None:
    path = write_model({"a": TENSORS["a"]})
    n_header = int.from_bytes(path.read_bytes()[:8], "little")
    (path.parent / "config.json").write_text("{}".ljust(1000))
    index = write_index(path.parent, {"a": path.name})
    total = n_header + 1000 + index.stat().st_size
    assert len(an.parse(path.parent, limits=an.ParseLimits(max_total_bytes=total))) == 1
    exceeded(path.parent, max_total_bytes=total - 1)
    exceeded(path.parent, max_single_alloc=999)
    exceeded(path, max_single_alloc=999)  # the config beside a file, too


# --- before allocating ------------------------------------------------------------------------


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A file of 95 MB that takes no room, whose header claims 90 MB of it."""
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write((90_000_000).to_bytes(8, "little") + b"{")
        file.truncate(95_000_000)
    return path


@pytest.mark.parametrize("field", ["max_single_alloc", "max_total_bytes"])
def test_header_is_refused_before_it_is_read(sparse: Path, field: str) -> None:
    assert traced_peak(sparse, **{field: 89_999_999}) < 1_000_000


def test_config_is_refused_before_it_is_read(write_model: WriteModel) -> None:
    path = write_model({"a": TENSORS["a"]})
    with (path.parent / "config.json").open("wb") as file:
        file.truncate(90_000_000)
    assert traced_peak(path, max_single_alloc=1_000_000) < 1_000_000


def traced_peak(where: Path, **limits: float) -> int:
    tracemalloc.start()
    try:
        exceeded(where, **limits)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_array_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    n = 10**9
    header = f'{{"a":{{"dtype":"F8_E4M3","shape":[{n}],"data_offsets":[0,{n}]}}}}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_bytes(header))
    with path.open("ab") as file:
        file.truncate(8 + len(header) + n)
    with an.parse(path, limits=an.ParseLimits(max_single_alloc=n)) as model:
        tracemalloc.start()
        try:
            with pytest.raises(an.LimitExceeded):
                model["a"].numpy()
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


def test_header_of_a_file_that_is_too_short() -> None:
    """A claim of 90 MB in 20 bytes allocates nothing, limits or not."""
    raw = (90_000_000).to_bytes(8, "little") + b"{}".ljust(12)
    tracemalloc.start()
    try:
        with pytest.raises(
            an.ParseError, match="truncated within the header: 20 of at least 90,000,008 bytes"
        ):
            an.parse(raw)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
