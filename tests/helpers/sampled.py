"""Which cases of a sampled test run on a push: one in n, with as many values as can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

__all__ = ["left_out"]


def left_out(cases: Sequence[pytest.Item], n: int) -> list[pytest.Item]:
    """Return all but one case in n: the next one kept has the values met least."""
    rest = {case: _values(case) for case in cases}
    met: Counter[tuple[str, int]] = Counter()
    for _ in range(-(-len(cases) // n)):
        case = min(rest, key=lambda case: sum(met[value] for value in rest[case]))
        met.update(rest.pop(case))
    return list(rest)


def _values(case: pytest.Item) -> list[tuple[str, int]]:
    """Return the values of its parameters: by identity, for stacked parameters share them."""
    assert isinstance(case, pytest.Function)
    return [(name, id(value)) for name, value in case.callspec.params.items()]
