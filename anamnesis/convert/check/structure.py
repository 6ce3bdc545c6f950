"""What headers, config, index and files of a model say that is not so."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import ParseLimits
from anamnesis.base.printable import numbered
from anamnesis.base.workers import run
from anamnesis.checkpoint.folder import repository_of
from anamnesis.checkpoint.metadata import all_metadata
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.check.findings import Finding
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.compare.pairs import Pair, seen_as_gguf
from anamnesis.convert.compare.values import compare_values, have_same_bytes
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.tied_heads import EMBEDDINGS, head_of, says_tied

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_LEAST = 1 << 12  # bytes of a tensor of which another may be a copy


def unreadable(ledger: Ledger) -> Iterator[Finding]:
    """Yield what cannot be read, once for all tensors of one error."""
    texts: dict[str, list[str]] = {}
    for name, error in ledger.problems.items():
        texts.setdefault(str(error), []).append(name)
    for text, names in texts.items():
        yield Finding("problem", "unreadable", tuple(names), text)


def against_config(model: Input, limits: ParseLimits) -> tuple[list[Finding], str]:
    """Return what shapes and names contradict config, or a GGUF's header, and how it was done."""
    checkpoint, ledger = model.checkpoint, model.ledger
    try:
        if not checkpoint.self_contained:
            if not checkpoint.read_config():
                return [], "not checked: there is no config.json"
            seen_as_gguf(checkpoint, ledger, limits)
        else:
            from anamnesis.architectures.from_gguf import tensors_as_hf

            metadata = all_metadata(checkpoint.shards.values())
            if "general.architecture" not in metadata:
                return [], "not checked: nothing says which architecture it is"
            tensors_as_hf(ledger, metadata)
    except ParseError as error:
        return [Finding("problem", "config", (), str(error))], "checked"
    except UnsupportedError as error:
        return [], f"not checked: {error.message}"  # its remedy is one for converting
    return [], "checked"


def against_index(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Yield tensors that an index names in another shard than the one that has them, or in none."""
    holders = {
        name: os.path.basename(shard)
        for shard, container in checkpoint.shards.items()
        for name in container.tensors
    }
    for index in checkpoint.indexes:
        lost = index.lost(checkpoint.stored)
        if lost:
            yield Finding("problem", "index", tuple(lost), f"{index.name} names them, no shard has")
        elsewhere = [
            name
            for name, shard in index.weight_map.items()
            if holders.get(name, os.path.basename(shard)) != os.path.basename(shard)
        ]
        if elsewhere:
            text = f"{index.name} names another shard than the one that has them"
            yield Finding("problem", "index", tuple(elsewhere), text)
        unnamed = [name for name in checkpoint.stored if name not in index.weight_map]
        if unnamed and len(checkpoint.indexes) == 1:
            yield Finding("note", "index", tuple(unnamed), f"{index.name} does not name them")


def tied_heads(model: Input, how: How) -> Iterator[Finding]:
    """Yield an output head that config says is the embeddings, and that is not."""
    config = {} if model.checkpoint.self_contained else model.checkpoint.read_config()
    if not says_tied(config):
        return
    weights = model.ledger.weights
    head = weights.get(f"{head_of(config) or 'lm_head'}.weight")
    embeddings = next((w for name, w in weights.items() if EMBEDDINGS.fullmatch(name)), None)
    if head is None or embeddings is None:
        return
    names = (head.name, embeddings.name)
    if head.shape != embeddings.shape:
        yield Finding("problem", "tied head", names, "are tied, and of different shapes")
        return
    (values,) = compare_values([Pair(head.name, head, embeddings)], how._replace(progress=None))
    if values.difference is not None and values.difference.differing:
        text = f"are tied, and {values.difference.differing:,} values differ"
        yield Finding("problem", "tied head", names, text)


def copies(ledger: Ledger, how: How) -> Iterator[Finding]:
    """Yield matrices that are stored more than once."""
    groups: dict[tuple[object, ...], list[Weight]] = {}
    for weight in ledger.weights.values():
        part = weight.parts[0]
        if len(weight.shape) < 2 or part.n_bytes < _LEAST:
            continue
        middle = part.offset + part.n_bytes // 2
        kind = (weight.id, weight.shape, len(weight.parts), part.n_bytes)
        sample = part.source.read(middle, 64), part.source.read(part.offset, 64)
        groups.setdefault((*kind, sample), []).append(weight)
    pairs = [
        Pair(first.name, first, other) for first, *others in groups.values() for other in others
    ]
    found: dict[str, list[str]] = {}
    for pair, is_copy in zip(pairs, have_same_bytes(pairs, how), strict=True):
        if is_copy:
            found.setdefault(pair.name, [pair.name]).append(pair.b.name)
    for names in found.values():
        yield Finding("note", "copies", tuple(names), "have the same bytes")


def against_hub(checkpoint: Checkpoint, how: How) -> tuple[list[Finding], str] | None:
    """Return the files of the hub's cache whose SHA-256 is another; None if none is in there."""
    known: dict[str, str] = {}
    for container in checkpoint.shards.values():
        path = container.source.path
        if path is None or repository_of(os.path.abspath(path)) is None:
            continue
        blob = os.path.basename(os.path.realpath(path))
        if _SHA256.fullmatch(blob):
            known[path] = blob
    wrong: list[str] = []

    def hash_of(path: str) -> None:
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                how.check()
                digest.update(piece)
        if digest.hexdigest() != known[path]:
            wrong.append(os.path.basename(path))

    if not known:
        return None
    run(iter(known), lambda: hash_of, how.threads)
    text = "is not what the hub has: its SHA-256 differs"
    findings = [Finding("problem", "hash", (name,), text) for name in sorted(wrong)]
    return findings, f"{numbered(len(known), 'file')} checked"
