"""Whatever can be asked for by name has what an encoding needs; a new one asks for it here.

That each was compared with an oracle is recorded as those tests run: see oracle_record.py.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from anamnesis.convert.loaders.verdicts import loaders
from helpers.each_encoding import NAMES, written_and_read
from helpers.kernel_calls import PROJECT, load_by_path
from helpers.oracle_record import encoding_row, watched_encodings


@pytest.mark.parametrize("name", NAMES)
def test_each_is_written_and_read(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    written_and_read(name, rng.standard_normal(1 << 15).astype(np.float16), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_loaded_by_a_program(name: str) -> None:
    assert loaders(name)


def test_each_has_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is skipped, which is for commits that do not have it."""
    monkeypatch.syspath_prepend(PROJECT)
    benchmarks = importlib.import_module("asv_benchmarks.benchmarks.encodings")
    monkeypatch.setattr(benchmarks, "ROWS", 128)
    assert set(benchmarks.WRITTEN) == set(NAMES)
    for name in NAMES:
        benchmarks.Write().setup(name)


def test_each_is_fuzzed(rng: np.random.Generator) -> None:
    """By running: each is written of an input."""
    fuzz = load_by_path("fuzz/fuzz_encodings.py")
    with watched_encodings() as written:
        for i in range(len(NAMES)):
            fuzz.check(bytes([i, 3]) + rng.bytes(2000))
    assert written >= {encoding_row(name) for name in NAMES}
