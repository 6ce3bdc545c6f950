"""A plan's only file, written into room that is open for it."""

from __future__ import annotations

from typing import Any, BinaryIO

from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import How, Request
from anamnesis.convert.write.pipeline import run_plan
from anamnesis.convert.write.sinks import FileSink
from anamnesis.convert.write.tally import Tally
from anamnesis.convert.write.verify import verify


def write_file(
    plan: Plan, room: BinaryIO, request: Request, how: How, config: dict[str, Any] | None = None
) -> Tally:
    """Write the file, and read it back if that is asked for; return what its bands came to."""
    (file,) = plan.files
    tally = Tally(plan)
    sink = FileSink(room)
    for offset, raw in file.fixed:
        sink.put(offset, raw)
    run_plan(plan, sink, tally, how)
    for _, offset, raw in tally.patches():
        sink.put(offset, raw)
    if request.verify:
        verify(plan, {file.name: room}, request, config)
    return tally
