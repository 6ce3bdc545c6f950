"""Fixtures of all tests, and their tiers; plain functions that build inputs are in helpers/."""

from __future__ import annotations

import gc
import os
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path

import numpy as np
import pytest

from helpers.handmade import Entry, WriteModel, write_safetensors
from helpers.oracle_record import RECORD, note, prove, watched, watched_encodings
from helpers.sampled import left_out
from helpers.tiers import needs_oracle

# Libraries compile what they run once, which takes longer than all that is compared with it, and
# their threads wait for each other by spinning, as long as the tests of another process run.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What a module has that has tests of the tier beside the fast one, and what asks for that tier.
SLOW, OTHERS = re.compile(r"mark\.(slow|oracle)"), "(oracle or slow)"

gc.disable()  # until tests are collected: there are thousands, and none of them is garbage


def pytest_collection_finish() -> None:
    """Collect garbage again."""
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import modules of another tier than the one that is asked for."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    asked = config.getoption("markexpr")
    if "not oracle" in asked:
        return True if needs_oracle(collection_path) else None
    is_fast = not needs_oracle(collection_path) and not SLOW.search(collection_path.read_text())
    return True if asked.startswith(OTHERS) and is_fast else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of such modules, and the cases that a sample leaves out."""
    cases: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if needs_oracle(item.path):
            item.add_marker("oracle")
        if sampled := item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0], sampled.args[0]].append(item)
    for (_, n), same in cases.items():
        for item in left_out(same, n):
            item.add_marker("weekly")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Note what ran in a test that compares it with an oracle, and passed, and if it can fail."""
    oracle = pyfuncitem.get_closest_marker("against")
    if oracle is None or RECORD is None:
        return (yield)
    start = time.monotonic()
    with watched() as ran, watched_encodings() as written:
        result = yield
    note(oracle.args[0], ran | written)
    wanted = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in wanted}
    name = pyfuncitem.nodeid.partition("[")[0]
    took = time.monotonic() - start
    prove(name, oracle.args[0], ran, took, lambda: pyfuncitem.obj(**given))
    return result


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """Write a handmade file below the test's own folder: `write_model(tensors, name=…)`."""

    def write(
        tensors: Mapping[str, Entry],
        name: str = "model.safetensors",
        metadata: Mapping[str, str] | None = None,
    ) -> Path:
        return write_safetensors(tmp_path / name, tensors, metadata)

    return write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a model, empty."""
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of its own for each test, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
