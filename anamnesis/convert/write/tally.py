"""What has been made of a plan, and what it took, in any order of bands."""

from __future__ import annotations

import math
import struct
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import cached_property
from itertools import accumulate
from typing import Any

from anamnesis.base.crc import crc32
from anamnesis.base.exact_sum import ExactSum
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.report.losses import Losses, WeightLoss
from anamnesis.schemes.core.codes import Loss


class LossSum:
    """The losses of a weight's bands, which several threads may add."""

    __slots__ = ("_lock", "absolute", "largest", "n", "power", "squared")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.n = 0
        self.absolute = ExactSum()
        self.largest = 0.0
        self.squared = ExactSum()
        self.power = ExactSum()

    def add(self, loss: Loss) -> None:
        with self._lock:
            self.n += loss.n
            self.absolute.add(loss.absolute)
            self.squared.add(loss.squared)
            self.power.add(loss.power)
            if math.isnan(loss.squared):  # kernels' maxima pass over NaNs
                self.largest = math.nan
            elif loss.largest > self.largest:
                self.largest = loss.largest

    def result(self) -> WeightLoss:
        sums = (self.absolute.value, self.largest, self.squared.value, self.power.value)
        return WeightLoss(self.n, *sums)


class Made:
    """What one band has come to, and how a journal has it: a record of one length for all.

    Its overflows; if losses are measured, those; if CRC-32 are wanted, one for each
    part of a weight.
    """

    def __init__(self, plan: Plan) -> None:
        self.measures = plan.measures
        self.n_sums = plan.sums
        loss = "Q4d" if self.measures else ""
        self.record = struct.Struct(f"<Q{loss}{self.n_sums}I")

    def pack(self, loss: Loss, sums: Sequence[int]) -> bytes:
        measured = loss[1:] if self.measures else ()
        padding = (0,) * (self.n_sums - len(sums))
        return self.record.pack(loss.overflows, *measured, *sums, *padding)

    def unpack(self, record: bytes) -> tuple[Loss, tuple[int, ...]]:
        """Return what `pack` took."""
        overflows, *rest = self.record.unpack(record)
        loss = Loss(overflows, *rest[:5]) if self.measures else Loss(overflows)
        return loss, tuple(rest[5 if self.measures else 0 :])


class Tally:
    """Counts bands; called from several threads."""

    def __init__(self, plan: Plan) -> None:
        self.n_bytes = 0
        self.overflows: Counter[str] = Counter()
        self._plan = plan
        self._weights = list(plan.weights())
        self._losses: dict[int, LossSum] = {}
        self._sums = {
            weight.index: [crc32(weight.constants.get(i, b"")) for i in range(len(weight.parts))]
            for file in plan.files
            if file.writer.wants_sums
            for weight in file.weights
        }
        self._lock = threading.Lock()

    def add(self, ordinal: int, loss: Loss, sums: Sequence[int], n_bytes: int = 0) -> None:
        if not (loss.overflows or loss.n or sums):
            self.count_bytes(n_bytes)
            return
        weight = self._weights[bisect_right(self._ends, ordinal)]
        with self._lock:
            self.n_bytes += n_bytes
            if loss.overflows:
                self.overflows[weight.name] += loss.overflows
            if loss.n:
                self._losses.setdefault(weight.index, LossSum()).add(loss)
            known = self._sums.get(weight.index)
            if known is not None:
                for i, share in zip(range(len(known)), sums, strict=False):
                    known[i] ^= share

    @cached_property
    def _ends(self) -> list[int]:
        """The ordinal behind the last band of each weight."""
        return list(accumulate([len(weight.bands()) for weight in self._weights]))

    def count_bytes(self, n_bytes: int) -> None:
        """Count what is written, or passed over."""
        with self._lock:
            self.n_bytes += n_bytes

    def patches(self) -> list[tuple[str, int, bytes]]:
        """Return what is known only now that all is written: file, offset and bytes."""
        patches = []
        for file in self._plan.files:
            if file.writer.wants_sums:
                sums = [crc for made in file.given for crc in self._sums[made.index]]
                patches += [(file.name, *patch) for patch in file.writer.finish(sums)]
        return patches

    def account(self) -> dict[str, Any]:
        """Return what the bands came to, as values that JSON has; sums are rounded already."""
        losses = {str(index): astuple(loss.result()) for index, loss in self._losses.items()}
        return {"overflows": dict(self.overflows), "losses": losses}

    def take(self, account: Mapping[str, Any]) -> None:
        """Take what all bands of some weights came to, elsewhere."""
        self.overflows.update(account["overflows"])
        for index, figures in account["losses"].items():
            self._losses.setdefault(int(index), LossSum()).add(Loss(0, *figures))

    @property
    def losses(self) -> Losses | None:
        """What each weight has lost; None if nothing was measured."""
        if not self._losses:
            return None
        measured = [weight for weight in self._weights if weight.index in self._losses]
        return Losses({w.name: self._losses[w.index].result() for w in measured})
