"""Attack tests share what the fuzzers do with an input, and bounds on what it may cost."""

from __future__ import annotations

import faulthandler
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))

# Of CPU time. A small input may take one second; tracing allocations makes Python several times
# slower, and a busy machine once more. What is quadratic takes far longer than this.
MOST_SECONDS = 40.0
MOST_BYTES = 100_000_000
HANGS_AFTER = 120.0


@pytest.fixture
def bounded() -> Iterator[None]:
    """Fail if the test takes more CPU time or memory than a small input may; end it if it hangs.

    Lines are not traced meanwhile, for coverage: that would take longer than all they do.
    """
    tracer = sys.gettrace()
    sys.settrace(None)
    faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
    tracemalloc.start()
    started = time.process_time()
    try:
        yield
        seconds = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        faulthandler.cancel_dump_traceback_later()
        sys.settrace(tracer)
    assert seconds < MOST_SECONDS
    assert peak < MOST_BYTES
