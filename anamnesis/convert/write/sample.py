"""What encodings would take, measured on some bands without writing anything.

The bands are real ones, decoded and encoded as a conversion does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any

from anamnesis.base.workers import run
from anamnesis.convert.plan.files import OutputWeight
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.report.losses import Losses
from anamnesis.convert.report.report import Measured
from anamnesis.convert.request.request import How
from anamnesis.convert.write.pipeline import run_survey
from anamnesis.convert.write.tally import LossSum
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Task
from anamnesis.schemes.core.weight import Scratch

SAMPLE = 16  # bands, each of a megabyte or two of values


def measure(plan: Plan, n_bands: int | None, how: How) -> Measured | None:
    """Measure what the encodings of a plan take; None where nothing is encoded.

    Where the bytes of a weight depend on all of it, as by the largest of its values, a sample goes
    by those that it has of it.
    """
    encoded = [made for made in plan.weights() if not made.is_plain]
    bands = _n_bands(encoded)
    if not sum(bands):
        return None
    n = sum(bands)
    places: Sequence[int] = range(n)
    if n_bands is not None and n_bands < n:  # those in the middle of as many equal stretches
        places = [(2 * i + 1) * n // (2 * n_bands) for i in range(n_bands)]
    chosen = dict(_chosen(encoded, bands, places))
    found = _surveyed(plan, chosen, how)
    sums: dict[int, LossSum] = {made.index: LossSum() for made in chosen}
    jobs = ((made, band) for made, some in chosen.items() for band in _bands(made, some))

    def measure_band(scratch: Scratch, job: tuple[OutputWeight, Band]) -> None:
        how.check()
        made, band = job
        shape, extents = made.weight.shape, made.encoding.extents(made.weight.shape, band)
        outs = [memoryview(bytearray(extent.n_bytes * extent.pieces)) for extent in extents]
        task = Task(band, shape, found.get(made.index, b""), how.level, measures=True)
        sums[made.index].add(made.encoding.take(made.weight, task, scratch, outs))

    run(jobs, lambda: partial(measure_band, Scratch(how.level)), how.threads)
    losses = {made.name: sums[made.index].result() for made in chosen}
    return Measured(Losses(losses), len(places), n)


def _n_bands(encoded: list[OutputWeight]) -> list[int]:
    """Return how many bands each weight has; a model has many weights of few kinds."""
    known: dict[tuple[Any, ...], int] = {}
    found = []
    for made in encoded:
        weight = made.weight
        kind = type(weight), weight.id, weight.shape, id(made.encoding)
        if kind not in known:
            known[kind] = len(made.bands())
        found.append(known[kind])
    return found


def _chosen(
    encoded: list[OutputWeight], bands: list[int], places: Iterable[int]
) -> Iterator[tuple[OutputWeight, list[int]]]:
    """Yield weights, and the places among its own of the bands that are measured of each."""
    ends = list(accumulate(bands))
    which = 0
    own: list[int] = []
    for place in places:
        while place >= ends[which]:
            if own:
                yield encoded[which], own
            which, own = which + 1, []
        own.append(place - (ends[which] - bands[which]))
    yield encoded[which], own


def _bands(made: OutputWeight, places: list[int]) -> Iterator[Band]:
    """Yield the bands of a weight at some places, in order."""
    each = iter(made.bands())
    seen = 0
    for place in places:
        yield next(islice(each, place - seen, None))
        seen = place + 1


def _surveyed(plan: Plan, chosen: dict[OutputWeight, list[int]], how: How) -> dict[int, bytes]:
    """Return what first passes over the bands find, by the index of their weight."""
    found: dict[int, bytes] = {}
    for made, places in chosen.items():
        bands, n = list[tuple[Band, Band]](), 0
        for band in _bands(made, places):  # with its place in what they are together
            bands.append((band, Band(n, n + band.stop - band.start)))
            n = bands[-1][1].stop
        survey = made.encoding.encoder.survey((n,)) if bands else None
        if survey is not None:
            found[made.index] = run_survey(made, survey, ([one] for one in bands), how)
    return plan.joint(found)
