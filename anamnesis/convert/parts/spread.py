"""A conversion by several processes: by an executor, in shares, and the commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapreplace

from anamnesis.convert.parts.executor import make_all
from anamnesis.convert.parts.parts import Parts
from anamnesis.convert.report.part import PartReport
from anamnesis.convert.request.request import How
from anamnesis.convert.request.share import Share, share_of
from anamnesis.convert.resume.destination import Destination
from anamnesis.convert.write.tally import Tally


def spread(
    where: Destination, planning: Callable[[], Destination] | None, started: float
) -> Tally | PartReport:
    """Do what is asked of this process; return what all of the output came to, if it is whole.

    `planning` returns the destination anew, in any process.
    """
    request = where.request
    if request.executor is not None:
        assert planning is not None
        return make_all(Parts(where), request.executor, planning, request.how)
    if request.part is None or request.part == "commit":
        return Parts(where).commit()
    return _make_share(Parts(where), share_of(request.part), started)


def _make_share(parts: Parts, share: Share, started: float) -> PartReport:
    """Make one share of the files."""
    request, plan = parts.where.request, parts.plan
    sizes = [file.n_bytes for file in plan.files]
    mine = files_of(share, sizes)
    total, done = sum([sizes[i] for i in mine]), 0
    parts.begin()
    for i in mine:
        if parts.made(i) is None:
            tell = partial(_tell, request.how, done, total)
            parts.make(i, request.how._replace(progress=tell), sync=True)
        done += sizes[i]
        request.how.tell(done, total)
    return PartReport(
        path=str(parts.where.told_path()),
        dtype=request.dtype.name,
        n_in=plan.account.n_in,
        n_out=plan.n_tensors,
        n_quantized=0,
        n_bytes=total,
        n_consumed=0,
        dropped=(),
        n_files=len(sizes),
        seconds=time.monotonic() - started,
        format=plan.files[0].writer.id,
        part=f"{share.number}/{share.of}",
        files=tuple([plan.files[i].name for i in mine]),
        missing=tuple([plan.files[i].name for i in parts.missing()]),
    )


def _tell(how: How, before: int, total: int, done: int, _: int) -> None:
    how.tell(before + done, total)


def files_of(share: Share, sizes: Sequence[int]) -> list[int]:
    """Return the places of the files of a share; all shares take about as long."""
    loads, mine = [(0, number) for number in range(1, share.of + 1)], []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, number = loads[0]
        heapreplace(loads, (load + sizes[i] + 1, number))  # so that empty files are shared, too
        mine += [i] if number == share.number else []
    return sorted(mine)
