"""A GGUF file that is written, and read back; see structured_write.py.

An input that starts with `S` takes metadata over from another file, of any version and byte order.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from structured import Choices
from structured_gguf import gguf_file
from structured_write import check_written, model
from traced import fuzz

import anamnesis as an
from anamnesis.formats.gguf.settings import read_setting
from anamnesis.formats.gguf.split import SPLIT_KEYS
from anamnesis.formats.gguf.values import Value, merged, typed

KEYS = ("a", "b", "é", "general.alignment", "tokens", "split.no", "", "\ud800")
VALUES: tuple[Any, ...] = (
    *(
        0,
        1,
        8,
        64,
        -1,
        2**31,
        2**32,
        2**63,
        2**64,
        True,
        0.5,
        1e300,
        float("nan"),
        "",
        "é",
        "\udcff",
    ),
    *("\ud800", None, [], [1, -1], [2**31, 0], [-1, 2**40], [0.5, 1], [True], ["a", ""], [[1]]),
    *({"type": "uint8", "value": 7}, {"type": "int64", "value": [1]}, {"type": "f64", "value": 1}),
    *({"type": "string", "value": []}, {"type": "bool", "value": 1}, {"type": 1, "value": 1}, {}),
    *(b"a", (1, 2), {1}),
)
TOLD = ("7", "true", "1e5", "[1]", "[", "", "-1", "x", "nan", "9" * 30)
KINDS = ("", "uint8:", "int:", "float:", "str:", "bool:", "float64:", "x:", "i16:")


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    choices = Choices(data[1:])
    parts = model(choices, "gguf")
    metadata = {choices.pick(KEYS): choices.pick(VALUES) for _ in range(choices.below(5))}
    with suppress(ValueError):
        key, value = read_setting(f"k={choices.pick(KINDS)}{choices.pick(TOLD)}")
        metadata[key] = value
    if data[:1] == b"S":
        _check_carried(gguf_file(choices))
    with suppress(an.UnsupportedError, an.LimitExceeded):  # too large an alignment
        wanted = merged(metadata)
        raw = check_written("gguf", parts, metadata)
        if raw is not None:
            with an.parse(raw) as read:
                assert {key: typed(value) for key, value in wanted.items()} == wanted
                kept = {key: value for key, value in wanted.items() if key not in SPLIT_KEYS}
                assert _same(merged(read.metadata), kept)


def _same(found: Mapping[str, Value], wanted: Mapping[str, Value]) -> bool:
    return list(found.items()) == list(wanted.items())


def _check_carried(source: bytes) -> None:
    """Whatever a file's metadata are, those of the output are the same."""
    try:
        model = an.parse(source)
    except an.AnamnesisError:
        return
    with model:
        raw = check_written("gguf", [], model.metadata)
        assert raw is not None
        with an.parse(raw) as read:
            assert list(read.metadata) == [k for k in model.metadata if k not in SPLIT_KEYS]
            for key in read.metadata:
                assert _told(read, key) == _told(model, key), key


def _told(model: an.Model, key: str) -> str:
    try:
        return repr(model.metadata[key])
    except an.ParseError:  # a bool that is neither
        return "malformed"


if __name__ == "__main__":
    fuzz(check)
