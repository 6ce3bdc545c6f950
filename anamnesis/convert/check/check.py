"""A model checked: its headers, then its values, then its hashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.convert.check.findings import Check, Finding
from anamnesis.convert.check.manifest import (
    against_manifest,
    manifest_of,
    read_manifest,
    write_manifest,
)
from anamnesis.convert.check.structure import (
    against_config,
    against_hub,
    against_index,
    copies,
    tied_heads,
    unreadable,
)
from anamnesis.convert.check.values import findings_of, look_at
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.request.request import How


def check(
    model: Input,
    limits: ParseLimits,
    how: How,
    *,
    values: bool = True,
    manifest: str | None = None,
    others: Iterable[tuple[str, Callable[[], list[Finding]]]] = (),
) -> Check:
    """Check a model; with `values` all of its bytes are read. `others` are checks by name."""
    findings = list(unreadable(model.ledger))
    done: dict[str, str] = {}

    def took(name: str, found: tuple[list[Finding], str]) -> None:
        findings.extend(found[0])
        done[name] = found[1]

    took("config", against_config(model, limits))
    indexes = model.checkpoint.indexes
    took(
        "index", (list(against_index(model.checkpoint)), "checked" if indexes else "there is none")
    )
    if values:
        weights = list(model.ledger.weights.values())
        took("values", (findings_of(weights, look_at(weights, how)), "checked"))
        took("tied head", (list(tied_heads(model, how)), "checked"))
        took("copies", (list(copies(model.ledger, how)), "checked"))
        of_hub = against_hub(model.checkpoint, how)
        if of_hub is not None:
            took("hub", of_hub)
    if manifest is not None:
        took("manifest", _manifest(model, limits, how, manifest))
    for name, find in others:
        took(name, (find(), "checked"))
    model.checkpoint.check_unchanged()
    findings.sort(key=lambda finding: finding.severity != "problem")
    stored = model.ledger.stored.values()
    n_bytes = sum(tensor.n_bytes for tensor in stored)
    return Check(model.path, len(stored), n_bytes, tuple(findings), done)


def _manifest(model: Input, limits: ParseLimits, how: How, path: str) -> tuple[list[Finding], str]:
    """Verify a manifest, or write it where there is none."""
    given = read_manifest(path, Budget(limits)) if os.path.lexists(path) else None
    made = manifest_of(model.ledger, how)
    if given is None:
        write_manifest(made, path)
        return [], f"{path} is written"
    return against_manifest(given, made, path), f"compared with {path}"
