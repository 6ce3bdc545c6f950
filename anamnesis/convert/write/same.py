"""Whether an output would be the tensors of another model, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Mapping

from anamnesis.base.errors import OutputError
from anamnesis.base.lazy import np
from anamnesis.base.limits import UNLIMITED
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.open import open_checkpoint
from anamnesis.convert.compare.values import compare_arrays
from anamnesis.convert.plan.files import OutputFile, Slice
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import How, Request
from anamnesis.convert.write.pipeline import make_surveys, run_plan
from anamnesis.convert.write.sinks import Sink
from anamnesis.convert.write.tally import Tally
from anamnesis.formats.base import Opening

_SHOWN = 3  # of the tensors that differ


def check_same(plan: Plan, request: Request) -> None:
    """Refuse a plan that would not write the tensors of `request.expect_same`; write nothing."""
    assert request.expect_same is not None
    unlike, n = unlike_tensors(plan, request.expect_same, request.how)
    if unlike:
        shown = "; ".join(list(unlike.values())[:_SHOWN])
        more = f"; and {len(unlike) - _SHOWN:,} more" if len(unlike) > _SHOWN else ""
        raise OutputError(
            f"{len(unlike):,} of {n:,} tensors are not as in {request.expect_same}: {shown}{more}"
        )


def unlike_tensors(
    plan: Plan, path: str | os.PathLike[str], how: How
) -> tuple[dict[str, str], int]:
    """Return the tensors of which a plan would write others than a model has, and how they
    differ; and how many tensors there are.
    """
    make_surveys(plan, {}, lambda *_: None, how)
    reference = open_checkpoint(path, UNLIMITED, Opening())
    try:
        found = _Comparing(plan, reference.stored)
        run_plan(plan, found, Tally(plan), how)
        reference.check_unchanged()
    finally:
        reference.close()
    return found.told(), found.n


class _Comparing(Sink):
    """A sink that compares bands with stored tensors of the same names."""

    def __init__(self, plan: Plan, stored: Mapping[str, StoredTensor]) -> None:
        self._stored = dict(stored)
        self._apart: dict[str, list[tuple[int, int, float]]] = {}
        self._unlike: dict[str, str] = {}
        planned = {part.name: part for made in plan.weights() for part in made.parts}
        for name, part in planned.items():
            there = stored.get(name)
            if there is None:
                self._unlike[name] = f"{name!r} is not there"
            elif (there.dtype, there.shape) != (part.dtype, part.shape):
                would = f"{part.dtype} {list(part.shape)}"
                self._unlike[name] = f"{there.describe()} {name!r} would be {would}"
        self.n = len(stored.keys() | planned.keys())
        for name in sorted(stored.keys() - planned.keys()):
            self._unlike[name] = f"{name!r} would not be written"
        for made in plan.weights():
            for i, raw in made.constants.items():
                self._compare(made.parts[i].name, 0, raw)

    def take(self, file: OutputFile, piece: Slice, place: int, data: memoryview) -> None:
        self._compare(piece.part.name, place, data)

    def _compare(self, name: str, place: int, raw: bytes | memoryview) -> None:
        if name in self._unlike:
            return
        there = self._stored[name]
        other = there.source.read(there.offset + place, len(raw))
        if other != raw:
            kind = there.dtype.numpy()
            found = compare_arrays(*(np.frombuffer(one, kind) for one in (other, raw)))
            apart = found.differing, place // kind.itemsize + found.first, found.largest
            self._apart.setdefault(name, []).append(apart)

    def told(self) -> dict[str, str]:
        """Return what is not the same, by the names of the tensors, in words."""
        found = dict(self._unlike)
        for name, apart in self._apart.items():
            n, first = sum(n for n, _, _ in apart), min(at for _, at, _ in apart)
            there, largest = self._stored[name], max(largest for _, _, largest in apart)
            unit = "values" if there.dtype.numpy_name else "bytes of codes"
            n_all = there.n_bytes // there.dtype.numpy().itemsize
            where = f"{n:,} of {n_all:,} {unit}, first at {first:,}"
            found[name] = f"{name!r} differs in {where}, by at most {largest:.3g}"
        return found
