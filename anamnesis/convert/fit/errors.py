"""The error of each weight in each type, measured with the encoders themselves."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import anamnesis._core as _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.errors import OutputError
from anamnesis.base.lazy import np
from anamnesis.base.workers import run
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import VALUES_SLOT, Importance, NotFinite, Task
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run
from anamnesis.schemes.families.ggml.encode import BlockCodes

if TYPE_CHECKING:
    from anamnesis.schemes.families.ggml.encode import Imatrix

SAMPLE = 1 << 18  # values of a weight, in `_STRETCHES` that are spread over it
_STRETCHES = 4
_AT_ONCE = 1 << 18  # values that are decoded before they are encoded, at least a row
_F32 = DTYPES["F32"]

Errors = dict[str, dict[str, float]]  # by weight and type


class _Job(NamedTuple):
    weight: Weight
    types: Sequence[str]
    bands: Sequence[Band]


class Journal:
    """Errors in a file of JSON lines, by which a stopped run goes on."""

    def __init__(self, path: str | os.PathLike[str] | None, of: str) -> None:
        self.errors: Errors = {}
        self._file = None
        if path is None:
            return
        digest = hashlib.sha256(of.encode()).hexdigest()
        self._read(os.fspath(path), digest)
        is_new = not os.path.exists(path) or not os.path.getsize(path)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 -- closed by `close`
        if is_new:
            self._write({"of": digest})

    def _read(self, path: str, digest: str) -> None:
        if not os.path.exists(path):
            return
        with open(path, "r+b") as file:
            raw = file.read()
            whole = raw[: raw.rfind(b"\n") + 1]  # a last line without an end was not finished
            file.truncate(len(whole))
        for number, line in enumerate(whole.splitlines()):
            try:
                entry = json.loads(line)
                if number == 0 and entry["of"] != digest:
                    raise OutputError(f"{path}: holds errors of another model or setting")
                if number:
                    of_weight = self.errors.setdefault(entry["weight"], {})
                    of_weight[entry["type"]] = float(entry["error"])
            except (ValueError, TypeError, KeyError):
                where = f"{path}, line {number + 1}"
                raise OutputError(f"{where}: is not a journal of errors") from None

    def add(self, weight: str, errors: Mapping[str, float]) -> None:
        self.errors.setdefault(weight, {}).update(errors)
        if self._file is not None:
            for type, error in errors.items():
                self._write({"weight": weight, "type": type, "error": error})

    def _write(self, entry: Mapping[str, object]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def measure_errors(
    weights: Mapping[str, Weight],
    types: Mapping[str, Sequence[str]],
    imatrix: Imatrix | None,
    sample: int | None,
    how: How,
    journal: Journal,
) -> Errors:
    """Return the sum of squared errors of each weight in each type, by importance if
    there is any.
    """
    jobs = [
        _Job(weight, missing, _bands(weight.shape, sample))
        for name, weight in weights.items()
        if (missing := [t for t in types[name] if t not in journal.errors.get(name, {})])
    ]
    done = 0

    def measure(scratch: Scratch, job: _Job) -> None:
        nonlocal done
        weight, found, n = job.weight, dict.fromkeys(job.types, 0.0), 0
        importance = None if imatrix is None else imatrix.importance(weight.name, weight.shape)
        for band in job.bands:
            how.check()
            n += band.stop - band.start
            values = scratch.room(VALUES_SLOT, _F32.n_bytes(band.stop - band.start))
            decode_run(weight, band, _F32, scratch, values)
            task = Task(band, weight.shape, b"", how.level, measures=importance is None)
            for type in job.types:
                try:
                    found[type] += _error(type, importance, values, task, scratch)
                except NotFinite as error:
                    raise error.named(weight.name, f"gguf-{type.lower()}") from None
        scale = prod(weight.shape) / n  # where bands are a sample, to what all would have
        journal.add(weight.name, {type: error * scale for type, error in found.items()})
        done += 1
        how.tell(done, len(jobs))

    run(iter(jobs), lambda: partial(measure, Scratch(how.level)), how.threads)
    return {name: {t: journal.errors[name][t] for t in types[name]} for name in weights}


def _bands(shape: tuple[int, ...], sample: int | None) -> list[Band]:
    """Return all rows, or some stretches that are spread evenly."""
    cols, n = shape[-1], prod(shape)
    rows = n // cols
    if sample is None or sample >= n:
        return list(_cut(0, rows, cols))
    each = max(sample // _STRETCHES // cols, 1)
    n_stretches = min(_STRETCHES, max(rows // each, 1))
    starts = [(2 * i + 1) * rows // (2 * n_stretches) for i in range(n_stretches)]
    middles = [max(min(start - each // 2, rows - each), 0) for start in starts]
    return [band for first in middles for band in _cut(first, first + each, cols)]


def _cut(first: int, last: int, cols: int) -> Iterator[Band]:
    step = max(_AT_ONCE // cols, 1)
    for row in range(first, last, step):
        yield Band(row * cols, min(row + step, last) * cols)


def _error(
    type: str, importance: Importance | None, values: memoryview, task: Task, scratch: Scratch
) -> float:
    """Return the squared errors of a band, added up."""
    dtype, codes = BLOCK_DTYPES[type], BlockCodes(type).with_importance(importance)
    blocks = scratch.room(VALUES_SLOT - 1, dtype.n_bytes(task.n))
    loss = codes.encode(values, task, [blocks])
    if importance is None:
        return loss.squared
    decoded = np.empty(task.n, np.float32)
    out = decoded.view(np.uint8).data
    _core.dequantize_blocks(_core.BLOCKS[type], _core.OUTPUTS["F32"], blocks, out, task.level)
    cols, rows_of_matrix = task.shape[-1], prod(task.shape[-2:-1])
    errors = np.square((np.frombuffer(values, np.float32) - decoded).reshape(-1, cols))
    weights = np.frombuffer(importance.values, np.float32).reshape(-1, cols)
    first = task.band.start // cols
    matrices = (first + np.arange(len(errors))) // rows_of_matrix
    return float(np.einsum("rc,rc->", errors, weights[matrices], dtype=np.float64))
