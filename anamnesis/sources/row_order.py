"""Which rows of something are taken, and in which order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]


class RowRun(NamedTuple):
    """`n` consecutive rows from `first` on, each `step` rows further in every next group."""

    first: int
    n: int
    step: int


@dataclass(frozen=True)
class RowOrder:
    """Which row of what is given each row of a result is: runs, group after group.

    It is as long as a group, however many rows there are.
    """

    runs: tuple[RowRun, ...]
    n_groups: int

    @classmethod
    def of(cls, order: Iterable[int], period: int, n_groups: int) -> RowOrder:
        """Return the rows `order` of each `period`."""
        if isinstance(order, range) and order.step == 1:
            return cls((RowRun(order.start, len(order), period),), n_groups)
        runs: list[RowRun] = []
        for row in order:
            if runs and runs[-1].first + runs[-1].n == row:
                runs[-1] = runs[-1]._replace(n=runs[-1].n + 1)
            else:
                runs.append(RowRun(row, 1, period))
        return cls(tuple(runs), n_groups)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(run.n for run in self.runs))

    @property
    def n_rows(self) -> int:
        """Rows of the result."""
        return self.n_groups * self._ends[-1] if self.runs else 0

    @property
    def per_group(self) -> int:
        """Rows of a group of the result."""
        return self._ends[-1] if self.runs else 0

    @property
    def step(self) -> int:
        """How many rows further each group is taken; 0 if not all of its runs are."""
        steps = {run.step for run in self.runs}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def start(self) -> int | None:
        """The row from which on all are taken as they lie; None if they are not."""
        is_one = len(self.runs) == 1 and (self.n_groups == 1 or self.runs[0].n == self.runs[0].step)
        return self.runs[0].first if is_one else None

    @property
    def token(self) -> str:
        """Tell this order from others."""
        told = f"{self.n_groups}x{'+'.join(':'.join(map(str, run)) for run in self.runs)}"
        if len(told) < 80:
            return told
        from hashlib import sha256  # only here, for the sake of a quick start

        return sha256(told.encode()).hexdigest()

    def at(self, row: int) -> tuple[int, int]:
        """Return which row a row of the result is, and how many follow it there as here."""
        if self.start is not None:
            return self.start + row, self.n_rows - row
        group, within = divmod(row, self._ends[-1])
        i = bisect_right(self._ends, within)
        run, left = self.runs[i], self._ends[i] - within
        return run.first + run.n - left + group * run.step, left

    def rows(self, first: int, n: int) -> Indices:
        """Return which rows `n` of the result from `first` on are."""
        import numpy as np  # only here, for the sake of a quick start

        firsts, ends, steps = self._arrays
        group, within = np.divmod(np.arange(first, first + n), self._ends[-1])
        run = np.searchsorted(ends, within, "right")
        found: Indices = firsts[run] + within - ends[run] + group * steps[run]
        return found

    @cached_property
    def _arrays(self) -> tuple[Any, Any, Any]:
        import numpy as np

        runs = np.array(self.runs, np.int64).reshape(-1, 3)
        return runs[:, 0] + runs[:, 1], np.array(self._ends), runs[:, 2]


class Placed(NamedTuple):
    """Rows `start` to `stop` of what is given, and where the first of them is put."""

    start: int
    stop: int
    at: int


def together(rows: Indices, gap: int) -> tuple[list[Placed], Indices]:
    """Return what is to be read for some rows, and where each of them lies in that."""
    import numpy as np

    wanted = np.sort(rows)
    cuts = np.flatnonzero(np.diff(wanted) > gap + 1)
    starts = wanted[np.concatenate([[0], cuts + 1])]
    stops = wanted[np.concatenate([cuts, [len(wanted) - 1]])] + 1
    places = np.concatenate([[0], np.cumsum(stops - starts)])
    span = np.searchsorted(starts, rows, "right") - 1
    spans = [Placed(*map(int, each)) for each in zip(starts, stops, places, strict=False)]
    return spans, rows - starts[span] + places[span]
