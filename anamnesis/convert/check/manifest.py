"""Manifests: hashes of the bytes of each tensor, and of the values of each weight.

    {"anamnesis": "manifest 1", "hash": "xxh3_128",
     "tensors": {NAME: {"dtype": "BF16", "shape": [256, 256], "hash": "…"}},
     "weights": {NAME: {"shape": [256, 256], "hash": "…"}}}

Both are cut into cells: a hash is that of the hashes of its cells. A cell of bytes is 512 KiB; a
cell of values is 2^18 of them, as BF16 if all of them are exactly that, else as float32. So values
have one hash in any encoding that decodes to them, and a plain BF16 tensor is hashed once for both.
XXH3 (128 bits) shows damage, at the rate of memory, and is no proof against a forger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.lazy import np
from anamnesis.base.limits import Budget
from anamnesis.base.stored import StoredTensor
from anamnesis.base.text_files import check_writable, write_text
from anamnesis.base.workers import run
from anamnesis.checkpoint.json_file import read_json
from anamnesis.convert.check.findings import Finding
from anamnesis.convert.compare.pairs import unread
from anamnesis.convert.compare.values import Progress
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import VALUES_SLOT
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run
from anamnesis.schemes.detect.ledger import Ledger

_VERSION, _HASH = "manifest 1", "xxh3_128"
_BYTES, _VALUES = 1 << 19, 1 << 18  # of a cell
_F32 = DTYPES["F32"]
_ABOVE = 16  # bits of a float32 that BF16 keeps


class Manifest(NamedTuple):
    """The hashes of a model, by the names of tensors and of weights."""

    tensors: dict[str, dict[str, Any]]
    weights: dict[str, dict[str, Any]]


class _Cell(NamedTuple):
    """A piece of a stored tensor, or of a weight's values; of a plain BF16 one it is both."""

    of: StoredTensor | Weight
    number: int
    also: Weight | None = None


def manifest_of(ledger: Ledger, how: How) -> Manifest:
    """Return the hashes of a model's tensors and weights."""
    make = _hash()
    found: dict[int, list[bytes]] = {}
    done = Progress(how, sum(tensor.n_bytes for tensor in ledger.stored.values()))

    def hash_cell(scratch: Scratch, cell: _Cell) -> None:
        data = _data(cell, scratch)
        digest = make(data).digest()
        for one in (cell.of, cell.also):
            if one is not None:
                found[id(one)][cell.number] = digest
        done.add(len(data))

    weights = {**ledger.weights, **unread(ledger)}
    run(_cells(ledger, weights, found), lambda: partial(hash_cell, Scratch(how.level)), how.threads)
    tensors = {
        name: {
            "dtype": tensor.dtype.name,
            "shape": list(tensor.shape),
            "hash": make(b"".join(found[id(tensor)])).hexdigest(),
        }
        for name, tensor in ledger.stored.items()
    }
    values = {
        name: {"shape": list(weight.shape), "hash": make(b"".join(found[id(weight)])).hexdigest()}
        for name, weight in weights.items()
    }
    return Manifest(tensors, values)


def _hash() -> Any:
    try:
        import xxhash
    except ImportError:
        raise UnsupportedError(
            "manifests take xxhash", remedy="pip install 'anamnesis-tensors[check]'"
        ) from None
    return xxhash.xxh3_128


def _cells(
    ledger: Ledger, weights: Mapping[str, Weight], found: dict[int, list[bytes]]
) -> Iterator[_Cell]:
    both = {
        id(weight.parts[0]): weight
        for weight in weights.values()
        if isinstance(weight, Plain) and weight.parts[0].dtype.name not in ("F16", "F32")
    }
    for tensor in ledger.stored.values():
        also = both.get(id(tensor))
        n = -(-tensor.n_bytes // _BYTES)
        found[id(tensor)] = [b""] * n
        if also is not None:
            found[id(also)] = [b""] * n
        yield from (_Cell(tensor, i, also) for i in range(n))
    for weight in weights.values():
        if id(weight) in found:
            continue
        n = -(-weight.n_elements // _VALUES)
        found[id(weight)] = [b""] * n
        yield from (_Cell(weight, i) for i in range(n))


def _data(cell: _Cell, scratch: Scratch) -> Any:
    """Return what a cell is hashed as."""
    if isinstance(cell.of, StoredTensor):
        start = cell.number * _BYTES
        return scratch.read(0, cell.of, start, min(_BYTES, cell.of.n_bytes - start))
    start = cell.number * _VALUES
    band = Band(start, min(start + _VALUES, cell.of.n_elements))
    out = scratch.room(VALUES_SLOT, _F32.n_bytes(band.stop - band.start))
    decode_run(cell.of, band, _F32, scratch, out)
    words = np.frombuffer(out, "<u4")
    if (words & ((1 << _ABOVE) - 1)).any():
        return out
    return (words >> _ABOVE).astype("<u2").data


# --- files ----------------------------------------------------------------------------------------


def write_manifest(made: Manifest, path: str) -> None:
    """Write a manifest; there is none yet."""
    text = json.dumps({"anamnesis": _VERSION, "hash": _HASH, **made._asdict()}, indent=1)
    write_text(path, text + "\n")


def read_manifest(path: str, budget: Budget) -> Manifest | None:
    """Return a manifest; None if there is none, and it can be written."""
    from pathlib import Path

    _hash()  # an error before the work
    if not os.path.lexists(path):
        check_writable(path)
        return None
    raw = read_json(Path(path), budget)
    if raw.get("anamnesis") != _VERSION or raw.get("hash") != _HASH:
        raise ParseError("is no manifest of this version", source=path)
    tables = [raw.get(name) for name in Manifest._fields]
    for table in tables:
        rows = table.values() if isinstance(table, dict) else (None,)
        if not all(isinstance(row, Mapping) and isinstance(row.get("hash"), str) for row in rows):
            raise ParseError("is a damaged manifest", source=path)
    return Manifest(*tables)  # type: ignore[arg-type]  # checked above


def against_manifest(given: Manifest, made: Manifest, path: str) -> list[Finding]:
    """Return what a model has not as its manifest says; other bytes of the same values are no
    problem.
    """
    findings = []

    def add(severity: Any, names: Sequence[str], text: str) -> None:
        if names:
            findings.append(Finding(severity, "manifest", tuple(names), text))

    lost = [name for name in given.weights if name not in made.weights]
    more = [name for name in made.weights if name not in given.weights]
    other = [name for name, row in given.weights.items() if made.weights.get(name, row) != row]
    add("problem", lost, f"{path} has them, the model has not")
    add("problem", more, f"the model has them, {path} has not")
    add("problem", other, f"have other values than {path} says")
    moved = [name for name, row in made.tensors.items() if given.tensors.get(name, row) != row]
    moved += [name for name in given.tensors if name not in made.tensors]
    if not findings:
        add("note", moved, f"are stored otherwise than {path} says, with the same values")
    return findings
