"""Counts what `inspect` shows of a model: from its headers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.limits import ParseLimits
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.metadata import about, metadata_summary
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.report.inspection import Inspection, counted_up
from anamnesis.convert.report.problems import unwritable_weights
from anamnesis.formats.base import Container
from anamnesis.formats.safetensors.write import SafetensorsWriter
from anamnesis.schemes.core.plain import Plain, plain_dtype
from anamnesis.schemes.core.roles import CODES, role_beside
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger

_TRAINED_BYTES = 2  # of each weight before it was quantised

# What passes through, by a part of its name; the first that fits counts.
_KINDS = (
    ("norm", "norms"),
    ("embed", "embeddings"),
    ("wte", "embeddings"),
    ("lm_head", "heads"),
    ("bias", "biases"),
)


def inspect_claim(
    checkpoint: Checkpoint,
    ledger: Ledger,
    limits: ParseLimits | None,
    *,
    wanted: DType,
    notes: Iterable[str | None] = (),
) -> Inspection:
    """Count what a model's stored tensors make, and what they would be in the dtype `wanted`."""
    containers = list(checkpoint.shards.values())
    weights = ledger.weights.values()
    plain_types = {kind for kind in set(map(type, weights)) if issubclass(kind, Plain)}
    quantised = [w for w in weights if type(w) not in plain_types]
    plain = [w for w in weights if type(w) in plain_types]
    scales = [part for w in quantised for part in w.parts[1:]]
    n_quantised = _n_elements(quantised)
    n_bytes_out = wanted.n_bytes(n_quantised) + sum(
        plain_dtype(w.own_dtype, wanted, cast=False).n_bytes(w.n_elements) for w in plain
    )
    lost = _TRAINED_BYTES * n_quantised - sum(part.n_bytes for w in quantised for part in w.parts)
    tied = tuple(tuple(names) for container in containers for names in container.tied)
    n_bytes = sum(t.n_bytes for t in ledger.stored.values())
    again = {name for names in tied for name in names[1:]}
    trained = [w for w in plain if w.parts[0].dtype.kind in ("float", "complex")]  # no buffers
    counted = [w for w in (*quantised, *trained) if w.name not in again]
    n_parameters = None if ledger.problems else _n_elements(counted)
    unread_errors = {id(e): e for e in ledger.problems.values()}.values()
    unwritable = unwritable_weights(ledger.weights.values(), SafetensorsWriter())
    problems = {n: str(error) for n, error in {**ledger.problems, **unwritable}.items()}
    unread = [ledger.stored[name] for name in ledger.problems]
    unread_bytes: Counter[str] = Counter()
    for name, error in ledger.problems.items():
        unread_bytes[_encoding(error)] += ledger.stored[name].n_bytes
    card: dict[str, Any] = {}
    if checkpoint.self_contained or checkpoint.has_config:  # other lone files say nothing
        from anamnesis.convert.report.card import card_of

        card = card_of(checkpoint, ledger, limits)
    return Inspection(
        format_id=containers[0].id,
        format=containers[0].format,
        files=len(containers),
        n_tensors=len(ledger.stored),
        schemes=counted_up(w.scheme for w in quantised),
        n_quantized=len(quantised),
        n_scales=len(scales),
        scale_dtypes=counted_up(s.dtype.name for s in scales),
        n_passthrough=len(plain),
        passthrough=counted_up(w.scheme for w in plain),
        passthrough_kinds=_kinds(plain),
        dropped=tuple(ledger.dropped),
        problems=problems,
        n_bytes=n_bytes,
        n_bytes_out=n_bytes_out + sum(t.n_bytes for t in unread),
        dtype_out=wanted.name,
        quantized_as=", ".join(counted_up(w.family for w in quantised)),
        metadata=metadata_summary(containers),
        dtypes=counted_up(t.dtype.name for t in ledger.stored.values()),
        facts=containers[0].facts,
        **about(containers, checkpoint.config)._asdict(),
        **card,
        tied=tied,
        n_parameters=n_parameters,
        bits_per_weight=8 * n_bytes / n_parameters if n_parameters else None,
        lethe_took=max(0, lost),
        unread=counted_up(filter(None, map(_encoding, unread_errors))),
        unread_bytes=dict(unread_bytes.most_common()),
        rounded_between=counted_up(w.scheme for w in quantised if w.by_reference(wanted) is not w),
        file_names=tuple(checkpoint.shards),
        notes=(*filter(None, notes), *_of_names(ledger, containers[0])),
        roles=_roles(quantised, scales),
    )


def _of_names(ledger: Ledger, container: Container) -> tuple[str, ...]:
    """Return what keeps llama.cpp from a GGUF that has Hugging Face's names."""
    if container.id != "gguf":
        return ()
    from anamnesis.convert.loaders.verdicts import Facts, lacks, verdicts, warnings

    kinds = frozenset(lacks(ledger.stored, container.metadata))
    return warnings(verdicts(Facts(("gguf",), kinds))) if "hf-names" in kinds else ()


def _n_elements(weights: Iterable[Weight]) -> int:
    return sum(map(prod, [weight.shape for weight in weights]))


def _encoding(error: AnamnesisError) -> str:
    return (error.encoding if isinstance(error, UnsupportedError) else None) or ""


def _roles(
    quantised: Iterable[Weight], beside: Iterable[StoredTensor]
) -> dict[str, dict[str, int]]:
    n_of = Counter((CODES, weight.parts[0].dtype.name) for weight in quantised)
    n_of.update((role_beside(part), part.dtype.name) for part in beside)
    found: dict[str, dict[str, int]] = {role: {} for role, _ in n_of}
    for (role, dtype), n in n_of.most_common():
        found[role][dtype] = n
    return found


def _kinds(plain: Iterable[Weight]) -> tuple[str, ...]:
    names = (weight.name.lower() for weight in plain)
    found = Counter(next((k for part, k in _KINDS if part in n), "others") for n in names)
    return tuple(kind for kind, _ in sorted(found.items(), key=lambda k: (k[0] == "others", -k[1])))
