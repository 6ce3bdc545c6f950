"""Bombs of 64 KB under every verb: at most a second of CPU time and 100 MB each.

Each runs in a child of one warm process, so that a peak is the bomb's own; see fuzz/meter.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures as Linux does")

if sys.platform == "linux":
    from bombs import BOMBS, MOST
    from meter import Meter, write
else:
    BOMBS = {}


@pytest.fixture(scope="module")
def meter() -> Iterator[Meter]:
    with Meter() as running:
        yield running


# What is not defused yet.
LIVE = re.compile(
    r"builtins-|^set-of|size|intlist|OrderedDict|Counter|(encode|bytearray)-|global"
    r"|of-(99999|65535)|^name-"
)


@pytest.mark.parametrize("name", [name for name in BOMBS if not LIVE.search(name)])
def test_a_bomb_costs_little(meter: Meter, tmp_path: Path, name: str) -> None:
    files = BOMBS[name](MOST)
    assert sum(map(len, files.values())) <= MOST
    assert meter.excesses(write(files, tmp_path / "in")) == []


def test_the_meter_sees_time_and_memory(meter: Meter, tmp_path: Path) -> None:
    """A file that takes more than the bounds is told of, verb by verb."""
    path = tmp_path / "large.gguf"
    path.write_bytes(BOMBS["gguf-key-bytes.gguf"](8_000_000))
    costs = {cost.verb: cost for cost in meter.costs(path)}
    assert costs["parse"].n_bytes < costs["parse-json"].n_bytes
    assert meter.excesses(path) != []
