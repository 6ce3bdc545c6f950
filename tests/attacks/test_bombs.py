"""Bombs of 64 KB under every verb: at most a second of CPU time and 100 MB each.

Each runs in a child of one warm process, so that a peak is the bomb's own; see fuzz/meter.py.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import anamnesis as an

FUZZ = Path(__file__).parents[2] / "fuzz"
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


@pytest.fixture
def fuzz_bombs(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The fuzzer, with a meter that is stopped in the end."""
    module = import_module("fuzz_bombs")
    monkeypatch.setattr(module, "meter", lambda: meter)
    return module


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_little(meter: Meter, tmp_path: Path, name: str) -> None:
    files = BOMBS[name](MOST)
    assert sum(map(len, files.values())) <= MOST
    assert meter.excesses(write(files, tmp_path / "in")) == []


def test_a_limit_on_the_ratio_refuses_before_inflating() -> None:
    """It is of bytes inflated to bytes deflated, of each member, as the directory tells them."""
    (data,) = BOMBS["deflated-row.npz"](2_000).values()
    with pytest.raises(an.LimitExceeded, match="max_decompression_ratio"):
        an.parse(data, limits=an.ParseLimits(max_decompression_ratio=100))
    an.parse(data, limits=an.ParseLimits(max_decompression_ratio=1032)).close()


@pytest.mark.parametrize(
    "path", sorted((FUZZ / "corpus" / "fuzz_bombs").iterdir()), ids=lambda p: p.name
)
def test_corpus_of_pumped_files(fuzz_bombs: ModuleType, path: Path) -> None:
    fuzz_bombs.check(path.read_bytes())


def test_pumped_files(fuzz_bombs: ModuleType) -> None:
    rng = random.Random("pumped")
    for _ in range(40):
        files = fuzz_bombs.files_from(b"S" + rng.randbytes(40))
        assert 0 < sum(map(len, files.values())) <= 2 * MOST


@pytest.mark.weekly
def test_the_meter_sees_time_and_memory(meter: Meter, tmp_path: Path) -> None:
    """A file that takes more than the bounds is told of, verb by verb."""
    path = tmp_path / "large.gguf"
    (data,) = BOMBS["gguf-key-bytes.gguf"](3_000_000).values()
    path.write_bytes(data)
    costs = {cost.verb: cost for cost in meter.costs(path)}
    assert costs["parse"].n_bytes < costs["parse-json"].n_bytes
    assert meter.excesses(path) != []
