"""safetensors files for hypothesis to draw."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from helpers.handmade import file_bytes
from helpers.safetensors_cases import BITS

_DTYPES = st.sampled_from([*BITS, "F7"])
_DIMS = st.one_of(
    st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.sampled_from([2**32, 2**61, 2**64])
)
_NAMES = st.one_of(st.text(max_size=4), st.sampled_from(["a", "b", "__metadata__", "a.weight"]))
_SCRAPS = st.sampled_from(
    [
        *("{", "}", "[", "]", ",", ":", '"', "\\", "\\u", "\\ud800", "\\ude00", "-", "0", "1", "9"),
        *(".", "e5", " ", "\t", "\n", "\0", "null", "true", "NaN", "[]", "{}", '""', '"a":1,', "é"),
        *('"dtype":"U8",', '"shape":[1],', '"data_offsets":[0,1],', '"__metadata__":{"k":"v"},'),
    ]
)


@st.composite
def tiled(draw: st.DrawFn) -> tuple[str, bytes]:
    """A header and its data, valid but for dims that are too large, unknown dtypes, sub-bytes."""
    header: dict[str, object] = {}
    end = 0
    for name in draw(st.lists(_NAMES, max_size=4, unique=True)):
        dtype = draw(_DTYPES)
        shape = draw(st.lists(_DIMS, max_size=3))
        size = BITS.get(dtype, 8)
        for dim in shape:
            size *= dim
        size = size // 8 if size < 2**20 else 1
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    metadata = draw(st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3)))
    if metadata is not None:
        header["__metadata__"] = metadata
    text = json.dumps(header, ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1)))
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"), bytes(end)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A file with some of its header replaced, doubled, moved or cut, or its data resized."""
    text, data = draw(tiled())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        to = min(len(text), at + draw(st.integers(0, 12)))
        new = draw(st.one_of(_SCRAPS, st.just(text[at:to] * 2), st.text(max_size=2)))
        text = text[:at] + new + text[to:]
    raw = bytearray(text.encode("utf-8", "surrogatepass"))
    if raw and draw(st.integers(0, 9)) == 0:
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    size = max(0, len(data) + draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1, 7])))
    return file_bytes(bytes(raw), bytes(size))
