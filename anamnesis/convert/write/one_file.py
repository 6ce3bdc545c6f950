"""A plan's only file, written into room that is open for it, or to a stream."""

from __future__ import annotations

from io import IOBase
from typing import Any, BinaryIO, cast

from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import How, Request
from anamnesis.convert.write.pipeline import run_plan
from anamnesis.convert.write.sinks import FileSink, StreamSink, Writable
from anamnesis.convert.write.tally import Tally
from anamnesis.convert.write.verify import verify

Room = BinaryIO | Writable


def write_stream(plan: Plan, stream: Writable, how: How) -> Tally:
    """Write the file, whose bands come in order, to a stream; return what they came to."""
    (file,) = plan.files
    tally, sink = Tally(plan), StreamSink(stream, file)
    sink.begin()
    run_plan(plan, sink, tally, how)
    sink.end()
    return tally


def write_file(
    plan: Plan, room: Room, request: Request, how: How, config: dict[str, Any] | None = None
) -> Tally:
    """Write the file, and read it back if that is asked for; return what its bands came to."""
    if not isinstance(room, IOBase):
        return write_stream(plan, room, how)
    (file,) = plan.files
    tally = Tally(plan)
    sink = FileSink(cast("BinaryIO", room))
    for offset, raw in file.fixed:
        sink.put(offset, raw)
    run_plan(plan, sink, tally, how)
    for _, offset, raw in tally.patches():
        sink.put(offset, raw)
    if request.verify:
        verify(plan, {file.name: cast("BinaryIO", room)}, request, config)
    return tally
