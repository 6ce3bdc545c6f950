"""What was written, read back: headers, codes and values.

The headers must say what was planned, the codes must be those that encoding the source once more
gives, and the weights, found in the file as anyone would find them, must decode to the values that
the encoding says of its codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import anamnesis._core as _core
import anamnesis._io as _io
from anamnesis.base.dtypes import OUTPUT_DTYPES
from anamnesis.base.errors import OutputError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import run
from anamnesis.checkpoint.metadata import all_metadata
from anamnesis.convert.plan.files import OutputFile, OutputWeight, Slice
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import How, Request
from anamnesis.convert.write.pipeline import run_plan
from anamnesis.convert.write.sinks import Sink
from anamnesis.convert.write.tally import Tally
from anamnesis.formats.base import Container
from anamnesis.formats.registry import parse_file
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run
from anamnesis.schemes.detect.config_facts import read_facts
from anamnesis.schemes.detect.registry import claim_all
from anamnesis.schemes.views.transposed import Transposed

_F32 = OUTPUT_DTYPES["f32"]
_LONE = "npy"  # a format whose one tensor is called like the file


class Differs(OutputError):
    """A file has not the bytes that are planned."""


def compared(plan: Plan, sources: Mapping[str, Source], request: Request) -> Tally:
    """Compare files with all that a plan would write; return what its bands came to."""
    tally = Tally(plan)

    def compare(pieces: Iterable[tuple[str, int, bytes]]) -> None:
        for name, offset, raw in pieces:
            if sources[name].read(offset, len(raw)) != raw:
                _differs(f"{name}, byte {offset:,}")

    compare((file.name, offset, raw) for file in plan.files for offset, raw in file.fixed)
    run_plan(plan, _Comparing(sources), tally, request.how)
    compare(tally.patches())
    return tally


def verify(
    plan: Plan, written: Mapping[str, Any], request: Request, config: dict[str, Any] | None
) -> None:
    """Read back all files of a plan, and compare them with a second encoding."""
    containers = {file.name: parse_file(written[file.name], Budget()) for file in plan.files}
    try:
        stored: dict[str, StoredTensor] = {}
        for file in plan.files:
            stored.update(_check_header(file, containers[file.name]))
        compared(plan, {name: c.source for name, c in containers.items()}, request)
        _check_values(plan, stored, list(containers.values()), request, config)
    finally:
        for container in containers.values():
            container.source.close()


def _differs(where: str) -> NoReturn:
    raise Differs(f"{where}: what was written is not what is read back; is the disk sound?")


def _check_header(file: OutputFile, container: Container) -> dict[str, StoredTensor]:
    """Return the tensors that a file says it has, which must be those that were planned."""
    found = dict(container.tensors)
    named = {}
    for weight in file.weights:
        for part, offset in zip(weight.parts, weight.offsets, strict=True):
            name = next(iter(found), "") if container.id == _LONE else part.name
            stored = found.pop(name, None)
            shapes = (part.shape, part.shape or (1,))  # ggml has no scalars
            if stored is None or stored.dtype is not part.dtype or stored.shape not in shapes:
                _differs(f"{container.source.name}: tensor {part.name!r}")
            if part.n_bytes and stored.offset != offset:
                _differs(f"{container.source.name}: tensor {part.name!r}")
            named[part.name] = stored._replace(name=part.name)
    for name in found:
        _differs(f"{container.source.name}: tensor {name!r}")
    return named


class _Comparing(Sink):
    """A sink that compares bands with what is in the files."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources

    def take(self, file: OutputFile, piece: Slice, place: int, data: memoryview) -> None:
        if self._sources[file.name].read(piece.begin + place, len(data)) != data:
            _differs(f"{file.name}: tensor {piece.part.name!r}")


def _check_values(
    plan: Plan,
    stored: dict[str, StoredTensor],
    containers: Sequence[Container],
    request: Request,
    config: dict[str, Any] | None,
) -> None:
    """Compare the weights that are found in the files with what was meant.

    Of a file whose encoding only a config could tell they are not found, and not compared.
    """
    ledger = claim_all(
        stored,
        lambda: read_facts(config or {}, all_metadata(containers)),
        self_contained=all(container.self_contained for container in containers),
    )
    for made in plan.weights():
        if made.is_plain:
            continue
        parts = tuple(stored[part.name] for part in made.parts)
        meant = made.encoding.layout.weight(made.name, made.weight.shape, parts)
        found = ledger.weights.get(made.name)
        if isinstance(found, Transposed):  # a Conv1D's, which was turned before it was encoded
            found = found.stored
        if found is not None:
            _compare(made, meant, found, request.how)
        elif config is not None:
            _differs(f"weight {made.name!r}")


def _compare(made: OutputWeight, meant: Weight, found: Weight, how: How) -> None:
    """Refuse two weights that are not of the same values, band by band."""
    if found.shape != meant.shape:
        _differs(f"weight {made.name!r}")

    def compare(scratches: tuple[Scratch, Scratch], bands: list[Band]) -> None:
        for band in bands:
            how.check()
            n = band.stop - band.start
            values = []
            for weight, scratch in zip((meant, found), scratches, strict=True):
                out = scratch.room(-1, _F32.n_bytes(n))
                decode_run(weight, band, _F32, scratch, out)
                values.append(out)
            if not _io.are_equal(*values):
                unlike = _core.compare(values[0], values[1], how.level)
                told = f"{unlike.n_different:,} of {n:,} values of a band differ"
                at = band.start + (unlike.first_different or 0)
                _differs(f"weight {made.name!r}: {told}, the first at {at:,}")

    run(
        made.bands().runs(),
        lambda: partial(compare, (Scratch(how.level), Scratch(how.level))),
        how.threads,
    )
